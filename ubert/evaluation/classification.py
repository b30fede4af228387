"""Metrics of a record with exactly one positive category."""

from __future__ import annotations

from collections.abc import Sequence

from ubert.evaluation.counts import Counts, macro_f1, matches
from ubert.objectives import LabelPrediction, Prediction
from ubert.schema.record import Record


def count(record: Record, predictions: Sequence[Prediction]) -> Counts:
    """Count records. Categories are compared by name, as records of one corpus may order them differently."""
    gold = {(record.categories[label].name, None) for label in record.labels}
    predicted = {(item.category, None) for item in predictions if isinstance(item, LabelPrediction)}
    counts = matches(gold, predicted)
    counts["record", "all"] += 1
    counts["record", "right"] += gold == predicted
    return counts


def summarise(counts: Counts) -> dict[str, float]:
    """accuracy: the share of records whose predicted category is right. macro_f1: the mean F1 of the
    categories that occur, so that rare ones weigh as much as frequent ones."""
    return {"accuracy": counts["record", "right"] / max(1, counts["record", "all"]), "macro_f1": macro_f1(counts)}
