"""Counts that are added over records, and the rates computed from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Set

Counts = Counter[tuple[str, Hashable]]
"""Maps (what is counted, category or value) to its number of occurrences. The numbers are integers, so that a
sum doesn't depend on its order."""


def matches(gold: Set[tuple[str, Hashable]], predicted: Set[tuple[str, Hashable]], of: str = "") -> Counts:
    """Count true positives (`tp`), false positives (`fp`) and false negatives (`fn`) by category.

    Args:
        gold: (category, location) of each annotation; a repeated annotation counts once.
        predicted: the same for each prediction.
        of: prefix of tp, fp and fn, for tasks with several kinds of annotation.
    """
    counts: Counts = Counter()
    counts.update((f"{of}tp", category) for category, _ in gold & predicted)
    counts.update((f"{of}fp", category) for category, _ in predicted - gold)
    counts.update((f"{of}fn", category) for category, _ in gold - predicted)
    return counts


def precision_recall_f1(tp: int, fp: int, fn: int) -> tuple[float, float, float]:
    """Return precision, recall and their harmonic mean; 0 if the denominator is 0."""
    precision = tp / (tp + fp) if tp else 0.0
    recall = tp / (tp + fn) if tp else 0.0
    return precision, recall, 2 * tp / (2 * tp + fp + fn) if tp else 0.0


def micro(counts: Counts, of: str = "") -> tuple[float, float, float]:
    """Return precision, recall and F1 over all categories together."""
    tp, fp, fn = (
        sum(n for (what, _), n in counts.items() if what == f"{of}{kind}") for kind in ("tp", "fp", "fn")
    )
    return precision_recall_f1(tp, fp, fn)


def values(counts: Counts, what: str) -> list[tuple[float, int]]:
    """Return the numbers that were counted under `what`, ascending, each with its count. A sum over them
    doesn't depend on the order of the records."""
    return sorted((float(str(value)), n) for (kind, value), n in counts.items() if kind == what)


def mean(counts: Counts, what: str) -> float:
    """Return the mean of the numbers that were counted under `what`, or 0 if there are none."""
    found = values(counts, what)
    return sum(value * n for value, n in found) / max(1, sum(n for _, n in found))


def macro_f1(counts: Counts) -> float:
    """Return the mean F1 of the categories that occur among annotations or predictions.

    A candidate category that occurs in neither has no F1 and is left out.
    """
    categories = sorted({str(category) for what, category in counts if what in ("tp", "fp", "fn")})
    if not categories:
        return 0.0
    scores = [precision_recall_f1(*(counts[what, c] for what in ("tp", "fp", "fn")))[2] for c in categories]
    return sum(scores) / len(scores)
