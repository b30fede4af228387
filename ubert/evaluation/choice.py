"""Metrics of a choice among the record's own candidates."""

from __future__ import annotations

from ubert.evaluation.classification import count
from ubert.evaluation.counts import Counts

__all__ = ["count", "summarise"]


def summarise(counts: Counts) -> dict[str, float]:
    """accuracy: records whose candidate is the right one, of all."""
    return {"accuracy": counts["record", "right"] / max(1, counts["record", "all"])}
