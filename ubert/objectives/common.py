"""Conversions that the objectives share: labels to anchors, mentions to cells, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import get_args

import numpy as np

from ubert.encoder.ragged import Ids
from ubert.model.tokenizer import Encoding, Fit, TokenSpans, align
from ubert.objectives import (
    Cells,
    LabelPrediction,
    Link,
    Lost,
    Overlap,
    Overlaps,
    Query,
    Scored,
    SpanPrediction,
    Targets,
)
from ubert.schema.record import Record

Cell = tuple[int, int, int]  # table, first token, last token


class Gold:
    """Collects the gold cells of mentions and links, each cell once."""

    def __init__(self) -> None:
        self.cells: dict[Cell, int] = {}  # index of each cell
        self.spans: list[int] = []
        self.fits: list[int] = []
        self.lost: list[Lost] = []
        self.links: list[Link] = []

    def mention(self, cell: Cell, span: int, fit: int) -> int:
        """Add the cell of a span. Return its index."""
        if cell in self.cells and self.spans[self.cells[cell]] not in (-1, span):
            self.lost.append(Lost("same tokens as another", span))
        if cell not in self.cells:
            self.spans.append(span)
            self.fits.append(fit)
        return self.cells.setdefault(cell, len(self.cells))

    def link(self, table: int, head: tuple[int, int], tail: tuple[int, int]) -> tuple[int, int]:
        """Add the two cells of a link from the tokens of a head to those of a tail. Return their indices."""
        first, last = ((table, h, t) for h, t in zip(head, tail, strict=True))
        return self.mention(first, -1, Fit.EXACT), self.mention(last, -1, Fit.EXACT)

    def targets(self, anchors: Iterable[int] = ()) -> Targets:
        """Return all that was added."""
        return Targets(
            gold_anchors=np.array(sorted(set(anchors)), np.int32),
            gold_cells=np.array(list(self.cells), np.int32).reshape(-1, 3),
            spans=np.array(self.spans, np.int32),
            fits=np.array(self.fits, np.int8),
            lost=self.lost,
            links=self.links,
        )


def tokens_of(record: Record, encoding: Encoding) -> TokenSpans:
    """Return the tokens of each of the record's spans. Spans in the pair have none (LOST)."""
    found = align(encoding, [span.start for span in record.spans], [span.end for span in record.spans])
    in_pair = np.array([span.side == "pair" for span in record.spans], np.bool_)
    found.last[in_pair] = found.first[in_pair] - 1
    return found


def label_targets(record: Record, encoding: Encoding) -> Targets:
    """Return the record's labels as gold anchors."""
    return Gold().targets(record.labels)


def add_mentions(gold: Gold, record: Record, found: TokenSpans, untyped: int | None = None) -> None:
    """Add the record's spans. `untyped`: the table of spans without a category; if None, these are lost."""
    columns = (column.tolist() for column in found)
    for i, (span, first, last, fit) in enumerate(zip(record.spans, *columns, strict=True)):
        table = untyped if span.category is None else span.category
        if span.side != "text":
            gold.lost.append(Lost("in the pair", i))
        elif table is None:
            gold.lost.append(Lost("no category", i))
        elif last < first:
            gold.lost.append(Lost("no token", i))
        else:
            gold.mention((table, first, last), i, fit)


def span_targets(record: Record, encoding: Encoding) -> Targets:
    """Return the record's spans as gold cells, in order and each cell once, without anchors."""
    gold = Gold()
    add_mentions(gold, record, tokens_of(record, encoding))
    return gold.targets()


def label(query: Query, scored: Scored, category: int) -> LabelPrediction:
    """Convert a category to a prediction."""
    return LabelPrediction(query.categories[category].name, probability(float(scored.anchor[category])))


def located(query: Query, encoding: Encoding, cells: Cells, chosen: Ids) -> list[tuple[int, SpanPrediction]]:
    """Convert the chosen cells to predictions, in the given order, each with the index of its cell. Cells without
    a character are left out."""
    found = cells.only(chosen)
    columns = (chosen, *characters(encoding, found), found.category, found.score)
    return [
        (i, SpanPrediction(start, end, query.categories[table].name, query.text[start:end], probability(score)))
        for i, start, end, table, score in zip(*(column.tolist() for column in columns), strict=True)
        if start < end
    ]


def spans(query: Query, encoding: Encoding, cells: Cells, chosen: Ids) -> list[SpanPrediction]:
    """Convert the chosen cells to predictions, in the given order. Cells without a character are left out."""
    return [mention for _, mention in located(query, encoding, cells, chosen)]


def choose(query: Query, encoding: Encoding, cells: Cells, *, threshold: float, overlap: Overlaps) -> Ids:
    """Select the cells above the threshold that survive their categories' overlap policies, best first.

    `nested` keeps all of them, but if several cells of one category have equal characters, only the best. (Some
    tokenizers split a character into several tokens, such as a syllable of Hangul.) `highest` and `longest` apply
    non-maximum suppression within the policy's categories: if two cells share a character, they keep the one with
    the higher score, or the longer one.
    """
    order: Ids = best_first(cells)
    order = order[cells.score[order] > threshold]
    policies = np.array([policy(overlap, category.name) for category in query.categories], np.str_)
    policy_N = policies[cells.category[order]]
    stays = np.zeros(len(cells.score), np.bool_)
    for name in get_args(Overlap):
        several = order[policy_N == name]
        if name == "longest":
            start, end = characters(encoding, cells.only(several))
            several = several[np.argsort(start - end, kind="stable")]
        keep = _distinct if name == "nested" else _suppress_overlaps
        stays[keep(encoding, cells.only(several), several)] = True
    return order[stays[order]]


def policy(overlap: Overlaps, category: str) -> Overlap:
    """Return the overlap policy of a category."""
    return overlap.get(category, "highest") if isinstance(overlap, Mapping) else overlap


def _distinct(encoding: Encoding, cells: Cells, order: Ids) -> Ids:
    """Keep the first cell of each category and characters."""
    rows_3N = np.stack([cells.category, *characters(encoding, cells)])
    return order[np.unique(rows_3N, axis=1, return_index=True)[1]]


def _suppress_overlaps(encoding: Encoding, cells: Cells, order: Ids) -> Ids:
    """Keep the cells that share no character with a cell kept before."""
    taken = np.zeros(int(encoding.ends.max(initial=0)), np.bool_)
    found = []
    columns = (order, *characters(encoding, cells))
    for i, start, end in zip(*(column.tolist() for column in columns), strict=True):
        if not taken[start:end].any():
            taken[start:end] = True
            found.append(i)
    return np.array(found, np.int32)


def characters(encoding: Encoding, cells: Cells) -> tuple[Ids, Ids]:
    """Return the first and last character (exclusive) of each cell, without the white space at its ends. (Some
    tokenizers have tokens of only white space.) A cell without a character has first >= last."""
    solid = np.flatnonzero(encoding.starts < encoding.ends)
    first, last = np.searchsorted(solid, cells.start), np.searchsorted(solid, cells.end, side="right")
    end = encoding.ends.max(initial=0)
    return np.append(encoding.starts[solid], end)[first], np.append(np.int32(0), encoding.ends[solid])[last]


def part(cells: Cells, wanted: Iterable[int]) -> Cells:
    """Select the cells of some tables."""
    return cells.only(np.isin(cells.category, list(wanted)))


def in_order(found: Iterable[SpanPrediction]) -> list[SpanPrediction]:
    """Sort mentions by their start in the text, the longer first."""
    return sorted(found, key=lambda span: (span.start, -span.end))


def best_first(cells: Cells) -> Ids:
    """Return the indices of the cells, the best score first. Ties go to the longer, then the earlier cell."""
    order = np.lexsort((cells.category, cells.start, cells.start - cells.end, -cells.score))
    return order.astype(np.int32)


def probability(logit: float) -> float:
    return float(0.5 * (1.0 + np.tanh(0.5 * logit)))
