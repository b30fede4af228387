"""The matrices of `ubert affinity`, as the rows of a table whose cells have colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Cell(NamedTuple):
    """How a validation loss changes: `change` relative to itself, None where nothing was measured; `strength` of
    the colour, in percent of the matrix's largest change; `seeds` that `change` is the mean of."""

    change: float | None
    strength: int
    seeds: int


class Matrix(NamedTuple):
    """A row of cells for each corpus, and a column for each source that was added to it."""

    added: list[str]
    rows: dict[str, list[Cell]]


def matrices(rows: Sequence[dict[str, Any]]) -> dict[str, Matrix]:
    """The matrix of each mixture. Columns that help one another are neighbours, as the rows come by cluster."""
    found: dict[str, Matrix] = {}
    for name in dict.fromkeys(row["mixture"] for row in rows):
        mine = {(row["corpus"], row["added"]): row for row in rows if row["mixture"] == name}
        most = max(abs(row["change"]) for row in mine.values()) or 1.0
        added = list(dict.fromkeys(source for _, source in mine))
        corpora = sorted({corpus for corpus, _ in mine})
        cells = {
            at: Cell(row["change"], round(100 * abs(row["change"]) / most), row["seeds"])
            for at, row in mine.items()
        }
        none = Cell(None, 0, 0)
        found[name] = Matrix(added, {one: [cells.get((one, source), none) for source in added] for one in corpora})
    return found
