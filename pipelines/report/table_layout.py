"""Lay out a table as lines of text that fit a terminal.

Numbers, short values and names are never cut. Texts that are too long end in an ellipsis. A column that still does
not fit is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa
from rich.cells import cell_len, set_cell_size

from pipelines.report.visible import visible

GAP = 2  # cells of the terminal between two columns
SHORT = 20  # a column of at most this number of cells is never cut, and longer texts keep at least as many
_ONE_LINE = str.maketrans({"\n": "␊", "\t": "␉"})


@dataclass(slots=True, frozen=True)
class Column:
    """The head and the cells of a column, each a line of text. `full` is its full width, and `least` the smallest
    width to which it can be cut."""

    head: str
    cells: list[str]
    right: bool
    full: int
    least: int


class Layout(NamedTuple):
    """The lines of a table, the head first, and the names of columns that were left out."""

    lines: list[str]
    left_out: list[str]


def layout(
    rows: pa.Table, width: int | None, formats: Mapping[str, str] | None = None, optional: Collection[str] = ()
) -> Layout:
    """Lay out rows in `width` terminal cells, or at full width if it is None.

    Args:
        formats: number formats by column (`{"share": ".1%"}`); default: with thousands separators, except
            for unsigned 64-bit integers, which are keys and hashes.
        optional: columns that are left out before any other. Otherwise the last columns are left out first.
    """
    columns = [
        _column(field, values.to_pylist(), _form(field, formats or {}), width, first=place == 0)
        for place, (field, values) in enumerate(zip(rows.schema, rows.columns, strict=True))
    ]
    widths = (
        dict(enumerate(column.full for column in columns)) if width is None else _widths(columns, optional, width)
    )
    shown = [(column, widths[place]) for place, column in enumerate(columns) if place in widths]
    lines = [
        (" " * GAP).join(
            _padded(text, cells, column.right) for (column, cells), text in zip(shown, row, strict=True)
        )
        for row in zip(*([column.head, *column.cells] for column, _ in shown), strict=True)
    ]
    lines.insert(1, "─" * (sum(widths.values()) + GAP * (len(widths) - 1)))
    left_out = [column.head for place, column in enumerate(columns) if place not in widths]
    return Layout([line.rstrip() for line in lines], left_out)


def _form(field: pa.Field, formats: Mapping[str, str]) -> str:
    """Return the number format of a column. Keys and hashes are unsigned 64-bit integers, and are no amounts."""
    return formats.get(field.name, "" if pa.types.is_uint64(field.type) else ",")


def _column(field: pa.Field, values: Sequence[object], form: str, width: int | None, *, first: bool) -> Column:
    head, cells = _text(field.name), [_cell(value, form) for value in values]
    full = max(map(cell_len, [head, *cells]))
    kind = field.type
    number = bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
    if width is None or number or full <= SHORT:
        least = full
    elif any(" " in cell for cell in cells):
        least = max(SHORT, cell_len(head))
    else:  # names are cut only if they would leave no space for other columns
        longest = width if first else width // 2
        least = full if full <= longest else max(SHORT, cell_len(head))
    return Column(head, cells, number, full, least if width is None else min(least, width))


def _widths(columns: Sequence[Column], optional: Collection[str], width: int) -> dict[int, int]:
    """Return the width of each column that is shown, by its index. A narrow column is shown even if one before it
    does not fit."""
    widths: dict[int, int] = {}
    left = width + GAP
    for place in sorted(range(len(columns)), key=lambda place: place > 0 and columns[place].head in optional):
        if columns[place].least + GAP <= left:
            widths[place] = columns[place].least
            left -= columns[place].least + GAP
    cut = {place: columns[place].full - cells for place, cells in widths.items()}
    for sharing, place in enumerate(sorted(cut, key=lambda place: cut[place])):  # share free cells equally
        more = min(cut[place], left // (len(cut) - sharing))
        widths[place] += more
        left -= more
    return widths


def _padded(text: str, cells: int, right: bool) -> str:
    if cell_len(text) > cells:
        text = set_cell_size(text, cells - 1).rstrip() + "…"
    space = " " * (cells - cell_len(text))
    return space + text if right else text + space


def _cell(value: object, form: str) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return format(value, form)
    return _text(str(value))


def _text(text: str) -> str:
    return visible(text).translate(_ONE_LINE)
