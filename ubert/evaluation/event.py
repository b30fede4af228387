"""Metrics of events."""

from __future__ import annotations

from collections.abc import Sequence

from ubert.evaluation.annotations import annotated, of_kind, predicted
from ubert.evaluation.counts import Counts, matches, micro
from ubert.objectives import Prediction
from ubert.schema.record import Record


def count(record: Record, predictions: Sequence[Prediction]) -> Counts:
    """Units: a trigger, by its characters and event type; an argument, by its characters, its role, and its
    event's trigger and type. An event without a trigger is left out; of events with one trigger and type the
    arguments are counted together."""
    gold, found = annotated(record), predicted(predictions)
    counts = matches(of_kind(gold, "trigger"), of_kind(found, "trigger"), of="trigger_")
    counts.update(matches(of_kind(gold, "argument"), of_kind(found, "argument"), of="argument_"))
    return counts


def summarise(counts: Counts) -> dict[str, float]:
    """trigger_f1 and argument_f1: strict micro F1 of triggers with their event types, and of arguments with their
    roles, each at its own trigger."""
    return {"trigger_f1": micro(counts, "trigger_")[2], "argument_f1": micro(counts, "argument_")[2]}
