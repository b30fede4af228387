"""Metrics of a record with any number of positive categories."""

from __future__ import annotations

from ubert.evaluation.classification import count
from ubert.evaluation.counts import Counts, macro_f1, micro

__all__ = ["count", "summarise"]


def summarise(counts: Counts) -> dict[str, float]:
    """micro_f1: F1 over all (record, category) pairs; true negatives don't count. macro_f1: mean F1 of the
    categories that occur. accuracy: the share of records whose whole set of categories is right."""
    return {
        "micro_f1": micro(counts)[2],
        "macro_f1": macro_f1(counts),
        "accuracy": counts["record", "right"] / max(1, counts["record", "all"]),
    }
