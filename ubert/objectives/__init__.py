"""The objective of a task: its queries about a text, the right answers as gold cells, and how to decode scores.

Each task has a file in `tasks`, with an `OBJECTIVE`. It is found by its file name.
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
from ubert.objectives.predictions import (
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
from ubert.schema.record import Category, Kind, Record
from ubert.schema.specs.recipe import Overlap
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
"""One policy for all categories, or a policy by category name (the default is `highest`). Mentions compete
only with mentions of categories with the same policy."""


@dataclass(slots=True, frozen=True)
class Query:
    """The question about a text in one pass. Each of the `categories` is a table. `given`: all candidates; a
    task may spread them over several passes.

    `around`: first and last token of the place that the question is about, if there is one. In a long text, only
    a window around it is read.
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
        for kind in {category.kind for category in self.categories}:
            found |= REGIONS[kind]
        return found


class Lost(NamedTuple):
    """A span of a record without a gold cell."""

    reason: str
    span: int


class Link(NamedTuple):
    """A link between two spans of a record. A window contains the link if it contains both gold cells of one
    of `cells`. A link without cells is lost."""

    head: int
    tail: int
    cells: list[tuple[int, int]]


@dataclass(slots=True)
class Targets:
    """Gold cells of one pass over a whole text.

    `gold_anchors` [a]: categories that hold at their anchor, ascending. `gold_cells` [g, 3]: category, first
    token, last token (inclusive). `spans` [g]: the record's span of each cell, -1 for a cell of a link.
    `fits` [g]: how well the cell fits it (`Fit`). `lost`: spans without a cell, with the reason if it is
    known.
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
        """Select cells by a mask or by their indices."""
        return Cells(self.category[chosen], self.start[chosen], self.end[chosen], self.score[chosen])


class Scored(NamedTuple):
    """A model's scores of one text: `anchor` [k], the logit of each category's anchor, and the cells of the
    text region that are worth decoding."""

    anchor: Scores
    cells: Cells


class Decode(Protocol):
    """Decodes the scores of a query's tables to annotations.

    A higher `threshold` (a logit) only removes annotations. `overlap`: what happens to mentions that share a
    character.
    """

    def __call__(
        self, query: Query, encoding: Encoding, scored: Scored, *, threshold: float, overlap: Overlaps
    ) -> Sequence[Prediction]: ...


class SecondPass(NamedTuple):
    """Follow-up questions, which depend on the answers to the first ones.

    `targets`: from a record. `ask`: from the first predictions. `decode`: the answers to one follow-up
    question. `join`: combines the first predictions with the answers to their questions, in order.
    """

    targets: Callable[[Record, Encoding], list[tuple[Query, Targets]]]
    ask: Callable[[Query, Encoding, Sequence[Prediction]], list[Query]]
    decode: Decode
    join: Callable[[Query, Sequence[Prediction], Sequence[Sequence[Prediction]]], list[Prediction]]


@dataclass(slots=True, frozen=True)
class Objective:
    """A task.

    `kind`: the kind of a category that a user names. `targets`: gold cells of a tokenised record, over the
    tables that `tables` derives from its categories. `blocks`: its texts have no candidate categories, and
    are cut into blocks. `generates`: its output is a text.
    """

    kind: Kind
    targets: Callable[[Record, Encoding], Targets]
    decode: Decode
    tables: Callable[[Categories], Categories] = lambda categories: categories
    second: SecondPass | None = None
    blocks: bool = False
    generates: bool = False

    @property
    def tabular(self) -> bool:
        """Whether its annotations are cells of structure tables."""
        return not (self.blocks or self.generates)

    def query(self, task: str, instruction: str, text: str, pair: str | None, categories: Categories) -> Query:
        """Return the first question about a text."""
        return Query(task, instruction, text, pair, self.tables(categories), given=categories)


@cache
def objectives() -> list[str]:
    """List the tasks that can be trained: those with a file in `tasks`."""
    modules = pkgutil.iter_modules([f"{path}/tasks" for path in __path__])
    return sorted(module.name for module in modules if not module.name.startswith("_"))


def objective(task: str) -> Objective:
    """Return the objective of a task.

    Raises:
        UserError: there is no such task.
    """
    if task not in objectives():
        raise UserError(f"there is no task {task!r}; expected one of {', '.join(objectives())}")
    return cast(Objective, import_module(f"{__name__}.tasks.{task}").OBJECTIVE)


def passes(record: Record, encoding: Encoding) -> list[tuple[Query, Targets]]:
    """Return all questions about a record in training, with the right answers; follow-up questions come last."""
    task = objective(record.task)
    query = task.query(record.task, record.instruction, record.text, record.pair, record.categories)
    first = (query, task.targets(record, encoding))
    return [first, *(task.second.targets(record, encoding) if task.second else ())]


def merge(windows: Sequence[tuple[int, Scored]]) -> Scored:
    """Merge the scores of overlapping windows to scores of their text.

    A cell in several windows keeps its best score. An anchor keeps its lowest: a text has no answer when none
    of its windows has one (BERT, section 4.2, over windows).

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
