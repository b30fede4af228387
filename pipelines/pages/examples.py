"""Show a short example of each corpus with its mentions, for the page of datasets."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from html import escape

from msgspec.structs import replace

from pipelines.report.facts import Fact
from pipelines.report.records import Piece, shown
from pipelines.report.visible import shortened
from pipelines.store.storage import StorePath
from pipelines.store.warehouse import sql
from ubert.schema.arrow import batch_to_records
from ubert.schema.licence import POLICIES, licence_class
from ubert.schema.record import Event, Record
from ubert.schema.specs.dataset import DatasetSpec

AROUND = 80  # characters of a text that are quoted
WORDS = 60  # limit of the name of a category, and of an answer, in characters
_ABUSE = re.compile(r"\b(hate|offen[cs]|abus|toxic|insult|misogyn|sexis|racis|harass|beleidig)", re.IGNORECASE)
# One record of each corpus, preferably annotated, from the training split, and about `AROUND` characters long.
_CHOSEN = f"""
WITH chosen AS (
    SELECT arg_min(record_id, {{
        bare: len(spans) + len(labels) = 0 AND value IS NULL AND target IS NULL
            OR task IN ('relation', 'event') AND len(relations) + len(events) = 0,
        elsewhere: split <> 'train', far: abs(len(text) - {AROUND}), key: key
    }}) AS record_id FROM records GROUP BY corpus
)
SELECT * FROM records SEMI JOIN chosen USING (record_id) ORDER BY record_id
"""
_MARKDOWN = r"\`*_[]|~$^=:#@(){}!"  # characters that may have a meaning in Markdown


def left_out(spec: DatasetSpec) -> str | None:
    """Return why a dataset has no example on the page, or None if it has one."""
    # Both the publisher's words, without further conditions, and the spec's class must permit commercial use.
    if not {licence_class(spec.licence), spec.licence_class} <= POLICIES["commercial"]:
        return "licence"
    return "abusive language" if _ABUSE.search(f"{spec.description} {spec.instruction}") else None


def one_of_each(root: StorePath, corpora: Collection[str]) -> dict[str, Record]:
    """Return a record of each corpus. The same store gives the same records."""
    return {record.corpus: record for record in batch_to_records(sql(root, _CHOSEN, corpora))}


def drawn(record: Record) -> str:
    """Quote a record with marks around its mentions and its other facts, as HTML in Markdown."""
    found = shown(quoted(record))
    texts = ("".join(_html(passage.pieces)).strip() for passage in found.passages)
    facts = (" · ".join(words) for fact in found.facts if (words := list(_words(fact))))
    return " / ".join([*texts, *(f"<em>{plain(fact)}</em>" for fact in facts)])


def _words(fact: Fact) -> Iterator[str]:
    """Yield the words of a fact, but only the right ones of labels and options."""
    for role, words, _ in fact.line:
        if role == "chosen" or not fact.name.startswith(("label", "option")):
            yield shortened(words, WORDS)


def _html(pieces: Iterable[Piece]) -> Iterator[str]:
    labels: list[str] = []
    for piece in pieces:
        if piece.mark:
            labels.append(piece.mark.label)
            yield "<mark>"
        elif piece.closes:
            label = labels.pop()
            yield (f" <small>{plain(label)}</small>" if label else "") + "</mark>"
        else:
            yield plain(piece.words)


def plain(text: str) -> str:
    """Return text in one line, escaped for HTML and Markdown."""
    line = re.sub(r"\s+", " ", text)
    return "".join(f"&#{ord(c)};" if c in _MARKDOWN else escape(c) for c in line)


def quoted(record: Record) -> Record:
    """Cut the text of a record to a short piece around its first relation, event or mention."""
    spans = [record.spans[i] for i in _first(record) if record.spans[i].side == "text"]
    begin = min((span.start for span in spans), default=0)
    end = max((span.end for span in spans), default=0)
    start, stop = _window(record.text, begin, min(end, begin + AROUND))
    before, after = "…" * (start > 0), "…" * (stop < len(record.text))
    moved = {
        i: replace(span, start=span.start - start + len(before), end=span.end - start + len(before))
        for i, span in enumerate(record.spans)
        if span.side == "text" and start <= span.start and span.end <= stop
    }
    place = {old: new for new, old in enumerate(moved)}
    relations = [
        replace(one, head=place[one.head], tail=place[one.tail])
        for one in record.relations
        if one.head in place and one.tail in place
    ]
    return replace(
        record,
        text=before + record.text[start:stop] + after,
        pair=record.pair and shortened_end(record.pair),
        target=record.target and shortened_end(record.target),
        spans=list(moved.values()),
        relations=relations[:1],
        events=list(_events(record, place))[:1],
    )


def _first(record: Record) -> list[int]:
    """Return the spans of the first relation, else of the first event, else the first span."""
    if record.relations:
        return [record.relations[0].head, record.relations[0].tail]
    if record.events:
        of_event = [record.events[0].trigger, *(argument.span for argument in record.events[0].arguments)]
        return [i for i in of_event if i is not None]
    return [0] if record.spans else []


def _window(text: str, begin: int, end: int) -> tuple[int, int]:
    """Return a range of about `AROUND` characters around [begin, end), at word boundaries if possible."""
    room = max(0, AROUND - (end - begin))
    start = max(0, begin - room // 2)
    stop = min(len(text), max(end, start + AROUND))
    start = max(0, min(start, stop - AROUND))
    if start and " " in text[start:begin]:
        start = text.index(" ", start) + 1
    if stop < len(text) and " " in text[end:stop]:
        stop = text.rindex(" ", end, stop)
    return start, stop


def _events(record: Record, place: dict[int, int]) -> Iterator[Event]:
    for event in record.events:
        if event.trigger in place:
            arguments = [
                replace(argument, span=place[argument.span])
                for argument in event.arguments
                if argument.span in place
            ]
            yield replace(event, trigger=place[event.trigger], arguments=arguments)


def shortened_end(text: str) -> str:
    """Cut a text to about `AROUND` characters."""
    _, stop = _window(text, 0, 0)
    return text[:stop] + "…" * (stop < len(text))
