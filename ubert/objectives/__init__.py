"""One file per task: what is asked of a text, the right answers as gold cells, and scored cells as predictions.

A task is found by its file name. Its file has an `OBJECTIVE`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from ubert.encoder.ragged import Ids
from ubert.model.tokenizer import Encoding
from ubert.objectives._predictions import (
    ClusterPrediction,
    DiscontinuousPrediction,
    EventPrediction,
    LabelPrediction,
    Prediction,
    RelationPrediction,
    SpanPrediction,
    TextPrediction,
    ValuePrediction,
    WrittenPrediction,
)
from ubert.schema.errors import UserError
from ubert.schema.recipe import Overlap
from ubert.schema.record import Category, Kind, Record
from ubert.structure.batch import REGIONS, Region

__all__ = [
    "Cells",
    "ClusterPrediction",
    "Decode",
    "DiscontinuousPrediction",
    "EventPrediction",
    "LabelPrediction",
    "Link",
    "Lost",
    "Objective",
    "Overlap",
    "Overlaps",
    "Prediction",
    "Query",
    "RelationPrediction",
    "Scored",
    "SecondPass",
    "SpanPrediction",
    "Targets",
    "TextPrediction",
    "ValuePrediction",
    "WrittenPrediction",
    "merge",
    "objective",
    "objectives",
    "passes",
]

Scores = npt.NDArray[np.float32]
Categories = tuple[Category, ...]
Overlaps = Overlap | Mapping[str, Overlap]
"""One policy for all categories, or by their names (`highest` where one isn't named). Mentions of categories of
the same policy compete with each other, those of different policies don't."""


@dataclass(slots=True, frozen=True)
class Query:
    """What is asked of a text in one pass: each of the `categories` is a table. `given`: all candidates, of which
    a task may ask in several passes.

    `around`: first and last token of what the question is about, where it is about a place in the text; of a long
    text only a window around it is read.
    """

    task: str
    instruction: str
    text: str
    pair: str | None
    categories: Categories
    given: Categories = ()
    around: tuple[int, int] | None = None

    @property
    def region(self) -> Region:
        """The union of the tables' regions."""
        found = Region(0)
        for category in self.categories:
            found |= REGIONS[category.kind]
        return found


class Lost(NamedTuple):
    """A span of a record that no gold cell stands for."""

    reason: str
    span: int


class Link(NamedTuple):
    """What a record says of two of its spans. A window holds it where it holds both gold cells of one of `cells`;
    a link without cells is lost."""

    head: int
    tail: int
    cells: list[tuple[int, int]]


@dataclass(slots=True)
class Targets:
    """Gold cells of one pass over a whole text.

    `gold_anchors` [a]: categories that hold at their anchor, ascending. `gold_cells` [g, 3]: category, first
    token, last token (inclusive). `spans` [g]: the record's span that each cell stands for, -1 where it is a cell
    of a link, and `fits` [g] how well it does (`Fit`). `lost`: spans without a cell, where the reason is known.
    """

    gold_anchors: Ids
    gold_cells: Ids
    spans: Ids
    fits: npt.NDArray[np.int8]
    lost: list[Lost] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)


class Cells(NamedTuple):
    """Scored cells of one text, one entry each: category, first token, last token (inclusive), logit."""

    category: Ids
    start: Ids
    end: Ids
    score: Scores

    def only(self, chosen: npt.NDArray[Any]) -> Cells:
        """The chosen cells, by a mask or by their numbers."""
        return Cells(self.category[chosen], self.start[chosen], self.end[chosen], self.score[chosen])


class Scored(NamedTuple):
    """What the model says of one text: `anchor` [k], the logit of each category's anchor cell, and the cells of
    its text region that are worth decoding."""

    anchor: Scores
    cells: Cells


class Decode(Protocol):
    """Annotations from the scores of a query's tables: those that a lower threshold gives, without the ones below
    `threshold`, a logit. `overlap`: what becomes of mentions that share a token."""

    def __call__(
        self, query: Query, encoding: Encoding, scored: Scored, *, threshold: float, overlap: Overlaps
    ) -> Sequence[Prediction]: ...


class SecondPass(NamedTuple):
    """Questions that arise from the answers to the first ones.

    `targets`: from a record. `ask`: from the first predictions. `decode`: the answers to one of these questions.
    `join`: the first predictions and the answers to their questions, in order, as predictions.
    """

    targets: Callable[[Record, Encoding], list[tuple[Query, Targets]]]
    ask: Callable[[Query, Encoding, Sequence[Prediction]], list[Query]]
    decode: Decode
    join: Callable[[Query, Sequence[Prediction], Sequence[Sequence[Prediction]]], list[Prediction]]


def _as_they_are(categories: Categories) -> Categories:
    return categories


@dataclass(slots=True, frozen=True)
class Objective:
    """A task.

    `kind`: of a category that a person names. `targets`: gold cells of a record whose text was tokenised to an
    encoding, over the tables that `tables` makes of its categories. `blocks`: its texts have no candidate
    categories, and are cut into blocks. `generates`: what is wanted of a text is another one.
    """

    kind: Kind
    targets: Callable[[Record, Encoding], Targets]
    decode: Decode
    tables: Callable[[Categories], Categories] = _as_they_are
    second: SecondPass | None = None
    blocks: bool = False
    generates: bool = False

    @property
    def tabular(self) -> bool:
        """Whether its annotations are cells of structure tables."""
        return not (self.blocks or self.generates)

    def query(self, task: str, instruction: str, text: str, pair: str | None, categories: Categories) -> Query:
        """The first question about a text."""
        return Query(task, instruction, text, pair, self.tables(categories), given=categories)


@cache
def objectives() -> list[str]:
    """Tasks that can be trained: the files beside this one."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def objective(task: str) -> Objective:
    """The objective of a task.

    Raises:
        UserError: there is no such task.
    """
    if task not in objectives():
        raise UserError(f"there is no task {task!r}; expected one of {', '.join(objectives())}")
    return cast(Objective, import_module(f"{__name__}.{task}").OBJECTIVE)


def passes(record: Record, encoding: Encoding) -> list[tuple[Query, Targets]]:
    """All that is asked of a record in training, with the right answers: its first question, then the others."""
    task = objective(record.task)
    query = task.query(record.task, record.instruction, record.text, record.pair, record.categories)
    first = (query, task.targets(record, encoding))
    return [first, *(task.second.targets(record, encoding) if task.second else ())]


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
    return Scored(anchor, Cells(category, start, end, score).only(kept))
