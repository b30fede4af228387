"""Prepare a record for a page: its text in pieces with marks around mentions, and facts below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipelines.report.arcs import Arcs, arcs
from pipelines.report.facts import FEW, Fact, Most, anchor, facts, name
from pipelines.report.visible import shortened, visible
from pipelines.sources.places import record_place
from ubert.schema.record import Record, Side, Span

BEFORE = 200  # characters that are shown before the first mention if it is far into the text
HEIGHTS = 4  # greatest height of nested marks
COLOURS, STYLES = 7, 4  # colours, and styles of underlining, that distinguish categories


@dataclass(frozen=True)
class Mark:
    """A mention, or a part of one that crosses another.

    `span` is its index in the record, and `height` the depth of the marks inside it. `label` and `anchor`, the
    mention's id in the page, are empty except at the last part of the mention.
    """

    span: int
    colour: int
    style: int
    label: str
    anchor: str = ""
    height: int = 0


@dataclass(frozen=True)
class Piece:
    """Words of a text, or the start (`mark`) or end (`closes`) of a mark."""

    words: str = ""
    mark: Mark | None = None
    closes: bool = False


@dataclass(frozen=True)
class Passage:
    """The part of a text that is shown. `before` and `after` count the characters around it, and `elsewhere` the
    mentions outside it."""

    side: Side
    pieces: list[Piece]
    before: int
    after: int
    elsewhere: int


@dataclass(frozen=True)
class Shown:
    """A record as the page shows it."""

    record_id: str
    place: str
    split: str
    instruction: str
    passages: list[Passage]
    legend: list[Mark]
    facts: list[Fact]
    arcs: Arcs | None

    @property
    def anchors(self) -> set[str]:
        """Return the ids of the mentions and events on the page, which are the targets of links."""
        pieces = (piece for passage in self.passages for piece in passage.pieces)
        return {piece.mark.anchor for piece in pieces if piece.mark} | {fact.anchor for fact in self.facts}


def shown(record: Record, most: Most = FEW) -> Shown:
    sides: list[Side] = ["text"] if record.pair is None else ["text", "pair"]
    return Shown(
        record_id=visible(record.record_id),
        place=visible(record_place(record)),
        split=record.split,
        instruction=visible(record.instruction),
        passages=[_passage(record, side, most.characters) for side in sides],
        legend=_legend(record),
        facts=list(facts(record, most)),
        arcs=arcs(record, most.items, lambda span: _style_number(record, span) % COLOURS),
    )


def _legend(record: Record) -> list[Mark]:
    """Return a mark for each category of the mentions, in the order of the record's categories."""
    if record.task == "qa":
        return []
    first = {span.category: i for i, span in reversed([*enumerate(record.spans)]) if span.category is not None}
    return [replace(_mark(record, i), label=name(record, category)) for category, i in sorted(first.items())]


def _passage(record: Record, side: Side, characters: int) -> Passage:
    text = record.text if side == "text" else record.pair or ""
    mentions = sorted(((span.start, -span.end, i) for i, span in enumerate(record.spans) if span.side == side))
    start = 0
    if mentions and mentions[0][0] > characters - BEFORE:
        start = mentions[0][0] - BEFORE
    end = min(len(text), start + characters)
    inside = [i for begin, _, i in mentions if begin >= start and record.spans[i].end <= end]
    return Passage(
        side, _pieces(record, text, inside, start, end), start, len(text) - end, len(mentions) - len(inside)
    )


def _pieces(record: Record, text: str, mentions: Sequence[int], start: int, end: int) -> list[Piece]:
    """Return the text from `start` to `end` with a mark around each mention, outer ones first. A mark that crosses
    another is split at its boundary."""
    pieces: list[Piece] = []
    opened: list[int] = []
    spans = record.spans
    waiting = list(reversed(mentions))
    bounds = sorted({start, end, *(at for i in mentions for at in (spans[i].start, spans[i].end))})
    for at, following in zip(bounds, [*bounds[1:], end], strict=True):
        again: list[int] = []
        while any(spans[i].end == at for i in opened):
            i = opened.pop()
            pieces.append(Piece(closes=True))
            if spans[i].end > at:
                again.append(i)
        beginning = list(reversed(again))
        while waiting and spans[waiting[-1]].start == at:
            beginning.append(waiting.pop())
        for i in sorted(beginning, key=lambda i: -spans[i].end):
            opened.append(i)
            pieces.append(Piece(mark=_mark(record, i)))
        if at < following:
            pieces.append(Piece(visible(text[at:following])))
    return _finished(pieces)


def _finished(pieces: list[Piece]) -> list[Piece]:
    """Set the heights of marks, and keep the label only at the last part of each mention."""
    last = {piece.mark.span: i for i, piece in enumerate(pieces) if piece.mark}
    heights = [0] * len(pieces)
    opened: list[int] = []
    for i, piece in enumerate(pieces):
        if piece.mark:
            opened.append(i)
        elif piece.closes:
            inner = opened.pop()
            if opened:
                heights[opened[-1]] = max(heights[opened[-1]], heights[inner] + 1)

    def finished(i: int, mark: Mark) -> Mark:
        whole = mark if last[mark.span] == i else replace(mark, label="", anchor="")
        return replace(whole, height=min(heights[i], HEIGHTS))

    return [
        replace(piece, mark=finished(i, piece.mark)) if piece.mark else piece for i, piece in enumerate(pieces)
    ]


def _style_number(record: Record, span: Span) -> int:
    """Return the number that decides a mention's style: its category, or its group if it has none (clusters)."""
    return (span.group or 0) if span.category is None else span.category


def _mark(record: Record, index: int) -> Mark:
    span = record.spans[index]
    names = [] if span.category is None or record.task == "qa" else [record.categories[span.category].name]
    group = [] if span.group is None else [f"#{span.group}"]
    look = _style_number(record, span)
    label = shortened(" ".join(names + group), 40)
    return Mark(index, look % COLOURS, look // COLOURS % STYLES, label, anchor(record, index))
