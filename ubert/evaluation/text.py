"""Metrics of masked words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import exp, fsum

from ubert.evaluation.counts import Counts, values
from ubert.objectives import Prediction, TextPrediction
from ubert.schema.record import Record


def count(record: Record, predictions: Sequence[Prediction]) -> Counts:
    """Count masked tokens, and texts by the total negative log-likelihood of their masked tokens in nats."""
    counts: Counts = Counter()
    for prediction in predictions:
        if isinstance(prediction, TextPrediction):
            counts["nats", prediction.nats] += 1
            counts["masked", ""] += prediction.masked
    return counts


def summarise(counts: Counts) -> dict[str, float]:
    """perplexity: exp of the mean negative log-likelihood of a masked token, or 0 if there are none."""
    masked = counts["masked", ""]
    nats = fsum(value * n for value, n in values(counts, "nats"))
    return {"perplexity": exp(nats / masked) if masked else 0.0}
