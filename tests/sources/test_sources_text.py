"""Plain text: blocks of lines, and running text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sources import RawRow, Slice, reader
from ubert.schema.record import Reject


def read(
    folder: Path, name: str, content: bytes, encoding: str = "utf-8", **options: Any
) -> list[RawRow | Reject]:
    (folder / "x").write_bytes(content)
    form = reader(name)
    piece = Slice(str(folder), "x", 0, len(content), 1, encoding, "0" * 64)
    return list(form.read(piece, form.Options(**options)))


def texts(rows: list[RawRow | Reject]) -> list[tuple[int, str]]:
    assert not [row for row in rows if isinstance(row, Reject)]
    return [(row.line, row.content["text"]) for row in rows if isinstance(row, RawRow)]


QUESTIONS = b"\n\nb\nWhich?\nA.A.x\nB.y\r\n \na\nWho?\nA.\nD.y"


def test_a_line_of_a_block_is_a_field(tmp_path: Path) -> None:
    columns = ["answer", "question", "a", "b"]
    rows = read(tmp_path, "blocks", QUESTIONS, columns=columns, marks={"a": "A.", "b": "B."})
    assert [(row.line, row.locator, row.content) for row in rows if isinstance(row, RawRow)] == [
        (3, "x:3", {"answer": "b", "question": "Which?", "a": "A.x", "b": "y"}),
        (8, "x:8", {"answer": "a", "question": "Who?", "a": "", "b": "D.y"}),
    ]


def test_a_bad_block_is_a_reject_and_the_rest_is_read(tmp_path: Path) -> None:
    rows = read(tmp_path, "blocks", b"a\nb\nc\n\na\n\xff\n\na\nb\n", columns=["one", "two"])
    rejects = [row for row in rows if isinstance(row, Reject)]
    assert [(reject.line, reject.reason, reject.raw) for reject in rejects] == [
        (1, "wrong number of lines", "a\nb\nc"),
        (5, "wrong encoding", "a\n\\xff"),
    ]
    assert rejects[0].detail == "expected 2 lines, got 3" and rejects[1].detail.startswith("line 6: byte 9 ")
    assert [row.content for row in rows if isinstance(row, RawRow)] == [{"one": "a", "two": "b"}]


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("blocks", {"columns": ["a", "a"]}, "named twice"),
        ("blocks", {"columns": ["a"], "marks": {"b": "B."}}, "marks: b is not among"),
        ("text", {"record": "section"}, "need each other"),
        ("text", {"headings": ["X*"]}, "need each other"),
        ("text", {"record": "line", "unwrap": True}, "has no effect"),
    ],
)
def test_options_that_do_not_agree(name: str, options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        reader(name).Options(**options)


BOOK = b"""A book


CHAPTER I

It was late and
CHAPTER II was not near,
   a song
   of two lines

 CHAPTER II\x20

The end.
"""


def test_a_file_may_be_a_record(tmp_path: Path) -> None:
    assert texts(read(tmp_path, "text", BOOK)) == [(1, BOOK.decode().rstrip("\n"))]
    assert texts(read(tmp_path, "text", b"\n \n")) == []


def test_a_section_begins_at_a_heading_that_stands_alone(tmp_path: Path) -> None:
    rows = texts(read(tmp_path, "text", BOOK, record="section", headings=["CHAPTER *"]))
    assert [(line, text.split("\n")[0].strip()) for line, text in rows] == [
        (1, "A book"),
        (4, "CHAPTER I"),
        (11, "CHAPTER II"),
    ]
    assert rows[1][1].endswith("not near,\n   a song\n   of two lines")


@pytest.mark.parametrize(
    ("content", "begin"),
    [
        (b"a\n\n# b\nc\n", [1]),
        (b"a\n# b\n\nc\n", [1]),
        (b"\na\n\n# b\n \nc\n\n= d", [2, 4, 8]),
    ],
)
def test_a_heading_of_any_pattern_has_blank_lines_on_both_sides(
    tmp_path: Path, content: bytes, begin: list[int]
) -> None:
    rows = texts(read(tmp_path, "text", content, record="section", headings=["# *", "= *"]))
    assert [line for line, _ in rows] == begin


def test_lines_are_joined_to_paragraphs_but_for_verse(tmp_path: Path) -> None:
    rows = texts(read(tmp_path, "text", BOOK, record="paragraph", unwrap=True))
    assert rows[2] == (6, "It was late and CHAPTER II was not near,\n   a song\n   of two lines")
    assert texts(read(tmp_path, "text", b"a  \nb\n\nc", unwrap=True)) == [(1, "a b\n\nc")]


def test_a_line_may_be_a_record(tmp_path: Path) -> None:
    assert texts(read(tmp_path, "text", b"a\n\n b \r\n", record="line")) == [(1, "a"), (3, " b ")]


@pytest.mark.parametrize(("record", "lost"), [("file", 1), ("paragraph", 1), ("line", 1)])
def test_text_of_another_encoding_is_a_reject(tmp_path: Path, record: str, lost: int) -> None:
    rows = read(tmp_path, "text", b"a\n\nb\xff\nc", record=record)
    (reject,) = (row for row in rows if isinstance(row, Reject))
    assert reject.reason == "wrong encoding" and "byte 4" in reject.detail
    assert len(rows) == {"file": 1, "paragraph": 2, "line": 3}[record]


@given(
    lines=st.lists(st.sampled_from(["", " ", "a b", "  c", "# d"]), max_size=12),
    record=st.sampled_from(["file", "section", "paragraph", "line"]),
    unwrap=st.booleans(),
)
def test_every_word_is_in_one_record(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], record: str, unwrap: bool
) -> None:
    content = "\n".join(lines)
    options = {"headings": ["# *"]} if record == "section" else {}
    rows = read(
        tmp_path_factory.mktemp("text"),
        "text",
        content.encode(),
        record=record,
        unwrap=unwrap and record != "line",
        **options,
    )
    assert " ".join(text for _, text in texts(rows)).split() == content.split()
    assert len({row.locator for row in rows if isinstance(row, RawRow)}) == len(rows)


def test_rows_of_a_file_may_have_fields_that_are_the_same(tmp_path: Path) -> None:
    rows = read(tmp_path, "text", b"a\n\nb\n", record="paragraph", constants={"label": "glad"})
    found = [row.content for row in rows if isinstance(row, RawRow)]
    assert found == [{"text": "a", "label": "glad"}, {"text": "b", "label": "glad"}]
    with pytest.raises(ValueError, match="constants: `text` is the field of the text"):
        reader("text").Options(constants={"text": "x"})
