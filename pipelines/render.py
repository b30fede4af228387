"""Rows of a result on the terminal: for people, or as CSV or JSON for programs."""

from __future__ import annotations

import csv
import json
import sys
from decimal import Decimal
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
        shown.add_column(escape(field.name), justify=justify, overflow="fold", no_wrap=whole)
    for row in zip(*cells, strict=True):
        shown.add_row(*map(escape, row))
    if title:  # not the table's own, which would be wrapped to its width
        console.print(title, style="bold", markup=False, highlight=False)
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
    writer = csv.writer(sys.stdout)
    writer.writerow(rows.column_names)
    writer.writerows(row.values() for row in rows.to_pylist())


def json_array(rows: pa.Table) -> None:
    """An array, one row a line."""
    lines = (json.dumps(row, ensure_ascii=False, default=_as_json) for row in rows.to_pylist())
    print("[\n" + ",\n".join(lines) + "\n]")


def _as_json(value: object) -> object:
    """What JSON has no word for. A sum of integers comes from SQL as a decimal."""
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    return value.hex() if isinstance(value, bytes) else str(value)


PRINTERS = {"table": table, "csv": csv_lines, "json": json_array}
