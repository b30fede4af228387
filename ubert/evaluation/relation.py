"""Metrics of relations."""

from __future__ import annotations

from collections.abc import Sequence

from ubert.evaluation.annotations import annotated, of_kind, predicted, representatives
from ubert.evaluation.counts import Counts, matches, micro
from ubert.objectives import Prediction
from ubert.schema.record import Record


def count(record: Record, predictions: Sequence[Prediction]) -> Counts:
    """Count mentions, and relations by their name, their direction, and both mentions with their types.

    If a corpus has coreference clusters, a relation holds between clusters: any mention of a cluster is
    right, and several such pairs count once.
    """
    gold, found = annotated(record), predicted(record, predictions)
    same = representatives(record)
    pairs = {
        (relation.name, tuple(same.get(mention, mention) for mention in relation.mentions))
        for relation in found
        if relation.kind == "relation"
    }
    counts = matches(of_kind(gold, "relation"), pairs)
    counts.update(matches(of_kind(gold, "mention"), of_kind(found, "mention"), of="span_"))
    return counts


def summarise(counts: Counts) -> dict[str, float]:
    """relation_f1: strict micro F1; a relation is right if its name is, and the boundaries and type of both
    mentions are. relation_precision and relation_recall are its precision and recall. span_f1: F1 of the
    mentions."""
    precision, recall, f1 = micro(counts)
    return {
        "relation_f1": f1,
        "relation_precision": precision,
        "relation_recall": recall,
        "span_f1": micro(counts, "span_")[2],
    }
