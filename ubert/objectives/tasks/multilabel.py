"""Any number of categories holds for the whole text: those whose anchor is above the threshold."""

from __future__ import annotations

import numpy as np

from ubert.model.tokenizer import Encoding
from ubert.objectives import LabelPrediction, Objective, Overlaps, Query, Scored
from ubert.objectives.common import label, label_targets


def decode(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlaps = "highest"
) -> list[LabelPrediction]:
    """Return every category whose anchor is above the threshold, in the order of the categories."""
    return [label(query, scored, int(i)) for i in np.flatnonzero(scored.anchor > threshold)]


OBJECTIVE = Objective(kind="label", targets=label_targets, decode=decode)
