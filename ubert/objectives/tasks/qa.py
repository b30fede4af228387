"""Question answering: a question is a category. Its answers are cells of the text, or its anchor for no answer."""

from __future__ import annotations

import numpy as np

from ubert.model.tokenizer import Encoding
from ubert.objectives import Objective, Overlaps, Query, Scored, SpanPrediction, Targets
from ubert.objectives.common import best_first, choose, span_targets, spans
from ubert.schema.record import Record


def targets(record: Record, encoding: Encoding) -> Targets:
    """Return the cells of all answers, and the anchors of the questions without an answer in the record. A
    question whose answers are lost has neither."""
    found = span_targets(record, encoding)
    answered = [span.category for span in record.spans if span.category is not None]
    found.gold_anchors = np.setdiff1d(np.arange(len(record.categories)), answered).astype(np.int32)
    return found


def decode(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlaps = "highest"
) -> list[SpanPrediction]:
    """Return the answers that beat their question's anchor (no answer) by more than `threshold`, best first.

    The best answer to a question needn't be above the threshold itself; the others must be. Answers to
    different questions may overlap. Answers to one question follow its overlap policy.
    """
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
        stays[own[choose(query, encoding, answers, threshold=-np.inf, overlap=overlap)]] = True
    return spans(query, encoding, cells, order[stays])


OBJECTIVE = Objective(kind="question", targets=targets, decode=decode)
