"""Unlabelled text: it has no candidate categories. It is read in blocks, and predicts its own masked words."""

from __future__ import annotations

from ubert.model.tokenizer import Encoding, Fit
from ubert.objectives import Objective, Overlaps, Prediction, Query, Scored, Targets
from ubert.objectives._common import Gold, tokens_of
from ubert.schema.errors import UserError
from ubert.schema.record import Record


def targets(record: Record, encoding: Encoding) -> Targets:
    """Tokens of the spans that the corpus marks: what the masking scheme `entity` draws from."""
    gold = Gold()
    for i, (first, last, fit) in enumerate(zip(*tokens_of(record, encoding), strict=True)):
        if fit != Fit.LOST and first <= last:
            gold.mention((0, int(first), int(last)), i, int(fit))
    return gold.targets()


def decode(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlaps = "highest"
) -> list[Prediction]:
    """Raises UserError: there is nothing to predict."""
    raise UserError("task text has no labels to predict; measure its perplexity with `ubert evaluate`")


OBJECTIVE = Objective(kind="label", targets=targets, decode=decode, blocks=True)
