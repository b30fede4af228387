"""The structure tables of a text, with cell probabilities, for visualisation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from ubert.inference.predictor import Predictor
from ubert.objectives import Query
from ubert.structure.batch import REGIONS, Region

MIN_PROBABILITY = 0.005  # minimum probability of a cell to show
EVERY = -1e9  # a threshold below every logit


@dataclass(slots=True, frozen=True)
class TokenSpan:
    """Characters [start, end) of a text."""

    start: int
    end: int


@dataclass(slots=True, frozen=True)
class CategoryTable:
    """The table of a category.

    Attributes:
        anchor: probability that a label holds for the whole text, or that a question has no answer in the first
            window; None if the kind has no anchor.
        cells: first token, last token (inclusive) and probability.
    """

    category: str
    kind: str
    anchor: float | None
    cells: list[tuple[int, int, float]]


@dataclass(slots=True, frozen=True)
class StructureTables:
    """The tokens of a text and the tables of its categories."""

    tokens: list[TokenSpan]
    tables: list[CategoryTable]


def structure_tables(predictor: Predictor, query: Query) -> StructureTables:
    """Score every cell of a query's tables in the first window of its text, or its labels in the whole text.

    Raises:
        UserError: the model has no structure table, or a category leaves no room for the text.
    """
    predictor.model.structure_table()
    encoding, scored = predictor.first_window(query, EVERY)
    anchors, probabilities = (expit(logits.astype(np.float64)) for logits in (scored.anchor, scored.cells.score))
    tables = []
    for i, category in enumerate(query.categories):
        chosen = (scored.cells.category == i) & (probabilities >= MIN_PROBABILITY)
        columns = (scored.cells.start[chosen], scored.cells.end[chosen], np.round(probabilities[chosen], 3))
        anchored = REGIONS[category.kind] & Region.ANCHOR
        tables.append(
            CategoryTable(
                category.name,
                category.kind,
                round(float(anchors[i]), 3) if anchored else None,
                list(zip(*(column.tolist() for column in columns), strict=True)),
            )
        )
    starts, ends = encoding.starts.tolist(), encoding.ends.tolist()
    return StructureTables(list(map(TokenSpan, starts, ends)), tables)
