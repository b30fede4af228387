"""Draw predictions as HTML: spans as coloured underlines, which may nest and cross, and the rest as a list.

Styles are inline, because notebooks and mail clients strip style sheets.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

from ubert.objectives import (
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

COLOURS = ("0,114,178", "213,94,0", "0,158,115", "204,121,167", "86,180,233", "230,159,0", "150,120,200")
LANE = 5  # pixels from one underline to the next
LANES = 6  # underlines of a word; more would cover the next line
TEXT = "line-height:2.4;white-space:pre-wrap;overflow-wrap:anywhere"
LABEL = "font-size:.7em;font-weight:600;opacity:.75;user-select:none;margin:0 .4em 0 .2em"


class Mark(NamedTuple):
    """Characters [start, end) with a label. Marks of one label have one colour."""

    start: int
    end: int
    label: str
    score: float


def predictions_to_html(text: str, predictions: Sequence[Prediction], pair: str | None = None) -> str:
    """Draw predictions of any task."""
    marks = list(dict.fromkeys(_marks(predictions)))
    facts = "".join(f"<li>{fact}</li>" for fact in map(_fact, predictions) if fact)
    second = "" if pair is None else f'<div style="{TEXT};opacity:.75">{escape(pair)}</div>'
    return _drawn(text, marks) + second + (f"<ul>{facts}</ul>" if facts else "")


def _marks(predictions: Iterable[Prediction]) -> Iterator[Mark]:
    for number, prediction in enumerate(predictions, 1):
        match prediction:
            case SpanPrediction():
                yield _mark(prediction)
            case DiscontinuousPrediction(category, fragments):
                yield from (_mark(fragment, category) for fragment in fragments)
            case RelationPrediction(_, head, tail):
                yield from (_mark(head), _mark(tail))
            case EventPrediction(category, trigger, arguments):
                yield from (_mark(trigger, category), *map(_mark, arguments))
            case ClusterPrediction(mentions):
                yield from (_mark(mention, f"#{number}") for mention in mentions)


def _mark(span: SpanPrediction, label: str | None = None) -> Mark:
    return Mark(span.start, span.end, span.category if label is None else label, span.score)


def _fact(prediction: Prediction) -> str:
    """Describe a prediction that underlines don't show; empty for the others."""
    match prediction:
        case LabelPrediction(category, score):
            return f"<b>{escape(category)}</b> {score:.2f}"
        case ValuePrediction(value):
            return f"<b>{value:.3g}</b>"
        case TextPrediction(nats, masked):
            return f"{nats:.2f} nats over {masked:,} tokens"
        case WrittenPrediction(text, score):
            return f"{escape(text)} {score:.2f}"
        case RelationPrediction(category, head, tail, score):
            return f"{escape(head.text)} → <b>{escape(category)}</b> → {escape(tail.text)} {score:.2f}"
        case EventPrediction(category, trigger, arguments):
            found = "".join(f"; {escape(one.category)}: {escape(one.text)}" for one in arguments)
            return f"<b>{escape(category)}</b>: {escape(trigger.text)}{found}"
    return ""


def _drawn(text: str, marks: Sequence[Mark]) -> str:
    """Draw the text with its marks, split wherever a mark begins or ends."""
    colours = {label: COLOURS[i % len(COLOURS)] for i, label in enumerate(dict.fromkeys(m.label for m in marks))}
    lane_of = lanes(marks)
    drawn = [i for i, lane in enumerate(lane_of) if lane < LANES]
    bounds = sorted({0, len(text), *(at for i in drawn for at in (marks[i].start, marks[i].end))})
    starting = defaultdict[int, list[int]](list)
    for i in drawn:
        starting[marks[i].start].append(i)
    parts, covering = [], list[int]()  # the marks of a part
    for start, end in pairwise(bounds):
        part = escape(text[start:end])
        covering = sorted([*(i for i in covering if marks[i].end > start), *starting[start]])
        for i in sorted(covering, key=lane_of.__getitem__):
            mark, lane = marks[i], lane_of[i]
            colour = colours[mark.label]
            line = f"border-bottom:3px solid rgb({colour});padding-bottom:{LANE * lane}px"
            title = f"{escape(mark.label)} {mark.score:.2f}"
            part = f'<span style="{line};background:rgba({colour},.14)" title="{title}">{part}</span>'
        labels = "".join(
            f'<span style="{LABEL};color:rgb({colours[marks[i].label]})">{escape(marks[i].label)}</span>'
            for i in covering
            if marks[i].end == end
        )
        parts.append(part + labels)
    left = len(marks) - len(drawn)
    note = f'<p style="{LABEL}">and {left:,} more that overlap these</p>' if left else ""
    return f'<div style="{TEXT}">{"".join(parts)}</div>{note}'


def lanes(marks: Sequence[Mark]) -> list[int]:
    """Assign a lane to each mark, counted from the text down.

    Shorter marks are nearer to the text, and marks that overlap have different lanes.
    """
    found = [0] * len(marks)
    rows: list[list[tuple[int, int]]] = []  # the places of each lane's marks, in order
    for i in sorted(range(len(marks)), key=lambda i: (marks[i].end - marks[i].start, marks[i].start)):
        place = (marks[i].start, marks[i].end)
        found[i] = next((lane for lane, row in enumerate(rows) if _is_free(row, place)), len(rows))
        if found[i] == len(rows):
            rows.append([])
        insort(rows[found[i]], place)
    return found


def _is_free(row: Sequence[tuple[int, int]], place: tuple[int, int]) -> bool:
    """Whether a place overlaps none of a row's, which are in order and don't overlap each other."""
    at = bisect(row, place)
    return (at == 0 or row[at - 1][1] <= place[0]) and (at == len(row) or place[1] <= row[at][0])
