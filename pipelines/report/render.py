"""Print the rows of a result as a table for people, or as CSV or JSON for programs."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from itertools import chain, count
from math import isfinite, isnan
from typing import Any

import pyarrow as pa
from rich.console import Console

from pipelines.report.table_layout import layout
from pipelines.report.visible import visible


def show(
    tables: pa.Table | Mapping[str, pa.Table],
    *,
    as_json: bool,
    wide: bool,
    formats: Mapping[str, str] | None = None,
    optional: Collection[str] = (),
) -> None:
    """Print one table, or several by title, for people or as JSON (an array, or an object of arrays).

    Args:
        wide: show all columns and full texts, however wide the terminal is.
        formats: number formats by column (`{"share": ".1%"}`); default: with thousands separators.
        optional: columns that a narrow table omits before others.
    """
    if as_json:
        write_out(_array(tables) if isinstance(tables, pa.Table) else _arrays(tables))
        return
    for title, rows in {None: tables}.items() if isinstance(tables, pa.Table) else tables.items():
        table(rows, title, wide=wide, formats=formats, optional=optional)


def table(
    rows: pa.Table,
    title: str | None = None,
    *,
    wide: bool = False,
    formats: Mapping[str, str] | None = None,
    optional: Collection[str] = (),
) -> None:
    """Print rows for people. A table fits the terminal; a pipe or file gets all columns and texts in full."""
    console = Console(soft_wrap=True, markup=False, highlight=False)
    width = None if wide or not sys.stdout.isatty() else console.width
    (head, *body), left_out = layout(rows, width, formats, optional)
    if title:
        console.print(visible(title), style="bold")
    console.print(head, style="bold")
    sys.stdout.writelines(f"{line}\n" for line in body)
    if left_out:
        more = f"{len(left_out)} more column{'s' * (len(left_out) > 1)}"
        console.print(f"--wide shows {more}: {', '.join(left_out)}", style="dim")
    console.print()


def csv_lines(rows: pa.Table) -> None:
    """Print comma-separated values with a header. Lists and structs are JSON, and bytes hexadecimal."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n" if sys.stdout.isatty() else "\r\n")
    writer.writerow(rows.column_names)
    writer.writerows([_csv_value(value) for value in row] for row in _rows(rows))
    write_out(text.getvalue())


def _csv_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return json_line(value) if isinstance(value, list | dict) else value


def _arrays(tables: Mapping[str, pa.Table]) -> str:
    members = (f"{json_line(title)}: {_array(rows).rstrip()}" for title, rows in tables.items())
    return "{\n" + ",\n".join(members) + "\n}\n"


def _array(rows: pa.Table) -> str:
    """Format rows as a JSON array. If columns share a name, the second gets the suffix `_1`, and so on."""
    names: list[str] = []
    for name in rows.column_names:
        numbered = (f"{name}_{number}" for number in count(1))
        names.append(next(one for one in chain([name], numbered) if one not in names))
    return json_array(dict(zip(names, row, strict=True)) for row in _rows(rows))


def json_array(rows: Iterable[object]) -> str:
    """Format rows as a JSON array, with one row on each line."""
    return "[\n" + ",\n".join(map(json_line, rows)) + "\n]\n"


def json_line(row: object) -> str:
    """Format a row as JSON. Numbers that JSON lacks become strings: NaN, Infinity, decimals beyond a double."""
    try:
        return json.dumps(row, ensure_ascii=False, default=_as_json, allow_nan=False)
    except ValueError:
        return json.dumps(_without_nan(row), ensure_ascii=False, default=_as_json)


def write_out(text: str) -> None:
    """Write to the standard output. Control characters are replaced on a terminal."""
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)


def _rows(rows: pa.Table) -> Iterable[tuple[object, ...]]:
    """Yield rows as tuples, because columns may share a name."""
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
    """Convert values that JSON lacks. SQL returns a sum of integers as a decimal."""
    if isinstance(value, Decimal):
        if value == int(value):
            return int(value)
        return float(value) if Decimal(repr(float(value))) == value else str(value)
    return value.hex() if isinstance(value, bytes) else str(value)
