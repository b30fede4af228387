"""Metrics of mentions."""

from __future__ import annotations

from collections.abc import Sequence

from ubert.evaluation.annotations import annotated, of_kind, predicted
from ubert.evaluation.counts import Counts, matches, micro
from ubert.objectives import Prediction
from ubert.schema.record import Record


def count(record: Record, predictions: Sequence[Prediction]) -> Counts:
    """Count mentions of the text, by their characters.

    Annotations lost in tokenisation or to a length limit count as missed. All fragments of a discontinuous
    mention must be right; if the candidates have no relation that joins them, each fragment counts as a
    mention. Spans without a category, or of the second text, are left out.
    """
    return matches(of_kind(annotated(record), "mention"), of_kind(predicted(record, predictions), "mention"))


def summarise(counts: Counts) -> dict[str, float]:
    """span_f1: strict micro F1; a mention is right if both boundaries and the category are. span_precision
    and span_recall are its precision and recall."""
    precision, recall, f1 = micro(counts)
    return {"span_f1": f1, "span_precision": precision, "span_recall": recall}
