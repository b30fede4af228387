"""Readers: raw rows with their location. An unreadable row is a reject or one clear error; the rest is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pipelines import sources
from pipelines.sources import RawRow, Slice, formats, reader
from pipelines.sources.parsing.text import LONGEST_RAW, lines, text
from ubert.schema.errors import UserError
from ubert.schema.record import Reject

Rows = list[RawRow | Reject]
Read = Callable[..., Rows]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Writes files and reads the first of them whole."""

    def read(name: str, *files: tuple[str, bytes], encoding: str = "utf-8", **options: Any) -> Rows:
        for path, content in files:
            (tmp_path / path).write_bytes(content)
        path, content = files[0]
        form = reader(name)
        return list(
            form.read(Slice(str(tmp_path), path, 0, len(content), 1, encoding, "0" * 64), form.Options(**options))
        )

    return read


def contents(rows: Rows) -> list[dict[str, Any]]:
    assert not [row for row in rows if isinstance(row, Reject)]
    return [row.content for row in rows if isinstance(row, RawRow)]


def reasons(rows: Rows) -> list[tuple[int, str]]:
    return [(row.line, row.reason) for row in rows if isinstance(row, Reject)]


def test_every_format_offers_the_whole_protocol() -> None:
    assert {"jsonl", "table", "conll", "brat", "squad"} <= set(formats())
    assert formats() == sorted(formats())
    for name in formats():
        assert all(reader(name)), name


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"'pdf' is unknown; expected one of .*brat, "):
        reader("pdf")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("jsonl", {}),
        ("table", {"columns": ["a"]}),
        ("table", {"header": True, "quoting": "csv"}),
        ("conll", {"columns": ["a"]}),
        ("conll", {"columns": ["a"], "begins": "#"}),
    ],
)
def test_an_empty_file_has_no_rows(read: Read, name: str, options: dict[str, Any]) -> None:
    assert read(name, ("empty", b""), **options) == []


# jsonl


def test_a_bad_json_line_is_a_reject_and_the_rest_is_read(read: Read) -> None:
    rows = read("jsonl", ("x", b'{"n": 1}\n{"n": \n[1]\nnull\n\n \t\n{"n": 2}'))
    assert [(row.line, row.content) for row in rows if isinstance(row, RawRow)] == [(1, {"n": 1}), (7, {"n": 2})]
    assert reasons(rows) == [(2, "not JSON"), (3, "not an object"), (4, "not an object")]


def test_a_json_reject_says_where_in_the_line(read: Read) -> None:
    (reject,) = read("jsonl", ("x", b'{"n" 1}\n'))
    assert reject == Reject("x", 1, "not JSON", "column 6: Expecting ':' delimiter", '{"n" 1}')


def test_ranges_of_rows_part_a_file_without_overlap(read: Read) -> None:
    file = ("x", b'{"n": 0}\n\n{"n": \n{"n": 2}\n{"n": 3}\n')
    parts = [read("jsonl", file, only=part) for part in ((0, 2), (2, 3), (3, 9))]
    assert [[row.line for row in part] for part in parts] == [[1, 3], [4], [5]]
    form = reader("jsonl")
    assert form.split_at(form.Options()) == "line"
    assert form.split_at(form.Options(only=(0, 5))) is None  # a range of bytes has no row numbers
    for wrong in ((2, 2), (3, 1), (-1, 2)):
        with pytest.raises(ValueError, match="only"):
            form.Options(only=wrong)
    beside = {"path": "y", "into": "i", "key": "k", "other_key": "k"}
    with pytest.raises(ValueError, match="`only` can't be combined with `beside`"):
        form.Options(only=(0, 5), beside=beside)


def test_a_line_of_another_encoding_is_a_reject_that_names_byte_and_cure(read: Read) -> None:
    rows = read("jsonl", ("x", b'{"n": 1}\n{"n": "caf\xe9"}\n{"n": 3}\n'))
    assert [row.line for row in rows if isinstance(row, RawRow)] == [1, 3]
    reject = next(row for row in rows if isinstance(row, Reject))
    assert (reject.line, reject.reason, reject.raw) == (2, "wrong encoding", '{"n": "caf\\xe9"}')
    assert "byte 19 (0xe9) is not utf-8" in reject.detail and "`encoding:`" in reject.detail


def test_the_encoding_of_the_spec_is_used(read: Read) -> None:
    assert contents(read("jsonl", ("x", b'{"n": "caf\xe9"}'), encoding="latin-1")) == [{"n": "caf\u00e9"}]


def test_byte_order_mark_and_crlf_are_no_content(read: Read) -> None:
    assert contents(read("jsonl", ("x", b'\xef\xbb\xbf{"n": 1}\r\n{"n": 2}\r\n'))) == [{"n": 1}, {"n": 2}]


def test_a_byte_order_mark_is_one_at_the_start_of_a_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "BLOCK_BYTES", 4)
    content = "\ufeffa\n\ufeffb\n".encode()
    (tmp_path / "x").write_bytes(content)
    whole, rest = (Slice(str(tmp_path), "x", start, len(content), 1, "utf-8", "0" * 64) for start in (0, 5))
    assert list(lines(whole)) == ["a", "\ufeffb"] and list(lines(rest)) == ["\ufeffb"]
    assert text(whole) == "a\n\ufeffb\n" and text(rest) == "\ufeffb\n"


@pytest.mark.parametrize("block", [1, 9, 1 << 20])
def test_a_line_of_another_encoding_is_reported_by_its_place_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(sources, "BLOCK_BYTES", block)
    content = b"\xef\xbb\xbfa\r\nb\xff\n\xffc\nd\r"
    (tmp_path / "x").write_bytes(content)
    found = list(lines(Slice(str(tmp_path), "x", 0, len(content), 1, "utf-8", "0" * 64)))
    assert [one for one in found if isinstance(one, str)] == ["a", "d\r"]
    bad = [(one.line, one.detail.partition(" is")[0]) for one in found if isinstance(one, Reject)]
    assert bad == [(2, "byte 7 (0xff)"), (3, "byte 9 (0xff)")]


def test_only_line_feeds_end_lines(read: Read) -> None:
    row = {"t": "a\u2028b\x85c"}
    assert contents(read("jsonl", ("x", json.dumps(row, ensure_ascii=False).encode()))) == [row]


def test_long_lines_are_read_and_deep_nesting_is_a_reject(read: Read) -> None:
    rows = read("jsonl", ("x", b'{"t": "' + b"a" * 2_000_000 + b'"}\n' + b"[" * 200_000 + b'\n{"t": "b"}\n'))
    assert [len(row.content["t"]) for row in rows if isinstance(row, RawRow)] == [2_000_000, 1]
    assert reasons(rows) == [(2, "not JSON")]


def test_a_line_that_python_alone_reads_is_a_row_of_its_line(read: Read) -> None:
    rows = read("jsonl", ("x", b'{"n": 1}\n\n{"n": -Infinity}\n'))
    assert rows == [RawRow(1, "x:1", {"n": 1}), RawRow(3, "x:3", {"n": float("-inf")})]


def test_each_field_that_holds_json_is_decoded_or_its_row_is_reported(read: Read) -> None:
    file = ("x", b'{"a": "1", "b": "[2]", "c": "3"}\n{\n{"b": "1", "c": 2}\n')
    row, bad, lacking = read("jsonl", file, decode=["a", "b"])
    assert row == RawRow(1, "x:1", {"a": 1, "b": [2], "c": "3"})
    assert isinstance(bad, Reject) and (bad.line, bad.raw) == (2, "{")
    assert isinstance(lacking, Reject) and (lacking.line, lacking.raw) == (3, '{"b": "1", "c": 2}')
    assert lacking.detail.startswith("x:3: ") and "no field 'a', there are b, c" in lacking.detail


def test_fields_that_hold_json_as_a_string_are_decoded(read: Read) -> None:
    file = (
        "x",
        b'{"a": "{\\"b\\": [1]}", "c": "d"}\n{"a": "{"}\n{"c": 1}\n{"a": 1}\n{"a": "{\\"b\\": 1, \\"b\\": 2}"}',
    )
    rows = read("jsonl", file, decode=["a"])
    assert rows[0].content == {"a": {"b": [1]}, "c": "d"}
    assert reasons(rows) == [(2, "not JSON"), (3, "not JSON"), (4, "not JSON"), (5, "repeated key")]


def test_rows_of_two_files_are_joined_and_what_has_no_partner_is_a_reject(read: Read, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    files = (
        ("x", b'{"id": "a", "n": 1}\n{"id": "b"}\n{"n": 2}\n{'),
        ("more/y", b'{"key": "c"}\n{"key": "a", "m": 3}\n{"key": "a"}\n[]\n{"id": "a"}'),
    )
    beside = {"path": "more/y", "into": "other", "key": "id", "other_key": "key"}
    rows = read("jsonl", *files, beside=beside)
    assert [row for row in rows if isinstance(row, RawRow)] == [
        RawRow(1, "x:1", {"id": "a", "n": 1, "other": {"key": "a", "m": 3}})
    ]
    rejects = [row for row in rows if isinstance(row, Reject)]
    assert [(reject.path, reject.reason, reject.detail.split(": ")[0]) for reject in rejects] == [
        ("x", "not joined", "x:2"),
        ("x", "not joined", "x:3"),
        ("x", "not JSON", "column 2"),
        ("x", "not joined", "more/y:3"),
        ("x", "not an object", "more/y"),
        ("x", "not joined", "more/y:5"),
        ("x", "not joined", "more/y:1"),
    ]
    form = reader("jsonl")
    assert form.companions(tmp_path, "x", form.Options(beside=beside)) == ["more/y"]
    with pytest.raises(ValueError, match="inside the dataset's folder"):
        form.Options(beside={**beside, "path": "../y"})


def test_rows_are_joined_by_keys_of_any_kind_to_a_file_of_their_folder(read: Read, tmp_path: Path) -> None:
    own = b'{"id": "1"}\n{"id": {"a": 1, "b": 2}}\n{"id": 1}\n{"id": 0}\n'
    other = b'{"k": 1, "m": 3}\n{"k": {"b": 2, "a": 1}, "m": 2}\n{"k": "1", "m": 1}\n{"k": 0, "m": 4}\n'
    beside = {"path": "y", "into": "other", "key": "id", "other_key": "k"}
    rows = contents(read("jsonl", ("x", own), ("y", other), beside=beside))
    assert [row["other"]["m"] for row in rows] == [1, 2, 3, 4]
    form = reader("jsonl")
    assert form.companions(tmp_path, "d/x", form.Options(beside=beside)) == ["d/y"]


def test_a_row_without_a_partner_is_reported_by_its_own_line(read: Read) -> None:
    beside = {"path": "y", "into": "other", "key": "id", "other_key": "k"}
    rows = read("jsonl", ("x", b'\n{"id": "a"}\n'), ("y", b'\n\n{"k": "b"}\n{"k": "b"}\n{\n'), beside=beside)
    assert [(row.path, row.line, row.raw) for row in rows if isinstance(row, Reject)] == [
        ("x", 2, '{"id": "a"}'),
        ("x", 4, '{"k": "b"}'),
        ("x", 5, "{"),
        ("x", 3, '{"k": "b"}'),
    ]


# table


def test_a_table_takes_its_columns_from_the_spec_or_from_its_header(read: Read) -> None:
    assert contents(read("table", ("x", b"a\tb\n"), columns=["m", "n"])) == [{"m": "a", "n": "b"}]
    assert contents(read("table", ("x", b"m\tn\na\tb\n"), header=True)) == [{"m": "a", "n": "b"}]
    renamed = read("table", ("x", b"m\tn\na\tb\n"), header=True, columns=["p", "q"])
    assert [(row.line, row.content) for row in renamed] == [(2, {"p": "a", "q": "b"})]


def test_a_wrong_column_count_is_a_reject(read: Read) -> None:
    rows = read("table", ("x", b"a\tb\na\na\tb\tc\n"), columns=["m", "n"])
    assert [row.line for row in rows if isinstance(row, RawRow)] == [1]
    assert rows[1] == Reject("x", 2, "wrong column count", "expected 2 columns, got 1", "a")
    assert rows[2] == Reject("x", 3, "wrong column count", "expected 2 columns, got 3", "a\tb\tc")


def test_optional_columns_are_there_whole_or_not_at_all(read: Read) -> None:
    rows = read("table", ("x", b"a\na\tb\tc\na\tb\n"), columns=["m"], optional_columns=["n", "o"])
    assert [row.content for row in rows if isinstance(row, RawRow)] == [{"m": "a"}, {"m": "a", "n": "b", "o": "c"}]
    assert [(row.line, row.detail) for row in rows if isinstance(row, Reject)] == [
        (3, "expected 1 or 3 columns, got 2")
    ]


def test_without_quoting_a_quote_is_a_character(read: Read) -> None:
    rows = read("table", ("x", b'"a\tb\n5" x 3"\t"c"\n'), columns=["m", "n"])
    assert contents(rows) == [{"m": '"a', "n": "b"}, {"m": '5" x 3"', "n": '"c"'}]


def test_a_quoted_field_holds_separators_quotes_and_line_ends(read: Read) -> None:
    rows = read(
        "table", ("x", b'm,n\r\n"a, ""b""\r\nc",d\r\n\r\ne,f\r\n'), separator=",", header=True, quoting="csv"
    )
    assert contents(rows) == [{"m": 'a, "b"\r\nc', "n": "d"}, {"m": "e", "n": "f"}]
    assert [row.line for row in rows] == [2, 5]


def test_a_broken_quote_costs_its_line_alone(read: Read) -> None:
    content = b'a,b\n"c"d,e\nf,g\n"h,i\nj,k\n"l, m","n\no"\n"p,q\nr,s\n'
    rows = read("table", ("x", content), separator=",", columns=["m", "n"], quoting="csv")
    assert [(row.line, [*row.content.values()]) for row in rows if isinstance(row, RawRow)] == [
        (1, ["a", "b"]),
        (3, ["f", "g"]),
        (5, ["j", "k"]),
        (6, ["l, m", "n\no"]),
        (9, ["r", "s"]),
    ]
    assert [(row.line, row.reason, row.detail, row.raw) for row in rows if isinstance(row, Reject)] == [
        (2, "not CSV", "',' expected after '\"'", '"c"d,e\n'),
        (4, "not CSV", "a quote is opened; line 6: ',' expected after '\"'", '"h,i\n'),
        (8, "not CSV", "a quote is opened; line 9: unexpected end of data", '"p,q\n'),
    ]


def test_quotes_that_are_opened_on_every_line_take_no_longer_for_it(read: Read) -> None:
    lines = 50_000  # to read from each of them to the end of the file would take a minute
    rows = read("table", ("x", b'a","b\n' * lines), separator=",", columns=["m"], quoting="csv")
    assert [row.line for row in rows if isinstance(row, Reject)] == [*range(1, lines + 1)]


def test_the_last_column_takes_the_rest_of_the_line(read: Read) -> None:
    rows = read("table", ("x", b"1 a b  c \n2\n"), separator=" ", columns=["label", "text"], rest=True)
    assert rows[0].content == {"label": "1", "text": "a b  c "}
    assert reasons(rows) == [(2, "wrong column count")]


def test_a_separator_may_be_several_characters(read: Read) -> None:
    rows = read("table", ("x", b"a # b####c\nd\n"), separator="####", columns=["m", "n"])
    assert rows[0].content == {"m": "a # b", "n": "c"}
    assert reasons(rows) == [(2, "wrong column count")]
    with pytest.raises(ValidationError, match="expected one character with `quoting: csv`, got '##'"):
        read("table", ("x", b"a##b\n"), separator="##", columns=["m", "n"], quoting="csv")


def test_a_line_of_separators_alone_is_a_row_of_empty_fields(read: Read) -> None:
    rows = read("table", ("x", b"\t\n\n \t \n"), columns=["m", "n"])
    assert contents(rows) == [{"m": "", "n": ""}, {"m": " ", "n": " "}]


def test_a_record_of_several_lines_is_refused_as_it_stands(read: Read) -> None:
    content = b'a,b\n"c\nd",e,f\ng\n'
    rows = read("table", ("x", content), separator=",", columns=["m", "n"], quoting="csv")
    assert rows[1:] == [
        Reject("x", 2, "wrong column count", "expected 2 columns, got 3", '"c\nd",e,f\n'),
        Reject("x", 4, "wrong column count", "expected 2 columns, got 1", "g\n"),
    ]


def test_nul_bytes_are_characters(read: Read) -> None:
    assert contents(read("table", ("x", b"a\0b\n"), columns=["m"])) == [{"m": "a\0b"}]
    assert contents(read("table", ("x", b"a\0b\n"), columns=["m"], quoting="csv")) == [{"m": "a\0b"}]


def test_a_header_names_each_column_once(read: Read) -> None:
    with pytest.raises(UserError, match="line 1 names a column twice"):
        read("table", ("x", b"m\tm\na\tb\n"), header=True)
    with pytest.raises(UserError, match="line 1 is blank, expected the header"):
        read("table", ("x", b"\nm\tn\n"), header=True)
    with pytest.raises(UserError, match="line 1 is blank, expected the header"):
        read("table", ("x", b"\n"), header=True)


def test_a_header_of_another_encoding_is_an_error(read: Read) -> None:
    with pytest.raises(UserError, match=r"line 1, the header: byte 0 \(0xe9\) is not utf-8; .* in its spec$"):
        read("table", ("x", b"\xe9\tn\na\tb\n"), header=True)


# conll


def test_sentences_are_parted_by_blank_lines_in_any_number(read: Read) -> None:
    rows = read("conll", ("x", b"\n\na X\r\nb Y\r\n\r\n \nc Z"), columns=["token", "tag"])
    assert [(row.line, row.locator, row.content) for row in rows] == [
        (3, "x:3", {"token": ["a", "b"], "tag": ["X", "Y"]}),
        (7, "x:7", {"token": ["c"], "tag": ["Z"]}),
    ]


def test_columns_come_in_any_order_and_some_are_left_out(read: Read) -> None:
    rows = read("conll", ("x", b"B-x\t1\ta b\t2\n"), columns=["tag", "_", "token", "_"], separator="tab")
    assert contents(rows) == [{"tag": ["B-x"], "token": ["a b"]}]


def test_white_space_inside_a_token_is_not_a_separator(read: Read) -> None:
    rows = read("conll", ("x", "a\u00a0b  \tO\n".encode()), columns=["token", "tag"])
    assert contents(rows) == [{"token": ["a\u00a0b"], "tag": ["O"]}]


def test_comment_lines_are_skipped_where_the_spec_says_so(read: Read) -> None:
    text = b"-DOCSTART- O\n\n# 1\na O\n#tag O\n"
    rows = read("conll", ("x", text), columns=["token", "tag"], comments=["-DOCSTART-", "# "])
    assert [(row.line, row.content["token"]) for row in rows] == [(4, ["a", "#tag"])]


def test_marker_lines_part_records_where_blank_lines_do_not(read: Read) -> None:
    text = b"#doc 12\na O\n\nb O\n#doc 13\n#doc 14\n% a note\nc O\n"
    rows = read("conll", ("x", text), columns=["token", "tag"], begins="#doc", comments=["%"])
    assert [(row.line, row.content) for row in rows if isinstance(row, RawRow)] == [
        (2, {"token": ["a", "b"], "tag": ["O", "O"], "marker": "12"}),
        (8, {"token": ["c"], "tag": ["O"], "marker": "14"}),
    ]
    assert reasons(read("conll", ("x", b"a O\n" + text), columns=["token", "tag"], begins="#doc")) == [
        (1, "no marker"), (8, "wrong column count"),
    ]  # fmt: skip
    with pytest.raises(UserError, match="no line begins with '#dco'; correct `begins`"):
        read("conll", ("x", text), columns=["token", "tag"], begins="#dco")
    with pytest.raises(ValidationError, match="`begins` adds a field `marker`"):
        read("conll", ("x", text), columns=["token", "marker"], begins="#doc")


def test_a_wrong_line_rejects_its_sentence_alone(read: Read) -> None:
    rows = read("conll", ("x", b"a O\nb\n\nc O\n\nd\xff O\n"), columns=["token", "tag"])
    assert [row.content["token"] for row in rows if isinstance(row, RawRow)] == [["c"]]
    assert reasons(rows) == [(1, "wrong column count"), (6, "wrong encoding")]
    assert rows[0].raw == "a O\nb" and "got 1 in 'b'" in rows[0].detail


def test_a_sentence_and_its_wrong_line_are_reported_by_their_places(read: Read) -> None:
    (reject,) = read("conll", ("x", b"\na O\nd\xff O\n"), columns=["token", "tag"])
    assert isinstance(reject, Reject)
    assert (reject.line, reject.raw) == (2, "a O\nd\\xff O")
    assert reject.detail.startswith("line 3: byte 6 (0xff)")


def test_tokens_before_the_first_marker_are_reported_where_they_begin(read: Read) -> None:
    text = b"\n% note\na O\n\nb O\n#doc 1\nc O\n"
    before, row = read("conll", ("x", text), columns=["token", "tag"], begins="#doc", comments=["%"])
    assert isinstance(before, Reject)
    assert (before.line, before.reason, before.raw) == (3, "no marker", "a O\nb O")
    assert row == RawRow(7, "x:7", {"token": ["c"], "tag": ["O"], "marker": "1"})


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"column .* is named twice"):
        reader("conll").Options(columns=["a", "_", "a", "_"])


# brat


ANNOTATIONS = b"""T1\tPerson 0 3\tAnn
  
T2\tFirm 9 13;18 22\tAcme Corp
R1\tworks-for Arg1:T1 Arg2:T2
E1\tHire:T1 Employer:T2 Why:Cause:E2
E2\tQuit:T1
A1\tNegated E1
M2\tDegree E2 very high
*\tEquiv T1 T2
N1\tReference T1 Wiki:1\tAnn
#1\tAnnotatorNotes T1\tunsure
"""


def test_every_kind_of_standoff_line_is_read(read: Read) -> None:
    (row,) = read("brat", ("d.txt", b"Ann left Acme the Corp."), ("d.ann", ANNOTATIONS))
    assert row.locator == "d.txt" and row.content["text"] == "Ann left Acme the Corp."
    assert row.content["standoff"] == {
        "spans": [
            {"id": "T1", "label": "Person", "fragments": [[0, 3]], "text": "Ann"},
            {"id": "T2", "label": "Firm", "fragments": [[9, 13], [18, 22]], "text": "Acme Corp"},
        ],
        "relations": [{"id": "R1", "label": "works-for", "head": "T1", "tail": "T2"}],
        "events": [
            {
                "id": "E1",
                "label": "Hire",
                "trigger": "T1",
                "arguments": [{"role": "Employer", "target": "T2"}, {"role": "Why:Cause", "target": "E2"}],
            },
            {"id": "E2", "label": "Quit", "trigger": "T1", "arguments": []},
        ],
        "attributes": [
            {"id": "A1", "label": "Negated", "target": "E1", "value": None},
            {"id": "M2", "label": "Degree", "target": "E2", "value": "very high"},
        ],
        "equivalences": [{"label": "Equiv", "targets": ["T1", "T2"]}],
        "notes": [
            {"id": "N1", "label": "Reference", "target": "T1", "text": "Ann"},
            {"id": "#1", "label": "AnnotatorNotes", "target": "T1", "text": "unsure"},
        ],
    }


def test_a_mention_may_hold_tabs_and_its_id_is_its_own(read: Read) -> None:
    (row,) = read("brat", ("d.txt", b"a\tb c"), ("d.ann", b"T1\tX 0 3\ta\tb\nT2\tX 0 1;4 5\ta\tc\n"))
    assert [span["text"] for span in row.content["standoff"]["spans"]] == ["a\tb", "a\tc"]
    (reject,) = read("brat", ("d.txt", b"a b"), ("d.ann", b"T1\tX 0 1\ta\nT1\tX 2 3\tb\n"))
    assert (reject.reason, reject.detail) == ("bad annotation", "two mentions have the same id T1")


def test_an_ending_is_that_of_the_file_not_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "v1.0").mkdir()
    (tmp_path / "v1.0/d.ann").touch()
    form = reader("brat")
    assert form.companions(tmp_path, "v1.0/d", form.Options()) == ["v1.0/d.ann"]


def test_a_text_may_have_another_ending(tmp_path: Path) -> None:
    for name in ("d.tok", "d.txt"):
        (tmp_path / name).touch()
    form = reader("brat")
    options = form.Options(annotations=[".a1"], text=".tok")
    assert form.companions(tmp_path, "d.a1", options) == ["d.tok"]


def test_a_note_has_all_of_its_text_or_none(read: Read) -> None:
    notes = b"#1\tNote T1\n#2\tNote T1\ta\tb\nN1\tReference T1 Wiki:1\ta b\n"
    (row,) = read("brat", ("d.txt", b"a"), ("d.ann", notes))
    assert isinstance(row, RawRow)
    assert [note["text"] for note in row.content["standoff"]["notes"]] == ["", "a b", "a b"]


def test_annotations_may_lie_in_several_files(read: Read) -> None:
    files = ("d.txt", b"a b"), ("d.a1", b"T1\tX 0 1\ta\n"), ("d.a2", b"T2\tY 2 3\tb\n")
    (row,) = read("brat", *files, annotations=[".a1", ".a2"])
    assert [span["id"] for span in row.content["standoff"]["spans"]] == ["T1", "T2"]


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r"])
def test_no_line_end_is_part_of_a_mention(read: Read, end: str) -> None:
    (row,) = read("brat", ("d.txt", b"a b"), ("d.ann", f"T1\tX 0 1\ta\r\nT2\tX 2 3\tb{end}".encode()))
    assert [span["text"] for span in row.content["standoff"]["spans"]] == ["a", "b"]


@pytest.mark.parametrize(
    "line", ["T1\tX 0\ta", "T1\tX  0 1\ta", "T1\tX a b\ta", "R1", "E1\tX:T1 T2", "X1\tfoo", "*"]
)
def test_a_bad_annotation_line_rejects_its_document_and_is_named(read: Read, line: str) -> None:
    (reject,) = read("brat", ("d.txt", b"a b"), ("d.ann", b"\n" + line.encode()))
    assert (reject.path, reject.reason, reject.raw) == ("d.txt", "bad annotation", "a b")
    assert reject.detail.startswith("d.ann: line 2: ") and repr(line) in reject.detail


def test_a_document_without_its_annotation_file_is_a_reject(read: Read) -> None:
    (reject,) = read("brat", ("d.txt", b"a b"))
    assert (reject.reason, reject.detail, reject.raw) == ("no annotation file", "d.ann is missing", "a b")


def test_a_spec_may_name_the_annotation_files_so_that_those_without_text_are_reported(
    read: Read, tmp_path: Path
) -> None:
    files = (("d.a1", b"T1\tA 0 1\tx\n"), ("d.txt", b"x"), ("d.a2", b""))
    (row,) = read("brat", *files, annotations=[".a1", ".a2"])
    assert isinstance(row, RawRow) and row.locator == "d.a1" and row.content["text"] == "x"
    form = reader("brat")
    options = form.Options(annotations=[".a1", ".a2"])
    assert form.companions(tmp_path, "d.a1", options) == ["d.txt", "d.a2"]
    (reject,) = read("brat", ("e.ann", b"T1\tA 0 1\tx\n"))
    assert isinstance(reject, Reject) and (reject.reason, reject.raw) == ("no text file", "T1\tA 0 1\tx\n")
    assert form.companions(tmp_path, "e.ann", form.Options()) == []


@pytest.mark.parametrize(
    ("content", "start", "line", "place"),
    [
        (b"m,n\na,b\nc,d\ne,\xff\n", 8, 3, "line 4: byte 14 "),
        (b"\xef\xbb\xbfa\xff", 0, 1, "line 1: byte 4 "),
    ],
)
def test_a_byte_of_another_encoding_has_its_place_in_the_file(
    content: bytes, start: int, line: int, place: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(UserError, match=place):
        text(Slice(str(tmp_path), "t.csv", start, len(content), line, "utf-8", "0" * 64))


def test_a_document_of_another_encoding_is_a_reject(read: Read) -> None:
    (reject,) = read("brat", ("d.txt", b"a\n\xe9"), ("d.ann", b""))
    assert reject.reason == "wrong encoding" and "line 2: byte 2 (0xe9)" in reject.detail


def test_an_annotation_file_of_another_encoding_rejects_the_text(read: Read) -> None:
    (reject,) = read("brat", ("d.txt", b"a b"), ("d.ann", b"\n\xe9"))
    assert isinstance(reject, Reject)
    assert (reject.path, reject.reason, reject.raw) == ("d.txt", "wrong encoding", "a b")
    assert "d.ann: line 2: byte 1 (0xe9)" in reject.detail


# squad


def squad(*documents: list[dict[str, Any]]) -> bytes:
    data = [{"title": "t", "paragraphs": [{"context": "c", "qas": questions}]} for questions in documents]
    return json.dumps({"version": "2", "data": data}).encode()


def test_a_question_is_a_row_with_its_context(read: Read) -> None:
    rows = read("squad", ("x", squad([{"id": "1"}], [{"id": "2"}, {"id": "3", "is_impossible": True}])))
    assert [row.locator for row in rows] == ["x#0.0.0", "x#1.0.0", "x#1.0.1"]
    assert rows[0].content == {"title": "t", "context": "c", "is_impossible": False, "id": "1"}
    assert rows[2].content["is_impossible"] is True


@pytest.mark.parametrize("documents", [[2, 2], [3, 1], [-1, 2]])
def test_a_range_of_no_documents_is_refused(documents: list[int]) -> None:
    with pytest.raises(ValueError, match="documents"):
        reader("squad").Options(documents=documents)


def test_a_question_has_the_context_of_its_own_paragraph(read: Read) -> None:
    paragraphs = [{"context": "c0", "qas": []}, {"context": "c1", "qas": [3, {"id": "1"}]}]
    data = [{"title": "t0", "paragraphs": []}, {"title": "t1", "paragraphs": paragraphs}]
    assert read("squad", ("x", json.dumps({"data": data}).encode())) == [
        Reject("x", 1, "wrong type", "#1.1.0: expected an object", "3"),
        RawRow(1, "x#1.1.1", {"title": "t1", "context": "c1", "is_impossible": False, "id": "1"}),
    ]


def test_documents_part_a_file_without_overlap(read: Read) -> None:
    file = ("x", squad([{"id": "1"}], [{"id": "2"}], [{"id": "3"}]))
    parts = [read("squad", file, documents=part) for part in ((0, 2), (2, 3))]
    assert [[row.content["id"] for row in part] for part in parts] == [["1", "2"], ["3"]]
    assert parts[1][0].locator == "x#2.0.0"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b'{"version": 2}', "expected a list `data`, as in SQuAD files"),
        (b'{"data": [], "data": []}', "`data` is given twice"),
    ],
)
def test_a_file_that_is_no_squad_file_gives_one_clear_error(read: Read, content: bytes, error: str) -> None:
    with pytest.raises(UserError, match=error):
        read("squad", ("x", content))


@pytest.mark.parametrize(
    ("bad", "reason", "error"),
    [
        ("{}", "no rows", "expected a list `paragraphs` of document 1"),
        ('{"paragraphs": [], "paragraphs": []}', "repeated key", "`paragraphs` of document 1 is given twice"),
        ('{"paragraphs": ["x"]}', "no rows", "expected a list `qas` of document 1, paragraph 0"),
        ('{"paragraphs": [{"qas": []}, {"qas": 1}]}', "no rows", "of document 1, paragraph 1"),
    ],
)
def test_only_the_bad_document_or_paragraph_of_a_squad_file_is_refused(
    read: Read, bad: str, reason: str, error: str
) -> None:
    good = '{"paragraphs": [{"context": "c", "qas": [{"id": "1"}]}]}'
    first, reject, last = read("squad", ("x", f'{{"data": [{good}, {bad}, {good}]}}'.encode()))
    assert (first.locator, last.locator) == ("x#0.0.0", "x#2.0.0")
    assert isinstance(reject, Reject) and reject.reason == reason and error in reject.detail


@pytest.mark.parametrize("name", ["squad", "json"])
@pytest.mark.parametrize(
    ("content", "reason", "detail"),
    [
        (b'{"data": [\n{"a": ', "not JSON", "line 2, column 7: Expecting value"),
        (b"[" * 100_000, "not JSON", "the values are nested too deeply to be read"),
        (b"9" * 5000, "not JSON", "Exceeds the limit"),
        (b'{"data": [\n"\xe9"]}', "wrong encoding", "line 2: byte 12 (0xe9) is not utf-8"),
    ],
)
def test_a_file_that_is_not_json_is_one_reject(
    read: Read, name: str, content: bytes, reason: str, detail: str
) -> None:
    (reject,) = read(name, ("x", content))
    assert isinstance(reject, Reject) and reject.reason == reason and detail in reject.detail
    assert reject.raw == content.decode("utf-8", "backslashreplace")


# json


def test_rows_are_found_by_keys_through_lists(read: Read) -> None:
    file = ("x", b'{"a": {"b": [{"c": [{"n": 1}, {"n": 2}]}, {"c": [{"n": 3}]}]}}')
    rows = read("json", file, rows=["a.b[].c[]"])
    assert [(row.locator, row.content["n"]) for row in rows] == [
        ("x#a.b.0.c.0", 1),
        ("x#a.b.0.c.1", 2),
        ("x#a.b.1.c.0", 3),
    ]


def test_keys_on_the_way_are_kept_under_their_names(read: Read) -> None:
    file = ("x", b'{"greet": [{"t": "hi"}], "leave": [{"t": "bye"}]}')
    assert contents(read("json", file, rows=["{intent}[]"])) == [
        {"intent": "greet", "t": "hi"},
        {"intent": "leave", "t": "bye"},
    ]


@pytest.mark.parametrize("name", ["json", "json_stream"])
def test_a_key_given_twice_loses_no_row_uncounted(read: Read, name: str) -> None:
    at = "x#" if name == "json" else "x#0."
    rows = read(name, ("x", b'{"a": {"n": 1}, "a": {"n": 2}, "b": {"n": 3}}'), rows=["{k}"])
    assert [row for row in rows if isinstance(row, RawRow)] == [
        RawRow(1, f"{at}a", {"k": "a", "n": 1}),
        RawRow(1, f"{at}b", {"k": "b", "n": 3}),
    ]
    assert [(row.reason, row.raw) for row in rows if isinstance(row, Reject)] == [("repeated key", '{"n": 2}')]
    rows = read(name, ("x", b'{"d": [{"n": 1}, {"n": 2}], "d": [{"n": 3}]}'), rows=["d[]"])
    assert [row.content["n"] for row in rows if isinstance(row, RawRow)] == [1, 2]
    assert [(row.reason, row.raw) for row in rows if isinstance(row, Reject)] == [("repeated key", '{"n": 3}')]


def test_a_key_with_a_dot_is_not_two_keys(read: Read) -> None:
    content = b'{"a.b": {"c": {}}, "a": {"b.c": {}, "b": {}}, "a\\\\": {"b": {}}}'
    rows = read("json", ("x", content), rows=["{k}.{l}"])
    places = [row.locator for row in rows if isinstance(row, RawRow)]
    assert places == ["x#a\\.b.c", "x#a.b\\.c", "x#a.b", "x#a\\\\.b"]


def test_rows_of_several_places_and_rows_that_are_lists(read: Read) -> None:
    file = ("x", b'{"a": [["hi", 1]], "b": [["bye", 2], ["odd"], 3], "c": [[1, 2]]}')
    rows = read("json", file, rows=["a[]", "b[]"], columns=["t", "n"])
    assert [row.content for row in rows if isinstance(row, RawRow)] == [{"t": "hi", "n": 1}, {"t": "bye", "n": 2}]
    assert [(row.reason, row.detail) for row in rows if isinstance(row, Reject)] == [
        ("wrong column count", "#b.1: expected 2 items, got 1"),
        ("wrong type", "#b.2: expected a list"),
    ]


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("a.z", "no key 'z' at a, there is b, c"),
        ("a.d?.z", None),
        ("a[]", "no list at a, there is b, c"),
        ("a.b.{k}", r"no key 'k' at a\.b, there is 1"),
    ],
)
def test_a_path_that_leads_nowhere_is_an_error_that_names_those_there(
    read: Read, path: str, there: str | None
) -> None:
    file = ("x", b'{"a": {"b": 1, "c": [2]}}')
    if there is None:
        assert read("json", file, rows=[path]) == []
    else:
        with pytest.raises(UserError, match=f"{there}; correct `rows`"):
            read("json", file, rows=[path])


def test_only_the_item_in_which_a_path_leads_nowhere_is_refused(read: Read) -> None:
    file = ("x", b'{"a": {"c": [2, {"z": {"b": 1}}]}}')
    assert read("json", file, rows=["a.c[].z"]) == [
        Reject("x", 1, "no rows", "#a.c.0: no key 'z', there is 2; correct `rows` in the spec", "2"),
        RawRow(1, "x#a.c.1.z", {"b": 1}),
    ]


def test_a_path_to_rows_begins_at_the_top() -> None:
    with pytest.raises(ValidationError, match="expected a path from the top of the file"):
        reader("json").Options(rows=["a[]", "/b[]"])


def test_line_ends_in_strings_are_read_where_the_spec_says_so(read: Read) -> None:
    file = ("x", b'[{"a": "b\n\tc"}]')
    assert reasons(read("json", file)) == [(1, "not JSON")]
    assert contents(read("json", file, control_characters=True)) == [{"a": "b\n\tc"}]


def test_of_a_file_that_cannot_be_read_the_beginning_is_kept(read: Read) -> None:
    for first, shown in ((b"x", "x"), (b"\xff", "\\xff")):
        (reject,) = read("json", ("x", first + b"y" * LONGEST_RAW))
        assert isinstance(reject, Reject) and reject.raw == shown + "y" * (LONGEST_RAW - 1)


def test_a_row_takes_along_what_the_spec_names_around_it(read: Read) -> None:
    file = ("x", b'[{"title": "T", "text": "long", "parts": [{"q": 1}, {"q": 2, "title": "own"}]}]')
    rows = contents(read("json", file, rows=["[].parts[]"], enclosing=["title"]))
    assert rows == [{"title": "T", "q": 1}, {"title": "own", "q": 2}]
    file = ("x", b'[[["a"], [{"q": 3}], "id"]]')
    assert contents(read("json", file, rows=["[].1[]"], enclosing=["0"])) == [{"0": ["a"], "q": 3}]


def test_single_values_are_rows_under_a_name(read: Read) -> None:
    file = ("x", b'{"p1": {"parts": ["a", "b"], "kinds": ["K", "L"]}}')
    rows = contents(read("json", file, rows=["{page}.parts.{i}"], item="text", enclosing=["kinds"]))
    assert rows == [
        {"page": "p1", "i": "0", "kinds": ["K", "L"], "text": "a"},
        {"page": "p1", "i": "1", "kinds": ["K", "L"], "text": "b"},
    ]


def test_values_that_are_no_objects_need_a_name(read: Read) -> None:
    rows = read("json", ("x", b'["a", {"n": 1}, null, [2]]'), item="t")
    assert contents(rows) == [{"t": "a"}, {"n": 1}, {"t": None}, {"t": [2]}]
    assert read("json", ("x", b'[{"n": 1}, 2]')) == [
        RawRow(1, "x#0", {"n": 1}),
        Reject("x", 1, "wrong type", "#1: expected an object", "2"),
    ]


def test_the_closest_object_around_a_row_gives_its_field_though_it_be_zero(read: Read) -> None:
    file = b'{"y": 1, "of": [{"y": 0, "t": [{"n": 1}]}, {"t": [{"n": 2}]}, {"y": "", "t": [{"n": 3}]}]}'
    rows = contents(read("json", ("x", file), rows=["of[].t[]"], enclosing=["y"]))
    assert rows == [{"y": 0, "n": 1}, {"y": 1, "n": 2}, {"y": "", "n": 3}]


# parallel


def test_parallel_lines_make_one_row(read: Read) -> None:
    files = ("in", b"a b\nc\n"), ("out", b"O O\nO\n"), ("label", b"x\ny\n")
    rows = read("parallel", *files, column="tokens", beside={"tags": "out", "label": "label"})
    assert [(row.line, row.content) for row in rows] == [
        (1, {"tokens": "a b", "tags": "O O", "label": "x"}),
        (2, {"tokens": "c", "tags": "O", "label": "y"}),
    ]


@pytest.mark.parametrize("options", [{"beside": {"text": "out"}}, {"column": "a", "beside": {"a": "out"}}])
def test_parallel_files_have_a_field_each(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"beside: '(text|a)' is the field for the file's own lines \(`column`\)"):
        reader("parallel").Options(**options)


def test_parallel_files_of_unequal_length_are_an_error(read: Read) -> None:
    with pytest.raises(UserError, match="got text 2, tags 1"):
        read("parallel", ("in", b"a\nb\n"), ("out", b"O\n"), beside={"tags": "out"})


def test_a_bad_line_of_one_file_rejects_the_row(read: Read) -> None:
    rows = read("parallel", ("in", b"a\nb\n"), ("out", b"O\n\xff\n"), beside={"tags": "out"})
    assert [row.line for row in rows if isinstance(row, RawRow)] == [1]
    assert reasons(rows) == [(2, "wrong encoding")] and rows[1].detail.startswith("out: byte 2")
    (_, bad) = read("parallel", ("in", b"a\nb\xff\n"), ("out", b"O\n\xfe\n"), beside={"tags": "out"})
    assert isinstance(bad, Reject) and (bad.line, bad.raw) == (2, "b\\xff | \\xfe")
    assert bad.detail.startswith("in: byte 3")
