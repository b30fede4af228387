"""`thresholds.json` beside the weights: the threshold of each task, fitted on a split of a corpus."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, RootModel, ValidationError

from ubert.schema.errors import UserError
from ubert.schema.record import Split
from ubert.schema.yaml_file import Strict

FILE = "thresholds.json"
GRID = tuple(i / 20 for i in range(1, 20))
"""Probabilities to try."""


MEASURES: dict[str, tuple[str, ...]] = {
    "multilabel": ("micro_f1",),
    "ner": ("span_f1",),
    "relation": ("relation_f1",),
    "event": ("trigger_f1", "argument_f1"),
    "coref": ("conll_f1",),
    "qa": ("qa_f1",),
}
"""Metrics of each task; its threshold maximises their mean. Tasks that are not listed have no threshold: they
return their best category at any probability."""


class Fitted(Strict):
    """A threshold (a probability), and the mean of its task's `MEASURES` (`value`) on the records of the fit."""

    threshold: float = Field(gt=0, lt=1)
    value: float
    corpora: list[str]
    split: Split
    records: int


class Thresholds(RootModel[dict[str, Fitted]]):
    """Task -> fitted threshold."""


def read_thresholds(directory: Path) -> dict[str, Fitted]:
    """Read the thresholds of a checkpoint; empty if none was fitted.

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
    """Serialise thresholds for `read_thresholds`."""
    return Thresholds(thresholds).model_dump_json(indent=1) + "\n"
