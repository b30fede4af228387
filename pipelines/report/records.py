"""Prepare a record for a page: its text in pieces with marks around mentions, and facts below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pipelines.report.visible import shortened, visible
from ubert.schema.checks import covered
from ubert.schema.record import Event, Record, Side, Span

BEFORE = 200  # characters that are shown before the first mention if it is far into the text
WORDS = 160  # limit of one item in characters
HEIGHTS = 4  # greatest height of nested marks
COLOURS, STYLES = 7, 4  # colours, and styles of underlining, that distinguish categories


class Most(NamedTuple):
    """How much of a record is shown: characters of a text, and items of a list."""

    characters: int = 1200
    items: int = 12


FEW, ALL = Most(), Most(200_000, 5_000)


@dataclass(frozen=True)
class Mark:
    """A mention, or a part of one that crosses another.

    `span` is its index in the record, and `height` the depth of the marks inside it. `label` is empty except at
    the last part of the mention.
    """

    span: int
    colour: int
    style: int
    label: str
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
class Fact:
    """One line below the text. `parts` are pairs (role, words); a role is `words`, `category` or `chosen`."""

    name: str
    parts: list[tuple[str, str]]


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


def shown(record: Record, most: Most = FEW) -> Shown:
    """Prepare a record for the page."""
    sides: list[Side] = ["text"] if record.pair is None else ["text", "pair"]
    return Shown(
        record_id=visible(record.record_id),
        place=visible(f"{record.source.path}:{record.source.line}"),
        split=record.split,
        instruction=visible(record.instruction),
        passages=[_passage(record, side, most.characters) for side in sides],
        legend=_legend(record),
        facts=list(_facts(record, most)),
    )


def _legend(record: Record) -> list[Mark]:
    """Return a mark for each category of the mentions, in the order of the record's categories."""
    if record.task == "qa":
        return []
    first = {span.category: i for i, span in reversed([*enumerate(record.spans)]) if span.category is not None}
    return [replace(_mark(record, i), label=_name(record, category)) for category, i in sorted(first.items())]


def _passage(record: Record, side: Side, characters: int) -> Passage:
    text = record.text if side == "text" else record.pair or ""
    mentions = sorted(
        ((span.start, -span.end, i) for i, span in enumerate(record.spans) if span.side == side),
    )
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
        return replace(mark, height=min(heights[i], HEIGHTS), label=mark.label if last[mark.span] == i else "")

    return [
        replace(piece, mark=finished(i, piece.mark)) if piece.mark else piece for i, piece in enumerate(pieces)
    ]


def _look(record: Record, span: Span) -> int:
    """Return the number that decides a mention's look: its category, or its group if it has none (clusters)."""
    return (span.group or 0) if span.category is None else span.category


def _mark(record: Record, index: int) -> Mark:
    span = record.spans[index]
    names = [] if span.category is None or record.task == "qa" else [record.categories[span.category].name]
    group = [] if span.group is None else [f"#{span.group}"]
    look = _look(record, span)
    return Mark(index, look % COLOURS, look // COLOURS % STYLES, shortened(" ".join(names + group), 40))


def _facts(record: Record, most: Most) -> Iterator[Fact]:
    yield from _answers(record, most)
    if record.value is not None:
        yield Fact("value", [("chosen", f"{record.value:g}")])
    if record.target is not None:
        yield Fact("target", [("words", shortened(record.target, most.characters))])
    relations = [
        [
            _words(record, relation.head),
            ("category", _name(record, relation.category)),
            _words(record, relation.tail),
        ]
        for relation in record.relations[: most.items]
    ]
    yield from (Fact("relation", parts) for parts in relations)
    yield from (Fact(f"event {i}", _event(record, event)) for i, event in enumerate(record.events[: most.items]))
    left = max(0, len(record.relations) - most.items) + max(0, len(record.events) - most.items)
    if left:
        yield Fact("", [("words", f"and {left:,} more")])


def _answers(record: Record, most: Most) -> Iterator[Fact]:
    match record.task:
        case "qa":
            yield from (
                Fact("question", [("category", shortened(c.name, most.characters))]) for c in record.categories
            )
            answers = [("chosen", shortened(covered(record, span), WORDS)) for span in record.spans[: most.items]]
            yield Fact("answer", answers or [("words", "none in the text")])
        case "choice":
            for i, option in enumerate(record.categories[: most.items]):
                role = "chosen" if i in record.labels else "words"
                yield Fact(f"option {i + 1}", [(role, shortened(option.name, WORDS))])
        case "classification" | "multilabel" | "pair":
            others = [i for i in range(len(record.categories)) if i not in record.labels]
            few = others if len(others) <= most.items else []
            parts = [("chosen", _name(record, i)) for i in record.labels] or [("words", "none")]
            parts += [("words", _name(record, i)) for i in few]
            yield Fact("label", parts if few else [*parts, ("words", f"of {len(record.categories):,}")])


def _event(record: Record, event: Event) -> list[tuple[str, str]]:
    parts = [("category", _name(record, event.category))]
    if event.trigger is not None:
        parts.append(_words(record, event.trigger))
    for argument in event.arguments:
        parts.append(("category", _name(record, argument.role)))
        parts.append(
            ("words", f"event {argument.event}") if argument.span is None else _words(record, argument.span)
        )
    return parts


def _words(record: Record, span: int) -> tuple[str, str]:
    return "words", shortened(covered(record, record.spans[span]), WORDS)


def _name(record: Record, category: int) -> str:
    return shortened(record.categories[category].name, WORDS)
