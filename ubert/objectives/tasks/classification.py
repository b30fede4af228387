"""Exactly one category holds for the whole text: the one with the highest anchor score."""

from __future__ import annotations

import numpy as np

from ubert.model.tokenizer import Encoding
from ubert.objectives import LabelPrediction, Objective, Overlaps, Query, Scored
from ubert.objectives.common import label, label_targets


def decode(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlaps = "highest"
) -> list[LabelPrediction]:
    """Return the category with the best anchor, the first of equal ones. Without categories, return nothing."""
    return [label(query, scored, int(np.argmax(scored.anchor)))] if len(scored.anchor) else []


OBJECTIVE = Objective(kind="label", targets=label_targets, decode=decode)
