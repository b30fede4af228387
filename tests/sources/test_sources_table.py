"""Tables whose rows consist of several lines, or whose file names are labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.sources import Quoted, RawRow, Slice
from pipelines.sources.data_formats.table import Options, read, split_at
from ubert.schema.errors import UserError
from ubert.schema.record import Reject


def rows(folder: Path, content: bytes, **options: Any) -> list[RawRow | Reject]:
    (folder / "x").write_bytes(content)
    return list(read(Slice(str(folder), "x", 0, len(content), 1, "utf-8", "0" * 64), Options(**options)))


def test_lines_of_equal_columns_are_one_row_wherever_they_are(tmp_path: Path) -> None:
    content = b"1|a b|a\n2|c|c\nbad\n1|a b|b\n2|a b|a\n"
    found = rows(tmp_path, content, separator="|", columns=["id", "text", "word"], group=["id", "text"])
    assert [(row.line, row.content) for row in found if isinstance(row, RawRow)] == [
        (1, {"id": "1", "text": "a b", "rows": [{"word": "a"}, {"word": "b"}]}),
        (2, {"id": "2", "text": "c", "rows": [{"word": "c"}]}),
        (5, {"id": "2", "text": "a b", "rows": [{"word": "a"}]}),
    ]
    assert [(row.line, row.reason) for row in found if isinstance(row, Reject)] == [(3, "wrong column count")]


def test_a_file_whose_lines_are_gathered_is_not_cut() -> None:
    assert split_at(Options(columns=["a", "b"])) == "line"
    assert split_at(Options(columns=["a", "b"], group=["a"])) is None
    assert split_at(Options(columns=["a", "b"], only=(0, 5))) is None
    assert split_at(Options(columns=["a", "b"], skip=1)) is None


def test_rows_part_a_file_without_overlap(tmp_path: Path) -> None:
    parts = [rows(tmp_path, b"a\nb\nc\nd\n", columns=["text"], only=part) for part in ((0, 1), (1, 3), (3, 9))]
    assert [[row.line for row in part] for part in parts] == [[1], [2, 3], [4]]
    for wrong in ((2, 2), (3, 1), (-1, 2)):
        with pytest.raises(ValueError, match="only"):
            Options(columns=["text"], only=wrong)


@pytest.mark.parametrize("quoting", ["csv", "none"])
def test_lines_before_the_table_are_skipped(quoting: str, tmp_path: Path) -> None:
    content = b'\xef\xbb\xbfsep=;\r\n"of May\r\ntext;mark\r\nfine;1\r\nbad;2\r\n'
    found = rows(tmp_path, content, separator=";", quoting=quoting, header=True, skip=2)
    assert [(row.line, row.content) for row in found if isinstance(row, RawRow)] == [
        (4, {"text": "fine", "mark": "1"}),
        (5, {"text": "bad", "mark": "2"}),
    ]
    with pytest.raises(UserError, match="line 3 names a column twice"):
        rows(tmp_path, b"\n\na;a\n1;2\n", separator=";", quoting=quoting, header=True, skip=2)
    with pytest.raises(UserError, match="line 2 is blank, expected the header"):
        rows(tmp_path, b"sep=;\n\na;b\n1;2\n", separator=";", quoting=quoting, header=True, skip=1)


def test_a_file_name_may_be_a_label(tmp_path: Path) -> None:
    found = rows(tmp_path, b"a\nb\n", columns=["text"], constants={"label": "good"})
    assert [row.content for row in found if isinstance(row, RawRow)] == [
        {"text": "a", "label": "good"},
        {"text": "b", "label": "good"},
    ]


def test_columns_that_the_file_lacks_or_has_already_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no column 'c', which `group` names; correct"):
        rows(tmp_path, b"a\tb\n1\t2\n", header=True, group=["c"])
    with pytest.raises(UserError, match="line 1 names a column twice"):
        rows(tmp_path, b"a\tb\n1\t2\n", header=True, constants={"b": "x"})
    with pytest.raises(ValueError, match=r"column .* is named twice"):
        Options(columns=["a"], constants={"a": "x"})


@pytest.mark.parametrize(
    "options",
    [
        {"columns": ["a"], "optional_columns": ["a"]},
        {"columns": ["a"], "optional_columns": ["b"], "constants": {"b": "x"}},
        {"header": True, "rest": True},
        {"columns": ["a", "b"], "rest": True, "quoting": "csv"},
        {"columns": ["a"], "rest": True, "optional_columns": ["b"]},
        {"columns": ["a", "b"], "group": ["a", "a"]},
    ],
)
def test_options_that_do_not_agree(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"column .* is named twice|`rest` needs `columns`"):
        Options(**options)


def test_lines_are_grouped_by_what_every_row_has(tmp_path: Path) -> None:
    options = {"columns": ["id", "word"], "constants": {"label": "l"}, "group": ["label", "id"]}
    assert rows(tmp_path, b"a\tx\na\ty\n", **options) == [
        RawRow(1, "x:1", {"label": "l", "id": "a", "rows": [{"word": "x"}, {"word": "y"}]})
    ]
    with pytest.raises(UserError, match="no column 'c', which `group` names; correct"):
        rows(tmp_path, b"a\tx\n", columns=["id"], optional_columns=["c"], group=["c"])


def test_a_table_is_not_grouped_by_a_column_named_rows(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="group: a column 'rows' would be replaced by the list `rows`"):
        Options(header=True, group=["id", "rows"])
    assert rows(tmp_path, b"a\tx\n", columns=["id", "rows"], group=["id"]) == [
        RawRow(1, "x:1", {"id": "a", "rows": [{"rows": "x"}]})
    ]


def test_a_file_with_quotes_is_cut_where_its_separator_is_no_part_of_a_character() -> None:
    """In gb18030, bytes from `@` on may be the second of a character."""
    found = {sign: split_at(Options(columns=["a"], quoting="csv", separator=sign)) for sign in "\t,;?@|"}
    assert found == {**{sign: Quoted(sign) for sign in "\t,;?"}, "@": None, "|": None}
