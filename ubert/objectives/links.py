"""Links between mentions. A link has two cells: from first token to first token, and from last to last
(UBERT, section 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import starmap
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ubert.encoder.ragged import Ids, Longs
from ubert.objectives import Cells

Flags = npt.NDArray[np.bool_]


class Linked(NamedTuple):
    """A link between two of the given mentions, and the lower score of its two cells."""

    head: int
    tail: int
    score: float


def links(
    cells: Cells,
    table: int,
    mentions: Sequence[tuple[int, int]],
    *,
    threshold: float,
    joins: Callable[[Longs, Longs], Flags],
) -> list[Linked]:
    """Decode a table's links between mentions (first and last token), best first.

    Both cells of a link must score above the threshold. Mentions that share a boundary share cells. A pair is
    dropped if better pairs already have both of its cells, so that "bank" isn't linked because "Bank of
    England" is. With equal scores, the longer mentions come first.

    Cells are joined to mentions by their first tokens, then pairs to cells by their last tokens. The work
    therefore grows with the pairs that share a first cell, not with all pairs.

    Args:
        joins: which pairs (indices of heads [P], of tails [P]) are possible.
    """
    of_table = (cells.category == table) & (cells.score > threshold)
    start_C, end_C, score_C = cells.start[of_table], cells.end[of_table], cells.score[of_table]
    first_M, last_M = np.array(mentions, np.int64).reshape(-1, 2).T
    head_P, tail_P, cell_P = _pairs(first_M, start_C, end_C)
    other_P = _number(start_C, end_C, last_M[head_P], last_M[tail_P])
    kept_P = np.flatnonzero(joins(head_P, tail_P) & (other_P >= 0))
    head_P, tail_P = head_P[kept_P], tail_P[kept_P]
    score_P = np.minimum(score_C[cell_P[kept_P]], score_C[other_P[kept_P]])
    length_M = last_M - first_M
    order_P = np.lexsort((tail_P, head_P, -(length_M[head_P] + length_M[tail_P]), -score_P))
    columns = (column[order_P].tolist() for column in (head_P, tail_P, score_P))
    return _unclaimed(mentions, starmap(Linked, zip(*columns, strict=True)))


def _pairs(first_M: Longs, start_C: Ids, end_C: Ids) -> tuple[Longs, Longs, Longs]:
    """Return the pairs of mentions that start at a cell's tokens, with that cell: heads, tails, cells [P]."""
    order_M = np.argsort(first_M, kind="stable")
    sorted_M = first_M[order_M]
    (head_C, heads_C), (tail_C, tails_C) = (
        (low := np.searchsorted(sorted_M, side), np.searchsorted(sorted_M, side, side="right") - low)
        for side in (start_C, end_C)
    )
    pairs_C = heads_C * tails_C
    cell_P = np.repeat(np.arange(len(pairs_C)), pairs_C)
    number_P = np.arange(len(cell_P)) - np.repeat(np.cumsum(pairs_C) - pairs_C, pairs_C)  # within its cell
    head_P = head_C[cell_P] + number_P // np.maximum(1, tails_C[cell_P])
    tail_P = tail_C[cell_P] + number_P % np.maximum(1, tails_C[cell_P])
    return order_M[head_P], order_M[tail_P], cell_P


def _number(start_C: Ids, end_C: Ids, start_P: Longs, end_P: Longs) -> Longs:
    """Return the index of the cell (start, end) of each pair, or -1 if there is none [P]."""
    if not len(start_C):
        return np.full(len(start_P), -1)
    width = 1 + max(int(end_C.max()), int(end_P.max(initial=0)))
    key_C, key_P = start_C.astype(np.int64) * width + end_C, start_P * width + end_P
    order_C = np.argsort(key_C)
    found_P = order_C[np.minimum(np.searchsorted(key_C, key_P, sorter=order_C), len(order_C) - 1)]
    return np.where(key_C[found_P] == key_P, found_P, -1)


def _unclaimed(mentions: Sequence[tuple[int, int]], found: Iterable[Linked]) -> list[Linked]:
    """Keep the links with at least one cell that no link before has."""
    claimed: set[tuple[int, int]] = set()
    kept = []
    for link in found:
        both = set(zip(mentions[link.head], mentions[link.tail], strict=True))
        if not both <= claimed:
            claimed |= both
            kept.append(link)
    return kept
