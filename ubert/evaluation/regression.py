"""Metrics of a predicted number for each text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from ubert.evaluation.counts import Counts
from ubert.objectives import Prediction, ValuePrediction
from ubert.schema.record import Record

Floats = npt.NDArray[np.float64]


def count(record: Record, predictions: Sequence[Prediction]) -> Counts:
    """Count pairs of a record's value and its predicted value.

    Ranks need all pairs, so each distinct pair is kept with its count, and counts can be added. A record
    without a prediction is left out.
    """
    counts: Counts = Counter()
    if record.value is not None:
        counts.update(("pair", (record.value, p.value)) for p in predictions if isinstance(p, ValuePrediction))
    return counts


def summarise(counts: Counts) -> dict[str, float]:
    """pearson: correlation of values and predictions. spearman: correlation of their ranks; equal values
    share their mean rank. Both are 0 if either side is constant. rmse: root of the mean squared difference."""
    pairs = sorted((cast(tuple[float, float], pair), n) for (what, pair), n in counts.items() if what == "pair")
    gold, predicted = np.array([pair for pair, n in pairs for _ in range(n)], np.float64).reshape(-1, 2).T
    return {
        "pearson": _correlation(gold, predicted),
        "spearman": _correlation(_ranks(gold), _ranks(predicted)),
        "rmse": float(np.sqrt(np.mean((gold - predicted) ** 2))) if len(gold) else 0.0,
    }


def _correlation(x: Floats, y: Floats) -> float:
    if not len(x) or np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    x, y = x - x.mean(), y - y.mean()
    return float((x / np.linalg.norm(x)) @ (y / np.linalg.norm(y)))


def _ranks(x: Floats) -> Floats:
    """Return the rank of each value; equal values share the mean of their ranks."""
    from scipy.stats import rankdata  # here because it takes a while to import

    return np.asarray(rankdata(x), np.float64)
