"""Metrics of the relation between two texts: one positive category, as in classification."""

from ubert.evaluation.classification import count, summarise

__all__ = ["count", "summarise"]
