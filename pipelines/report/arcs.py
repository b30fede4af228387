"""Lay out the relations of a record as arcs over the mentions that they join, in the order of the text.

The drawing is SVG in cells of a fixed width, so it needs no script and no font metrics. It is one line, and a wide
one scrolls, so that words of any script and direction keep their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rich.cells import cell_len

from pipelines.report.visible import fitted
from ubert.schema.checks import covered
from ubert.schema.record import Record, Relation, Span

MAX_RELATIONS = 40  # relations that are drawn; more can't be told apart
CELL = 7.5  # pixels of a letter
PADDING, GAP, LANE = 5, 18, 20  # pixels inside a box, between boxes, and between lanes of arcs
MENTION, LABEL = 32, 40  # most letters of a mention, and of a category


class Box(NamedTuple):
    """A mention. `x` and `width`, in pixels, are those of its words."""

    words: str
    colour: int
    x: float
    width: float

    @property
    def middle(self) -> float:
        """Return the horizontal position at which arcs begin and end."""
        return self.x + self.width / 2


class Arc(NamedTuple):
    """A relation from `start` to `end`, `height` pixels above the boxes."""

    label: str
    start: float
    end: float
    height: int

    @property
    def middle(self) -> float:
        """Return the horizontal position of the label's middle."""
        return (self.start + self.end) / 2

    @property
    def width(self) -> float:
        return _pixels(self.label) + PADDING

    @property
    def reach(self) -> tuple[float, float]:
        """Return the horizontal range that the arc and its label need."""
        left, right = sorted((self.start, self.end))
        half = self.width / 2
        return min(left, self.middle - half), max(right, self.middle + half)


class Arcs(NamedTuple):
    """A drawing: boxes in a row, arcs above them. `left` and `right` are its bounds."""

    boxes: list[Box]
    arcs: list[Arc]
    left: float
    right: float
    height: int


def arcs(record: Record, most: int, colour: Callable[[Span], int]) -> Arcs | None:
    """Return the drawing of the first `most` relations of a record, or None if it has none. `colour` returns the
    colour of a mention."""
    relations = record.relations[: min(most, MAX_RELATIONS)]
    if not relations:
        return None
    boxes = _boxes(record, relations, colour)
    drawn = list(_in_lanes(_flat(record, relations, boxes)))
    row = list(boxes.values())
    left = min(row[0].x - PADDING, *(arc.reach[0] for arc in drawn))
    right = max(row[-1].x + row[-1].width + PADDING, *(arc.reach[1] for arc in drawn))
    return Arcs(row, drawn, left, right, max(arc.height for arc in drawn))


def _boxes(record: Record, relations: list[Relation], colour: Callable[[Span], int]) -> dict[int, Box]:
    """Return a box for each mention that a relation joins, by its index, in the order of the text."""
    joined = {end for one in relations for end in (one.head, one.tail)}
    boxes, x = dict[int, Box](), float(PADDING)
    for i in sorted(joined, key=lambda i: (record.spans[i].side == "pair", record.spans[i].start, i)):
        span = record.spans[i]
        words = fitted(covered(record, span), MENTION)
        boxes[i] = Box(words, colour(span), x, _pixels(words))
        x += boxes[i].width + 2 * PADDING + GAP
    return boxes


def _flat(record: Record, relations: list[Relation], boxes: dict[int, Box]) -> Iterator[Arc]:
    """Yield the arcs without their heights. Arcs to the left and to the right meet a box at two points."""
    for one in relations:
        start, end = boxes[one.head].middle, boxes[one.tail].middle
        aside = PADDING if start <= end else -PADDING
        yield Arc(fitted(record.categories[one.category].name, LABEL), start + aside, end - aside, 0)


def _in_lanes(flat: Iterator[Arc]) -> Iterator[Arc]:
    """Yield the arcs with their heights, as low as possible and short ones below. Arcs that overlap have different
    lanes."""
    lanes: list[list[tuple[float, float]]] = []
    for arc in sorted(flat, key=lambda arc: (abs(arc.end - arc.start), arc.reach)):
        left, right = arc.reach
        free = (i for i, lane in enumerate(lanes) if all(right < start or end < left for start, end in lane))
        lane = next(free, len(lanes))
        if lane == len(lanes):
            lanes.append([])
        lanes[lane].append(arc.reach)
        yield arc._replace(height=(lane + 1) * LANE)


def _pixels(words: str) -> float:
    return cell_len(words) * CELL
