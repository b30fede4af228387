"""Exactly one category holds for the whole text: the one whose anchor scores highest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ubert.model.batch import Region
from ubert.model.tokenizer import Encoding
from ubert.objectives import LabelPrediction, Overlap, Scored, Targets
from ubert.objectives._common import label, label_targets
from ubert.schema.record import Record

REGION = Region.ANCHOR


def targets(record: Record, encoding: Encoding) -> Targets:
    """The label's anchor."""
    return label_targets(record)


def decode(
    text: str,
    categories: Sequence[str],
    encoding: Encoding,
    scored: Scored,
    *,
    threshold: float = 0.0,
    overlap: Overlap = "flat",
) -> list[LabelPrediction]:
    """The category with the best anchor; the first of equals. None without categories."""
    return [label(categories, scored, int(np.argmax(scored.anchor)))] if len(scored.anchor) else []
