"""Counts the labels that are missing in a spec's categories, by kind. It counts all missing labels of a
row, not only the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

Census = dict[str, Counter[str]]  # kind of category (for roles: `roles of <event>`) -> label -> count
Known = dict[Any, int]  # source label -> index of its category
Index = Callable[[str, Known], Known]


class _Counting(Known):
    """A dictionary whose `get` counts missing labels, and returns 0 for them."""

    def __init__(self, known: Known, lacking: Counter[str]) -> None:
        super().__init__(known)
        self.lacking = lacking

    def get(self, label: Any, default: Any = None) -> Any:
        found = super().get(label)
        if found is None:
            self.lacking[label if isinstance(label, str) else label[0]] += 1
        return found or 0


def counted_in(census: Census) -> Index:
    """Return a function that wraps dictionaries of labels, so that they count missing labels in `census`."""
    return lambda kind, known: _Counting(known, census.setdefault(kind, Counter()))


def as_it_is(kind: str, known: Known) -> Known:
    """Return the dictionary unchanged: a missing label has no category."""
    return known


def merged(censuses: list[Census]) -> Census:
    """Add up several censuses, without kinds that lack nothing. A label that is missing among events is
    not counted among entities."""
    total: Census = {}
    for census in censuses:
        for kind, labels in census.items():
            total.setdefault(kind, Counter()).update(labels)
    for label in total.get("event", ()):
        total.get("entity", Counter()).pop(label, None)
    return {kind: labels for kind, labels in total.items() if labels}
