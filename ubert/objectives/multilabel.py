"""Any number of categories holds for the whole text: those whose anchor is above the threshold."""

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
    """The labels' anchors."""
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
    """Every category whose anchor is above the threshold, in the order of the categories."""
    return [label(categories, scored, int(i)) for i in np.flatnonzero(scored.anchor > threshold)]
