"""A question is a category; its answers are cells of the text, or its anchor where the text has none."""

from __future__ import annotations

import numpy as np

from ubert.model.tokenizer import Encoding
from ubert.objectives import Objective, Overlaps, Query, Scored, SpanPrediction, Targets
from ubert.objectives._common import best_first, choose, span_targets, spans
from ubert.schema.record import Record


def targets(record: Record, encoding: Encoding) -> Targets:
    """The cells of all answers; the anchor of each question that the record gives no answer to. A question whose
    answers are lost has neither."""
    found = span_targets(record, encoding)
    answered = [span.category for span in record.spans if span.category is not None]
    found.gold_anchors = np.setdiff1d(np.arange(len(record.categories)), answered).astype(np.int32)
    return found


def decode(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlaps = "highest"
) -> list[SpanPrediction]:
    """Answers that beat their question's anchor (no answer) by more than `threshold`, best first: the best one of
    a question however low it is, others where their cell is above the threshold too. Those of different questions
    may overlap; those of one as its policy says."""
    cells = scored.cells
    order = best_first(cells)
    first = np.zeros(len(order), np.bool_)
    first[np.unique(cells.category[order], return_index=True)[1]] = True
    score_N, category_N = cells.score[order], cells.category[order]
    holds = (score_N - scored.anchor[category_N] > threshold) & (first | (score_N > threshold))
    stays = np.zeros(len(order), np.bool_)
    for question in range(len(query.categories)):
        own = np.flatnonzero(holds & (category_N == question))
        answers = cells.only(order[own])
        stays[own[choose(query, answers, len(encoding.ids), threshold=-np.inf, overlap=overlap)]] = True
    return spans(query, encoding, cells, order[stays])


OBJECTIVE = Objective(kind="question", targets=targets, decode=decode)
