"""A question is a category; its answers are cells of the text, or its anchor where the text has none."""

from __future__ import annotations

import numpy as np

from ubert.model.tokenizer import Encoding
from ubert.objectives import Objective, Overlap, Query, Scored, SpanPrediction, Targets
from ubert.objectives._common import best_first, span_targets, spans
from ubert.schema.record import Record


def targets(record: Record, encoding: Encoding) -> Targets:
    """The cells of all answers; the anchor of each question that the record gives no answer to. A question whose
    answers are lost has neither."""
    found = span_targets(record, encoding)
    answered = [span.category for span in record.spans if span.category is not None]
    found.gold_anchors = np.setdiff1d(np.arange(len(record.categories)), answered).astype(np.int32)
    return found


def decode(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlap = "flat"
) -> list[SpanPrediction]:
    """Answers that beat their question's anchor (no answer) by more than `threshold`, best first."""
    order = best_first(scored.cells)
    beats = scored.cells.score - scored.anchor[scored.cells.category] > threshold
    return spans(query, encoding, scored.cells, order[beats[order]].tolist())


OBJECTIVE = Objective(kind="question", targets=targets, decode=decode)
