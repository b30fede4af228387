"""Generate a text (the record's target) from another. UniLM (`ubert/unilm/`) learns it; beam search generates."""

from __future__ import annotations

from ubert.model.tokenizer import Encoding
from ubert.objectives import Objective, Overlaps, Prediction, Query, Scored, Targets
from ubert.objectives.common import Gold
from ubert.schema.checks import is_blank
from ubert.schema.errors import UserError
from ubert.schema.record import Record


def targets(record: Record, encoding: Encoding) -> Targets:
    """Check that the record has a target. There are no cells.

    Raises:
        UserError: it has none.
    """
    if is_blank(record.target or ""):
        raise UserError(f"record {record.record_id} of task seq2seq has no target; ingest its corpus again")
    return Gold().targets()


def decode(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlaps = "highest"
) -> list[Prediction]:
    """Always raise, as there are no cells to predict from.

    Raises:
        UserError: always; the message names the command that generates.
    """
    raise UserError("task seq2seq generates text; use `ubert generate`, or generate(...) in Python")


OBJECTIVE = Objective(kind="label", targets=targets, decode=decode, generates=True)
