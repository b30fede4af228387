"""Thresholds that were fitted on a split of a corpus, one a task, beside the weights: `thresholds.json`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, RootModel, ValidationError

from ubert.schema.errors import UserError
from ubert.schema.record import Split
from ubert.schema.yaml_file import Strict

FILE = "thresholds.json"
GRID = tuple(i / 20 for i in range(1, 20))
"""Probabilities that are tried."""


MEASURES: dict[str, tuple[str, ...]] = {
    "multilabel": ("micro_f1",),
    "ner": ("span_f1",),
    "relation": ("relation_f1",),
    "event": ("trigger_f1", "argument_f1"),
    "coref": ("conll_f1",),
    "qa": ("qa_f1",),
}
"""Metrics whose mean is the best at a task's threshold. Tasks that aren't here have none: their best category
holds, however low it is."""


class Fitted(Strict):
    """A threshold (a probability), and the mean of its task's `MEASURES` on the records that it was fitted on."""

    threshold: float = Field(gt=0, lt=1)
    value: float
    corpora: list[str]
    split: Split
    records: int


class Thresholds(RootModel[dict[str, Fitted]]):
    """By task."""


def read_thresholds(directory: Path) -> dict[str, Fitted]:
    """The thresholds of a checkpoint; none where none was fitted.

    Raises:
        UserError: the file is damaged.
    """
    path = directory / FILE
    try:
        return Thresholds.model_validate_json(path.read_bytes()).root
    except FileNotFoundError:
        return {}
    except ValidationError as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: damaged ({reason}); remove it, and fit the thresholds again") from None


def to_json(thresholds: dict[str, Fitted]) -> str:
    """What `read_thresholds` reads."""
    return Thresholds(thresholds).model_dump_json(indent=1) + "\n"
