"""Metrics of a choice among the record's own candidates."""

from __future__ import annotations

from ubert.evaluation.classification import count
from ubert.evaluation.counts import Counts

__all__ = ["count", "summarise"]


def summarise(counts: Counts) -> dict[str, float]:
    """accuracy: the share of records whose predicted candidate is right."""
    return {"accuracy": counts["record", "right"] / max(1, counts["record", "all"])}
