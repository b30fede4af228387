"""Tables of text: CSV, TSV and "label text" lines."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from pipelines.sources import Cut, Example, FormatOptions, Quoted, RawRow, Slice, check_distinct
from pipelines.sources.parsing.csv import Stray, records
from pipelines.sources.parsing.row_range import RowRange, in_range
from pipelines.sources.parsing.text import lines, text
from ubert.schema.errors import UserError
from ubert.schema.record import Reject


class Options(FormatOptions):
    """Columns of a table."""

    separator: str = Field(default="\t", min_length=1)
    """What separates columns; default: a tab. With `quoting: csv` it is one character."""
    skip: int = Field(default=0, ge=0, le=1000)
    """The number of lines to skip at the beginning of the file, such as the line `sep=;` of Excel."""
    header: bool = False
    """The first line names the columns."""
    columns: list[str] | None = Field(default=None, min_length=1)
    """The names of the columns, if the first line doesn't name them or you want others."""
    optional_columns: list[str] = Field(default_factory=list)
    """More columns at the end. A row has all of them or none."""
    quoting: Literal["csv", "none"] = "none"
    """csv: fields may be quoted, and quoted fields may contain separators and line ends. A line with an unclosed
    quote is rejected. none: a quote is a character like any other."""
    rest: bool = False
    """The last column takes the rest of the line, including separators."""
    constants: dict[str, str] = Field(default_factory=dict)
    """More fields, with the same value in every row of the file, such as the label of all its rows."""
    group: list[str] | None = Field(default=None, min_length=1)
    """Join lines that are equal in these columns into one row, with a list `rows` of their other fields."""
    only: RowRange | None = None
    """Take the rows from this number, up to but not including that one, counted from 0. One file can thus serve
    several splits."""

    @model_validator(mode="after")
    def _agree(self) -> Options:
        if self.columns is None and not self.header:
            raise ValueError("expected `columns`, or `header: true` where the first line names them")
        check_distinct([*(self.columns or []), *self.optional_columns, *self.constants])
        if self.rest and (self.columns is None or self.quoting == "csv" or self.optional_columns):
            raise ValueError(
                "`rest` needs `columns`, and can't be combined with `quoting: csv` or `optional_columns`"
            )
        if self.quoting == "csv" and len(self.separator) > 1:
            raise ValueError(f"separator: expected one character with `quoting: csv`, got {self.separator!r}")
        check_distinct(self.group or [])
        if "rows" in (self.group or []):
            raise ValueError("group: a column 'rows' would be replaced by the list `rows`; rename it in `columns`")
        return self


EXAMPLE = Example(
    {"reviews.csv": 'id,text,stars\n1,"It fell apart, at once.",1\n2,Fine.,5\n'},
    {"separator": ",", "quoting": "csv", "header": True},
)


def split_at(options: Options) -> Cut:
    """Return where records end. A file isn't cut if `group`, `only` or `skip` needs all of its lines."""
    if options.group is not None or options.only is not None or options.skip:
        return None
    if options.quoting == "none":
        return "line"
    return Quoted(options.separator) if options.separator < "@" else None  # else maybe a byte of another character


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """Yield a row for each line that isn't blank, each CSV record or each group of lines, with fields by column.

    Raises:
        UserError: the header is blank, has a column twice or lacks a column of `group`, or the header or a file
            with quotes cannot be decoded.
    """
    rows = _by_column(piece, options)
    rows = rows if options.group is None else _grouped(rows, options.group)
    return in_range(rows, options.only)


def _grouped(rows: Iterator[RawRow | Reject], group: list[str]) -> Iterator[RawRow | Reject]:
    found: dict[tuple[str, ...], RawRow] = {}
    for row in rows:
        if isinstance(row, Reject):
            yield row
            continue
        shared = {name: row.content.pop(name) for name in group}
        first = found.setdefault(tuple(shared.values()), RawRow(row.line, row.locator, {**shared, "rows": []}))
        first.content["rows"].append(row.content)
    yield from found.values()


def _by_column(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    rows = _by_line(piece, options)
    header = _header(piece, options, rows) if options.header else []
    columns = options.columns or header
    if not columns:
        return
    every = [*columns, *options.optional_columns]
    names = [*every, *options.constants]
    if len(set(names)) != len(names):
        raise UserError(
            f"{piece.place}: line {options.skip + 1} names a column twice; name them in `columns` of the spec"
        )
    absent = [name for name in options.group or [] if name not in [*columns, *options.constants]]
    if absent:
        raise UserError(
            f"{piece.place}: no column {absent[0]!r}, which `group` names; correct `group` in the spec's options"
        )
    for row in rows:
        if isinstance(row, Reject):
            yield row
            continue
        number, fields, raw = row
        if len(fields) in (len(columns), len(every)):
            content = {**dict(zip(every, fields, strict=False)), **options.constants}
            yield RawRow(number, f"{piece.path}:{number}", content)
        else:
            expected = f"{len(columns)} or {len(every)}" if options.optional_columns else len(columns)
            detail = f"expected {expected} columns, got {len(fields)}"
            yield Reject(piece.path, number, "wrong column count", detail, raw)


Row = tuple[int, list[str], str]  # line number, fields, raw text


def _by_line(piece: Slice, options: Options) -> Iterator[Row | Reject]:
    return _quoted(piece, options) if options.quoting == "csv" else _plain(piece, options)


def _plain(piece: Slice, options: Options) -> Iterator[Row | Reject]:
    most = len(options.columns) - 1 if options.rest and options.columns else -1
    for number, line in enumerate(lines(piece), piece.line):
        if number <= options.skip:
            continue
        if isinstance(line, Reject):
            yield line
        elif line:
            yield number, line.split(options.separator, most), line


def _quoted(piece: Slice, options: Options) -> Iterator[Row | Reject]:
    file, number = io.StringIO(text(piece), newline=""), piece.line
    while number <= options.skip and file.readline():
        number += 1
    for of_record, found in records(file, options.separator):
        if isinstance(found, Stray):
            over = f"a quote is opened; line {number + found.lines}: " if found.lines else ""
            yield Reject(piece.path, number, "not CSV", over + found.reason, of_record[0])
        elif found:
            yield number, found, "".join(of_record)
        number += len(of_record)


def _header(piece: Slice, options: Options, rows: Iterator[Row | Reject]) -> list[str]:
    """Return the fields of the first line that isn't skipped, from `rows` if these begin with it. An empty file
    has none."""
    if piece.start > 0:
        with piece.place.open("rb") as file:
            stop = len(file.readline(1 << 20))
        first_line = Slice(piece.folder, piece.path, 0, stop, 1, piece.encoding, piece.sha)
        rows = _by_line(first_line, options)
    first = next(rows, None)
    if first is None and not piece.place.stat().st_size:
        return []
    if isinstance(first, Reject):
        cure = "; in a large file the header must be one line" if piece.start > 0 else ""
        raise UserError(f"{piece.place}: line {first.line}, the header: {first.detail}{cure}")
    if first is None or first[0] != options.skip + 1:
        raise UserError(f"{piece.place}: line {options.skip + 1} is blank, expected the header")
    return first[1]
