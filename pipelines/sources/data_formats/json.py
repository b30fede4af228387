"""JSON files with rows in lists or under keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from pipelines.mapping.fields import as_label
from pipelines.mapping.refused import as_json
from pipelines.sources import Example, FormatOptions, RawRow, Slice, sibling
from pipelines.sources.parsing.rows import JsonOptions, rows_of
from pipelines.sources.parsing.text import json_value
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
    """Yield a row for each item at the paths `rows`. A file that is not JSON is one reject.

    Raises:
        UserError: a path doesn't exist in the file, or a file that lists rows can't be read or is neither an
            object nor a list.
    """
    whole = json_value(piece, strict=not options.control_characters)
    if isinstance(whole, Reject):
        yield whole
        return
    rows = rows_of(piece, whole, options)
    for listed, wanted in ((options.only, True), (options.without, False)):
        if listed is not None:
            rows = _chosen(piece.path, rows, listed.key, _names(piece, listed.file), wanted)
    yield from rows


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
