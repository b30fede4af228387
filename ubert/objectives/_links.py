"""Links between mentions: two cells each, from first token to first token and from last to last (UBERT, section
3.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ubert.objectives import Cells


class Linked(NamedTuple):
    """A link between two of the mentions given, and the lower score of its two cells."""

    head: int
    tail: int
    score: float


def links(
    cells: Cells,
    table: int,
    mentions: Sequence[tuple[int, int]],
    *,
    threshold: float,
    joins: Callable[[int, int], bool],
) -> list[Linked]:
    """Links of a table between mentions (first and last token), best first.

    Both cells of a link score above the threshold. Mentions that share a boundary share cells: a pair whose cells
    better pairs already account for is none, so that "bank" isn't linked because "Bank of England" is; of equal
    scores the longer mentions come first.

    Args:
        joins: may these two mentions be head and tail.
    """
    of_table = np.flatnonzero((cells.category == table) & (cells.score > threshold))
    columns = (column[of_table].tolist() for column in (cells.start, cells.end, cells.score))
    score = {(start, end): value for start, end, value in zip(*columns, strict=True)}
    begins: dict[int, list[int]] = {}
    for i, (first, _) in enumerate(mentions):
        begins.setdefault(first, []).append(i)
    found = [
        Linked(head, tail, min(value, score[lasts]))
        for (start, end), value in score.items()
        for head in begins.get(start, ())
        for tail in begins.get(end, ())
        if (lasts := (mentions[head][1], mentions[tail][1])) in score and joins(head, tail)
    ]
    found.sort(key=lambda link: (-link.score, -_length(mentions, link), link.head, link.tail))
    claimed: set[tuple[int, int]] = set()
    kept = []
    for link in found:
        both = set(zip(mentions[link.head], mentions[link.tail], strict=True))
        if not both <= claimed:
            claimed |= both
            kept.append(link)
    return kept


def _length(mentions: Sequence[tuple[int, int]], link: Linked) -> int:
    return sum(mentions[i][1] - mentions[i][0] for i in link[:2])


def components(count: int, pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """0 .. count - 1 in groups, each of those that pairs join; groups and members ascending."""
    root = list(range(count))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    for left, right in pairs:
        low, high = sorted((find(left), find(right)))
        root[high] = low
    groups: dict[int, list[int]] = {}
    for i in range(count):
        groups.setdefault(find(i), []).append(i)
    return list(groups.values())
