"""Metrics of masked words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import exp, fsum

from ubert.evaluation.counts import Counts, values
from ubert.objectives import Prediction, TextPrediction
from ubert.schema.record import Record


def count(record: Record, predictions: Sequence[Prediction]) -> Counts:
    """Unit: a text, by the negative log-likelihood of its masked tokens in nats, and a masked token."""
    counts: Counts = Counter()
    for prediction in predictions:
        if isinstance(prediction, TextPrediction):
            counts["nats", prediction.nats] += 1
            counts["masked", ""] += prediction.masked
    return counts


def summarise(counts: Counts) -> dict[str, float]:
    """perplexity: exp of the mean negative log-likelihood of a masked token; 0 of none."""
    masked = counts["masked", ""]
    nats = fsum(value * n for value, n in values(counts, "nats"))
    return {"perplexity": exp(nats / masked) if masked else 0.0}
