"""Counts that are added over records, and the rates made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Set

Counts = Counter[tuple[str, Hashable]]
"""How often something happened: (what, of which category or value) -> times. Integers, so that a sum doesn't
depend on its order."""


def matches(gold: Set[tuple[str, Hashable]], predicted: Set[tuple[str, Hashable]], of: str = "") -> Counts:
    """True positives (`tp`), false positives (`fp`) and false negatives (`fn`) by category.

    Args:
        gold: (category, place) of each annotation; a repeated annotation counts once.
        predicted: the same of each prediction.
        of: put before tp, fp and fn, where a task has several kinds of annotation.
    """
    counts: Counts = Counter()
    counts.update((f"{of}tp", category) for category, _ in gold & predicted)
    counts.update((f"{of}fp", category) for category, _ in predicted - gold)
    counts.update((f"{of}fn", category) for category, _ in gold - predicted)
    return counts


def precision_recall_f1(tp: int, fp: int, fn: int) -> tuple[float, float, float]:
    """Precision, recall and their harmonic mean; 0 where the denominator is 0."""
    precision = tp / (tp + fp) if tp else 0.0
    recall = tp / (tp + fn) if tp else 0.0
    return precision, recall, 2 * tp / (2 * tp + fp + fn) if tp else 0.0


def micro(counts: Counts, of: str = "") -> tuple[float, float, float]:
    """Precision, recall and F1 over all categories together."""
    tp, fp, fn = (
        sum(n for (what, _), n in counts.items() if what == f"{of}{kind}") for kind in ("tp", "fp", "fn")
    )
    return precision_recall_f1(tp, fp, fn)


def values(counts: Counts, what: str) -> list[tuple[float, int]]:
    """The numbers that were counted under `what`, ascending, and how often each: so that a sum of them doesn't
    depend on the order of the records."""
    return sorted((float(str(value)), n) for (kind, value), n in counts.items() if kind == what)


def mean(counts: Counts, what: str) -> float:
    """Mean of the numbers that were counted under `what`; 0 of none."""
    found = values(counts, what)
    return sum(value * n for value, n in found) / max(1, sum(n for _, n in found))


def macro_f1(counts: Counts) -> float:
    """Mean F1 over the categories that occur among annotations or predictions.

    A candidate category that neither annotation nor prediction ever names has no F1 and is left out.
    """
    categories = sorted({str(category) for what, category in counts if what in ("tp", "fp", "fn")})
    if not categories:
        return 0.0
    scores = [precision_recall_f1(*(counts[what, c] for what in ("tp", "fp", "fn")))[2] for c in categories]
    return sum(scores) / len(scores)
