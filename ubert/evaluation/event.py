"""Metrics of events."""

from __future__ import annotations

from collections.abc import Sequence

from ubert.evaluation.annotations import annotated, of_kind, predicted
from ubert.evaluation.counts import Counts, matches, micro
from ubert.objectives import Prediction
from ubert.schema.record import Record


def count(record: Record, predictions: Sequence[Prediction]) -> Counts:
    """Count triggers, by their characters and event type, and arguments, by their characters, their role, and
    the trigger and type of their event.

    Events without a trigger are left out. Arguments of events with the same trigger and type are counted
    together.
    """
    gold, found = annotated(record), predicted(record, predictions)
    counts = matches(of_kind(gold, "trigger"), of_kind(found, "trigger"), of="trigger_")
    counts.update(matches(of_kind(gold, "argument"), of_kind(found, "argument"), of="argument_"))
    return counts


def summarise(counts: Counts) -> dict[str, float]:
    """trigger_f1 and argument_f1: strict micro F1 of triggers with their event types, and of arguments with
    their roles and triggers."""
    return {"trigger_f1": micro(counts, "trigger_")[2], "argument_f1": micro(counts, "argument_")[2]}
