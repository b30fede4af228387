"""Predict a number by buckets: categories whose names are numbers, of which the one nearest to the value
holds (SpEx-BERT, section 3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ubert.model.tokenizer import Encoding
from ubert.objectives import Categories, Objective, Overlaps, Query, Scored, Targets, ValuePrediction
from ubert.objectives.common import Gold
from ubert.schema.record import Record


def buckets(categories: Categories) -> npt.NDArray[np.float64]:
    """Return the numbers of the categories."""
    return np.array([float(category.name) for category in categories])


def targets(record: Record, encoding: Encoding) -> Targets:
    """Return the anchor of the bucket that is nearest to the value, the first of equally near ones."""
    if record.value is None or not record.categories:
        return Gold().targets()
    return Gold().targets([int(np.argmin(np.abs(buckets(record.categories) - record.value)))])


def decode(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlaps = "highest"
) -> list[ValuePrediction]:
    """Return the expected value: the mean of the buckets, weighted by the softmax of their anchors."""
    if not len(scored.anchor):
        return []
    weights = np.exp(scored.anchor.astype(np.float64) - scored.anchor.max())
    return [ValuePrediction(float(weights @ buckets(query.categories) / weights.sum()))]


OBJECTIVE = Objective(kind="value", targets=targets, decode=decode)
