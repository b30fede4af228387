"""Metrics of masked words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import exp, fsum, log
from sys import float_info

from ubert.evaluation.counts import Counts, values
from ubert.objectives import Prediction, TextPrediction
from ubert.schema.record import Record

MOST = log(float_info.max)  # the perplexity of a model that has diverged is a float, too


def count(record: Record, predictions: Sequence[Prediction]) -> Counts:
    """Count masked tokens, and texts by the total negative log-likelihood of their masked tokens in nats."""
    counts: Counts = Counter()
    for prediction in predictions:
        if isinstance(prediction, TextPrediction):
            counts["nats", prediction.nats] += 1
            counts["masked", ""] += prediction.masked
    return counts


def summarise(counts: Counts) -> dict[str, float]:
    """perplexity: exp of the mean negative log-likelihood of a masked token, at most the largest float, or 0 if
    there are none."""
    masked = counts["masked", ""]
    nats = fsum(value * n for value, n in values(counts, "nats"))
    return {"perplexity": exp(min(nats / masked, MOST)) if masked else 0.0}
