"""One file per task: its targets and its decode. A task is found by its file name.

A module has:

    REGION: Region                                              the cells that are trained on and decoded
    targets(record, encoding) -> Targets                        annotations to gold cells
    decode(text, categories, encoding, scores, ...) -> [...]    scored cells to annotations
"""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Literal, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from ubert.model.batch import Ids, Region
from ubert.model.tokenizer import Encoding
from ubert.schema.errors import UserError
from ubert.schema.record import Record

Scores = npt.NDArray[np.float32]
Overlap = Literal["flat", "nested"]


class Lost(NamedTuple):
    """A span of a record that no gold cell stands for."""

    reason: str
    span: int


@dataclass(slots=True)
class Targets:
    """Gold cells of one whole text.

    `gold_anchors` [a]: categories that hold at their anchor, ascending. `gold_cells` [g, 3]: category, first
    token, last token (inclusive). `spans` [g]: the record's span that each cell stands for, and `fits` [g] how
    well it does (`Fit`). The record's other spans are in `lost`.
    """

    gold_anchors: Ids
    gold_cells: Ids
    spans: Ids
    fits: npt.NDArray[np.int8]
    lost: list[Lost] = field(default_factory=list)


class Cells(NamedTuple):
    """Scored cells of one text, one entry each: category, first token, last token (inclusive), logit."""

    category: Ids
    start: Ids
    end: Ids
    score: Scores


class Scored(NamedTuple):
    """What the model says of one text: `anchor` [k], the logit of each category's anchor cell, and the cells of
    its text region that are worth decoding."""

    anchor: Scores
    cells: Cells


@dataclass(slots=True, frozen=True)
class LabelPrediction:
    """A category that holds for the whole text; `score` is its probability."""

    category: str
    score: float


@dataclass(slots=True, frozen=True)
class SpanPrediction:
    """A mention: characters [start, end) of the text, and the probability of its cell."""

    start: int
    end: int
    category: str
    text: str
    score: float


Prediction = LabelPrediction | SpanPrediction


class Objective(Protocol):
    """What the module of a task offers."""

    REGION: Region

    def targets(self, record: Record, encoding: Encoding) -> Targets:
        """Gold cells of a record whose text was tokenised to `encoding`."""

    def decode(
        self,
        text: str,
        categories: Sequence[str],
        encoding: Encoding,
        scored: Scored,
        *,
        threshold: float = 0.0,
        overlap: Overlap = "flat",
    ) -> Sequence[Prediction]:
        """Annotations from scores. `threshold` is a logit; `overlap`: may mentions overlap (nested) or not."""


def objectives() -> list[str]:
    """Tasks that can be trained: the files beside this one."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


@cache
def objective(task: str) -> Objective:
    """The objective of a task.

    Raises:
        UserError: the task is not trainable yet.
    """
    if task not in objectives():
        raise UserError(f"task {task!r} is not trainable yet; expected one of {', '.join(objectives())}")
    return cast(Objective, import_module(f"{__name__}.{task}"))


def merge(windows: Sequence[tuple[int, Scored]]) -> Scored:
    """Scores of overlapping windows as the scores of their text.

    A cell that several windows hold keeps its best score. An anchor keeps its lowest: a text has no answer when
    none of its windows has one (BERT, section 4.2, over windows).

    Args:
        windows: the index of each window's first token in the text, and its scores over the same categories.
    """
    category = np.concatenate([scored.cells.category for _, scored in windows])
    start = np.concatenate([scored.cells.start + first for first, scored in windows])
    end = np.concatenate([scored.cells.end + first for first, scored in windows])
    score = np.concatenate([scored.cells.score for _, scored in windows])
    order = np.lexsort((-score, end, start, category))
    cells = np.stack([category, start, end])[:, order]
    new = np.append(True, (cells[:, 1:] != cells[:, :-1]).any(axis=0))[: len(order)]
    kept = order[new]
    anchor = np.min([scored.anchor for _, scored in windows], axis=0)
    return Scored(anchor, Cells(category[kept], start[kept], end[kept], score[kept]))
