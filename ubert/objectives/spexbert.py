"""Decode SpEx-BERT: the answer is the span of the source whose start and end have the highest total score
(equation 7). The span must be a choice, or words of the text, and must not end before it starts.

The scores have the form of a table's scores. A category's anchor is the score of its choice; a question's
anchor is the score of "unanswerable", and its single cell is the best span of the text.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ubert.model.tokenizer import Encoding
from ubert.objectives import Decode, LabelPrediction, Overlaps, Query, Scored, SpanPrediction, ValuePrediction
from ubert.objectives.common import best_first
from ubert.objectives.tasks import qa, regression
from ubert.schema.errors import UserError


def choice(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlaps = "highest"
) -> list[LabelPrediction]:
    """Return the choice with the best score, and its probability among the choices."""
    if not len(scored.anchor):
        return []
    weights = np.exp(scored.anchor.astype(np.float64) - scored.anchor.max())
    best = int(np.argmax(scored.anchor))
    return [LabelPrediction(query.categories[best].name, float(weights[best] / weights.sum()))]


def bucket(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlaps = "highest"
) -> list[ValuePrediction]:
    """Return the number of the bucket with the best score (section 3). A structure table instead predicts the
    mean of the buckets."""
    if not len(scored.anchor):
        return []
    return [ValuePrediction(float(regression.buckets(query.categories)[int(np.argmax(scored.anchor))]))]


def answer(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlaps = "highest"
) -> list[SpanPrediction]:
    """Return each question's best span over all windows, if it beats "unanswerable" by more than `threshold`."""
    order = best_first(scored.cells)
    _, first = np.unique(scored.cells.category[order], return_index=True)
    cells = scored.cells.only(order[first])
    relative = cells._replace(score=cells.score - scored.anchor[cells.category])
    return qa.decode(
        query, encoding, Scored(np.zeros_like(scored.anchor), relative), threshold=threshold, overlap=overlap
    )


DECODE: Mapping[str, Decode] = {
    "classification": choice,
    "pair": choice,
    "choice": choice,
    "regression": bucket,
    "qa": answer,
}
"""The tasks whose answer is one span of a source, with their decoders."""


def decoder(task: str) -> Decode:
    """Return the decoder of a task.

    Raises:
        UserError: SpEx-BERT doesn't support the task.
    """
    if task not in DECODE:
        raise UserError(
            f"the model is a SpEx-BERT, which points at one choice or answer: it can't do task {task}, expected "
            f"{', '.join(DECODE)}; train one with structure instead of spexbert in the recipe's `objectives`"
        )
    return DECODE[task]
