"""Rows of a result on the terminal: for people, or as CSV or JSON for programs."""

from __future__ import annotations

import csv
import json
import sys
from decimal import Decimal
from typing import Literal

import pyarrow as pa
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table


def table(rows: pa.Table, title: str | None = None) -> None:
    """Print rows for people; numbers to the right, with thousands."""
    shown = Table(box=SIMPLE, title=title, title_justify="left")
    for field in rows.schema:
        justify: Literal["left", "right"] = "right" if _is_number(field.type) else "left"
        shown.add_column(field.name, justify=justify, overflow="fold")
    for row in rows.to_pylist():
        shown.add_row(*(escape(_cell(value)) for value in row.values()))
    Console().print(shown)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else str(value)


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
