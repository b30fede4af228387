"""Rows of a result on the terminal: for people, or as CSV or JSON for programs."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable
from decimal import Decimal
from itertools import chain, count
from math import isfinite, isnan
from typing import Literal

import pyarrow as pa
from rich.box import SIMPLE
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pipelines.visible import visible

LONG, NARROW = 20, 12  # cells: a column wider than LONG may be wrapped, to NARROW if need be
GAP = 2  # cells between columns


def table(rows: pa.Table, title: str | None = None) -> None:
    """Print rows for people; numbers to the right, with thousands. Only long texts are wrapped, where that is
    enough for the table to fit."""
    console = Console()
    shown = Table(box=SIMPLE, show_edge=False)
    shown.pad_edge, shown.collapse_padding = False, True
    cells = [[_cell(value) for value in column.to_pylist()] for column in rows.columns]
    widths = [max(map(cell_len, [name, *column])) for name, column in zip(rows.column_names, cells, strict=True)]
    fits = sum((width if width <= LONG else NARROW) + GAP for width in widths) - GAP <= console.width
    for field, width in zip(rows.schema, widths, strict=True):
        justify: Literal["left", "right"] = "right" if _is_number(field.type) else "left"
        whole = fits and width <= LONG
        shown.add_column(escape(visible(field.name)), justify=justify, overflow="fold", no_wrap=whole)
    for row in zip(*cells, strict=True):
        shown.add_row(*map(escape, row))
    if title:  # not the table's own, which would be wrapped to its width
        console.print(visible(title), style="bold", markup=False, highlight=False)
    console.print(shown)
    console.print()


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return f"{value:,}"
    return visible(str(value))


def csv_lines(rows: pa.Table) -> None:
    """Comma-separated values with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n" if sys.stdout.isatty() else "\r\n")
    writer.writerow(rows.column_names)
    writer.writerows(_rows(rows))
    write_out(text.getvalue())


def json_array(rows: pa.Table) -> None:
    """An array, one row a line. Of columns that share a name, the second has `_1` behind it, and so on."""
    names: list[str] = []
    for name in rows.column_names:
        numbered = (f"{name}_{number}" for number in count(1))
        names.append(next(one for one in chain([name], numbered) if one not in names))
    lines = (json_line(dict(zip(names, row, strict=True))) for row in _rows(rows))
    write_out("[\n" + ",\n".join(lines) + "\n]\n")


def json_line(row: object) -> str:
    """A row as JSON. What JSON has no number for is a string: NaN, Infinity, and fractions beyond a double."""
    try:
        return json.dumps(row, ensure_ascii=False, default=_as_json, allow_nan=False)
    except ValueError:
        return json.dumps(_without_nan(row), ensure_ascii=False, default=_as_json)


def write_out(text: str) -> None:
    """Write to the standard output; on a terminal without characters that steer it."""
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)


def _rows(rows: pa.Table) -> Iterable[tuple[object, ...]]:
    """By place: columns may share a name."""
    return zip(*(column.to_pylist() for column in rows.columns), strict=True)


def _without_nan(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _as_json(value: object) -> object:
    """What JSON has no word for. A sum of integers comes from SQL as a decimal."""
    if isinstance(value, Decimal):
        if value == int(value):
            return int(value)
        return float(value) if Decimal(repr(float(value))) == value else str(value)
    return value.hex() if isinstance(value, bytes) else str(value)


PRINTERS = {"table": table, "csv": csv_lines, "json": json_array}
