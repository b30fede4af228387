"""Connected components, as clusters of linked mentions are."""

from __future__ import annotations

from collections.abc import Iterable


def components(count: int, pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the connected components of 0 .. count - 1 under the pairs, with groups and members ascending."""
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
