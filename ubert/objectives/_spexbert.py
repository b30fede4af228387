"""SpEx-BERT's answers: the span of the source whose start and end score highest together, of those that are
choices, or words of the text (equation 7, but for spans that are neither or end before they start).

Scores come as those of tables do: the anchor of a category is the score of its choice, and that of a question the
score of "unanswerable"; its one cell is the best span of the text.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ubert.model.tokenizer import Encoding
from ubert.objectives import (
    Decode,
    LabelPrediction,
    Overlaps,
    Query,
    Scored,
    SpanPrediction,
    ValuePrediction,
    qa,
    regression,
)
from ubert.objectives._common import best_first
from ubert.schema.errors import UserError


def choice(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlaps = "highest"
) -> list[LabelPrediction]:
    """The choice with the best score, and its probability among the choices."""
    if not len(scored.anchor):
        return []
    weights = np.exp(scored.anchor.astype(np.float64) - scored.anchor.max())
    best = int(np.argmax(scored.anchor))
    return [LabelPrediction(query.categories[best].name, float(weights[best] / weights.sum()))]


def bucket(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlaps = "highest"
) -> list[ValuePrediction]:
    """The number of the bucket with the best score (section 3); the table's decode is the buckets' mean."""
    if not len(scored.anchor):
        return []
    return [ValuePrediction(float(regression.buckets(query.categories)[int(np.argmax(scored.anchor))]))]


def answer(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlaps = "highest"
) -> list[SpanPrediction]:
    """The best span of each question over all windows, where it beats "unanswerable" by more than `threshold`."""
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
"""The tasks that are one span of a source, and how each is decoded."""


def decoder(task: str) -> Decode:
    """How a task is decoded.

    Raises:
        UserError: SpEx-BERT can't do it.
    """
    if task not in DECODE:
        raise UserError(
            f"the model is a SpEx-BERT, which points at one choice or answer: it can't do task {task}, expected "
            f"{', '.join(DECODE)}; train it with structure in place of spexbert among its recipe's objectives"
        )
    return DECODE[task]
