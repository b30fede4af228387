"""Labels that a spec's categories lack, counted by kind: all those of a row, not only the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

Census = dict[str, Counter[str]]  # kind of category (roles: `roles of <event>`) -> label -> how often
Known = dict[Any, int]  # source label -> place of its category
Index = Callable[[str, Known], Known]


class _Counting(Known):
    """Places by label; a label that is not there is counted, and gets some place."""

    def __init__(self, known: Known, lacking: Counter[str]) -> None:
        super().__init__(known)
        self.lacking = lacking

    def get(self, label: Any, default: Any = None) -> Any:
        found = super().get(label)
        if found is None:
            self.lacking[label if isinstance(label, str) else label[0]] += 1
        return found or 0


def counted_in(census: Census) -> Index:
    """What makes look-ups count the labels that they lack."""
    return lambda kind, known: _Counting(known, census.setdefault(kind, Counter()))


def as_it_is(kind: str, known: Known) -> Known:
    """A look-up in which a label that it lacks has no place."""
    return known


def merged(censuses: list[Census]) -> Census:
    """The sum of several, without the kinds that lack nothing; the label of an event is no entity's."""
    total: Census = {}
    for census in censuses:
        for kind, labels in census.items():
            total.setdefault(kind, Counter()).update(labels)
    for label in total.get("event", ()):
        total.get("entity", Counter()).pop(label, None)
    return {kind: labels for kind, labels in total.items() if labels}
