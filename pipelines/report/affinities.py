"""Arrange the results of `ubert affinity` as a table of coloured cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Cell(NamedTuple):
    """The change of a validation loss.

    `change` is relative to the loss, averaged over `seeds` seeds; None if it wasn't measured. `strength` is the
    strength of the colour, in percent of the matrix's largest change.
    """

    change: float | None
    strength: int
    seeds: int


class Matrix(NamedTuple):
    """A row of cells for each corpus, and a column for each source that was added to it. `groups` are clusters of
    sources that help one another."""

    added: list[str]
    rows: dict[str, list[Cell]]
    groups: list[list[str]]


def matrices(rows: Sequence[dict[str, Any]]) -> dict[str, Matrix]:
    """Return the matrix of each mixture. Sources of a cluster are neighbours, as `rows` are sorted by cluster, and
    corpora have the order of their sources."""
    found: dict[str, Matrix] = {}
    for name in dict.fromkeys(row["mixture"] for row in rows):
        mine = {(row["corpus"], row["added"]): row for row in rows if row["mixture"] == name}
        groups: dict[int, list[str]] = {}
        for source, number in dict.fromkeys((row["added"], row["cluster"]) for row in mine.values()):
            groups.setdefault(number, []).append(source)
        most = max(abs(row["change"]) for row in mine.values()) or 1.0
        added = [source for group in groups.values() for source in group]
        order = [source.partition("/")[0] for source in added]
        measured = sorted({corpus for corpus, _ in mine})
        corpora = sorted(measured, key=lambda one: order.index(one) if one in order else len(order))
        cells = {
            at: Cell(row["change"], round(100 * abs(row["change"]) / most), row["seeds"])
            for at, row in mine.items()
        }
        none = Cell(None, 0, 0)
        of_corpora = {one: [cells.get((one, source), none) for source in added] for one in corpora}
        found[name] = Matrix(added, of_corpora, [*groups.values()])
    return found
