"""JSON values one after another: each gives rows, and a broken one is a reject."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.sources import RawRow, Slice, reader
from ubert.schema.record import Reject


def read(folder: Path, content: bytes, **options: Any) -> list[RawRow | Reject]:
    (folder / "x").write_bytes(content)
    form = reader("json_stream")
    return list(form.read(Slice(str(folder), "x", 0, len(content), 1, "utf-8", "0" * 64), form.Options(**options)))


def test_values_are_rows_with_the_lines_on_which_they_begin(tmp_path: Path) -> None:
    rows = read(tmp_path, b'\xef\xbb\xbf{\n "a": 1\n}\n\n{"a": 2}{"a":\r\n3}\n')
    assert rows == [
        RawRow(1, "x#0", {"a": 1}),
        RawRow(5, "x#1", {"a": 2}),
        RawRow(5, "x#2", {"a": 3}),
    ]


def test_a_file_may_begin_with_empty_lines(tmp_path: Path) -> None:
    assert read(tmp_path, b'\n  {"a": 1}\n') == [RawRow(2, "x#0", {"a": 1})]
    assert read(tmp_path, b"\n \n") == []


def test_rows_may_lie_within_the_values(tmp_path: Path) -> None:
    rows = read(tmp_path, b'{"t": 1, "q": [{"n": 1}, {"n": 2}]}\n[]', rows=["q?[]"], enclosing=["t"])
    assert rows == [RawRow(1, "x#0.q.0", {"t": 1, "n": 1}), RawRow(1, "x#0.q.1", {"t": 1, "n": 2})]
    (reject, row) = read(tmp_path, b'{"t": 1}\n{"q": {}}', rows=["q"])
    assert isinstance(reject, Reject) and "no key 'q'" in reject.detail and reject.raw == '{"t": 1}'
    assert row == RawRow(2, "x#1.q", {})


def test_a_broken_value_is_a_reject_and_reading_continues_at_the_next_line_that_begins_one(tmp_path: Path) -> None:
    rows = read(tmp_path, b'{"a": 1}\n{\n "a":\n  {]}\n{"a": 2}\n"b"\n{"a": 3')
    assert [row for row in rows if isinstance(row, RawRow)] == [
        RawRow(1, "x#0", {"a": 1}),
        RawRow(5, "x#2", {"a": 2}),
    ]
    rejects = [row for row in rows if isinstance(row, Reject)]
    assert [(reject.line, reject.reason, reject.raw) for reject in rejects] == [
        (2, "not JSON", '{\n "a":\n  {]}'),
        (6, "wrong type", '"b"'),
        (7, "not JSON", '{"a": 3'),
    ]
    assert rejects[0].detail.startswith("line 4, column 4: ")


def test_deep_nesting_and_other_encodings_are_rejects(tmp_path: Path) -> None:
    (deep, row) = read(tmp_path, b"[" * 100_000 + b'\n{"a": 1}')
    assert isinstance(deep, Reject) and "too deeply" in deep.detail and isinstance(row, RawRow)
    (reject,) = read(tmp_path, b'{"a": "\xe9"}')
    assert isinstance(reject, Reject) and reject.reason == "wrong encoding"


def test_line_ends_in_strings_are_read_where_the_spec_says_so(tmp_path: Path) -> None:
    content = b'{"a": "b\nc\td"}'
    assert [type(row) for row in read(tmp_path, content)] == [Reject]
    assert read(tmp_path, content, control_characters=True) == [RawRow(1, "x#0", {"a": "b\nc\td"})]


VALUES = st.dictionaries(st.text(max_size=3), st.text('a{}[]\\"\n ', max_size=6) | st.integers(), max_size=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(VALUES, max_size=5), indent=st.sampled_from([None, 1]), between=st.sampled_from(["", "\n\n"])
)
def test_what_was_written_is_read(
    tmp_path: Path, values: list[dict[str, Any]], indent: int | None, between: str
) -> None:
    content = between.join(json.dumps(value, indent=indent) for value in values)
    rows = read(tmp_path, content.encode())
    assert [row.content for row in rows if isinstance(row, RawRow)] == values and len(rows) == len(values)
