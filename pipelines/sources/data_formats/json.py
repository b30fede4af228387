"""JSON files with rows in lists or under keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from pipelines.mapping.fields import as_label
from pipelines.mapping.refused import as_json
from pipelines.sources import Example, FormatOptions, RawRow, Slice, sibling
from pipelines.sources.parsing.rows import JsonOptions, rows_of
from pipelines.sources.parsing.text import all_as_json, json_value, repeated
from ubert.schema.errors import UserError
from ubert.schema.record import Reject


class Listed(FormatOptions):
    """Rows whose field `key` is among the keys of the object, or the items of the list, in a JSON file."""

    key: str
    """The field of a row."""
    file: str = Field(alias="in", pattern=r"^[^/\\]+$")
    """The JSON file, in the same folder."""


class Options(JsonOptions):
    """Rows of a JSON file."""

    by_column: bool = False
    """The file is an object with the values of each column, in a list or by row, as pandas writes it."""
    only: Listed | None = None
    """Take only rows that another file lists. One file can thus serve several splits."""
    without: Listed | None = Field(default=None, alias="except")
    """Take only rows that another file doesn't list."""


EXAMPLE = Example(
    {"letters.json": '{"12": {"year": 1840, "letters": [{"text": "Dear Charles"},\n  {"text": "Dear Ada"}]}}\n'},
    {"rows": ["{page}.letters[]"], "enclosing": ["year"]},
)


def companions(folder: Path, path: str, options: Options) -> list[str]:
    """Return the files that list rows."""
    return sorted({sibling(path, listed.file) for listed in (options.only, options.without) if listed})


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """Yield a row for each item at the paths `rows`. A file that is not JSON, or whose columns have different
    rows, is one reject.

    Raises:
        UserError: a path doesn't exist in the file, or a file that lists rows can't be read or is neither an
            object nor a list.
    """
    whole = json_value(piece, strict=not options.control_characters)
    if isinstance(whole, Reject):
        yield whole
        return
    if options.by_column:
        whole = _transposed(piece.path, whole)
        if isinstance(whole, Reject):
            yield whole
            return
    rows = rows_of(piece, whole, options)
    for listed, wanted in ((options.only, True), (options.without, False)):
        if listed is not None:
            rows = _chosen(piece.path, rows, listed.key, _names(piece, listed.file), wanted)
    yield from rows


def _transposed(path: str, columns: Any) -> list[dict[str, Any]] | Reject:
    """Turn an object of columns into a list of rows."""
    if problem := repeated(columns):
        return Reject(path, 1, "repeated key", problem, all_as_json(columns))
    listed = isinstance(columns, dict) and all(isinstance(column, list | dict) for column in columns.values())
    keys = [range(len(one)) if isinstance(one, list) else one.keys() for one in columns.values()] if listed else []
    if not keys or any({*of_column} != {*keys[0]} for of_column in keys):
        detail = "expected an object with the same rows for each column"
        return Reject(path, 1, "wrong type", detail, as_json(columns))
    return [{name: column[key] for name, column in columns.items()} for key in keys[0]]


def _chosen(
    path: str, rows: Iterator[RawRow | Reject], key: str, names: set[str], wanted: bool
) -> Iterator[RawRow | Reject]:
    for row in rows:
        if isinstance(row, RawRow) and key not in row.content:
            # If it counted as not listed, a row of the test split could get into training.
            detail = f"{row.locator.removeprefix(path)}: no field {key!r}, by which rows are listed"
            yield Reject(path, row.line, "missing field", detail, as_json(row.content))
        elif isinstance(row, Reject) or (as_label(row.content[key]) in names) == wanted:
            yield row


def _names(piece: Slice, name: str) -> set[str]:
    path = sibling(piece.path, name)
    found = json_value(piece.whole(path))
    if isinstance(found, Reject):
        raise UserError(f"{piece.folder}/{path}: {found.detail}")
    if not isinstance(found, dict | list):
        raise UserError(f"{piece.folder}/{path}: expected an object whose keys, or a list whose items, name rows")
    return {as_label(item) for item in found}
