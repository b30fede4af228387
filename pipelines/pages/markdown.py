"""Format tables as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with a line for each row. A `|` in a cell is escaped, and a line end becomes a space."""
    lines = [columns, ["---"] * len(columns), *rows]
    cells = ([" ".join(cell.replace("|", "\\|").splitlines()) for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)
