"""Unlabelled text, without candidate categories. It is read in blocks, and its masked words are predicted."""

from __future__ import annotations

from ubert.model.tokenizer import Encoding
from ubert.objectives import Objective, Overlaps, Prediction, Query, Scored, Targets
from ubert.objectives.common import Gold, tokens_of
from ubert.schema.errors import UserError
from ubert.schema.record import Record


def targets(record: Record, encoding: Encoding) -> Targets:
    """Return the cells of the spans that the corpus marks, from which the masking scheme `entity` draws."""
    gold = Gold()
    for i, (first, last, fit) in enumerate(zip(*tokens_of(record, encoding), strict=True)):
        if first <= last:
            gold.mention((0, int(first), int(last)), i, int(fit))
    return gold.targets()


def decode(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlaps = "highest"
) -> list[Prediction]:
    """Always raise, as there are no labels to predict.

    Raises:
        UserError: always; the message names the command that measures perplexity.
    """
    raise UserError("task text has no labels to predict; measure its perplexity with `ubert evaluate`")


OBJECTIVE = Objective(kind="label", targets=targets, decode=decode, blocks=True)
