"""Check that a record is valid. An invalid record becomes a reject with the reason that is returned here."""

from __future__ import annotations

from ubert.schema.record import Argument, Category, Record, Span

LARGEST_VALUE = (2 - 2**-23) * 2.0**127  # largest 32-bit float; values are stored as float32


def problem(record: Record, shared: tuple[Category, ...] = ()) -> tuple[str, str] | None:
    """Return the first problem of `record` as (reason, detail), or None.

    `reason` is a short phrase to group rejects by; `detail` names the offending value.

    Args:
        shared: the categories of the spec, which are already checked. Other categories come from the row.
    """
    text, own = record.text, () if record.categories is shared else record.categories
    names, kb_ids = [category.name for category in own], [span.kb_id for span in record.spans]
    for side in (text, record.pair, record.target, record.record_id, *names, *kb_ids):
        if side is not None and not side.isascii() and not is_utf8(side):
            what = "the text, its id, one of its categories or the id of a mention"
            return "lone surrogate", f"{what} holds half of a surrogate pair and cannot be written as UTF-8"
    if not text or text.isspace():
        return "empty text", f"text is {text!r}"
    return (
        _wrong_labels(record)
        or (_wrong_spans(record) if record.spans else None)
        or (_wrong_links(record) if record.relations or record.events else None)
    )


def is_utf8(text: str) -> bool:
    """Whether a text can be encoded as UTF-8, that is, has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _wrong_labels(record: Record) -> tuple[str, str] | None:
    labels, task, several = record.labels, record.task, len(record.categories)
    for label in labels:
        if not 0 <= label < several:
            return "unknown category", f"label {label}; there are {several} categories"
    if task in ("classification", "pair", "choice"):
        return None if len(labels) == 1 else ("wrong number of labels", f"{len(labels)} labels, expected 1")
    if task == "regression" and not (record.value is not None and abs(record.value) <= LARGEST_VALUE):  # nor NaN
        found = "nothing" if record.value is None else record.value
        return "no value", f"value is {found}, expected a number of at most {LARGEST_VALUE:.4g}"
    if task == "seq2seq" and is_blank(record.target or ""):
        return "no target", f"target is {record.target!r}"
    return None


def _wrong_spans(record: Record) -> tuple[str, str] | None:
    lengths = {"text": len(record.text), "pair": len(record.pair or "")}
    categories = len(record.categories)
    for span in record.spans:
        length = lengths[span.side]
        if not 0 <= span.start < span.end <= length:
            return (
                "span outside its text",
                f"span [{span.start}, {span.end}) of a {span.side} of {length} characters",
            )
        if span.category is not None and not 0 <= span.category < categories:
            return "unknown category", f"category {span.category} of a span; there are {categories} categories"
    return None


def _wrong_links(record: Record) -> tuple[str, str] | None:
    spans, events, categories = len(record.spans), len(record.events), len(record.categories)
    for relation in record.relations:
        if not (0 <= relation.head < spans and 0 <= relation.tail < spans):
            ends = f"spans {relation.head} and {relation.tail}"
            return "dangling relation", f"{ends} of a relation; there are {spans} spans"
        if not 0 <= relation.category < categories:
            detail = f"category {relation.category} of a relation; there are {categories} categories"
            return "unknown category", detail
    for event in record.events:
        if not 0 <= event.category < categories:
            return "unknown category", f"category {event.category} of an event; there are {categories} categories"
        if event.trigger is not None and not 0 <= event.trigger < spans:
            return "dangling event", f"span {event.trigger} of a trigger; there are {spans} spans"
        for argument in event.arguments:
            if not 0 <= argument.role < categories:
                return "unknown category", f"role {argument.role}; there are {categories} categories"
            if (argument.span is None) == (argument.event is None):
                return "dangling event", "an argument needs either a span or an event"
            if argument.span is not None and not 0 <= argument.span < spans:
                return "dangling event", f"span {argument.span} of an argument; there are {spans} spans"
            if argument.event is not None and not 0 <= argument.event < events:
                return "dangling event", f"event {argument.event} of an argument; there are {events} events"
    return None


def is_blank(text: str) -> bool:
    """Whether a text has only white space and characters that don't print."""
    return not any(letter.isprintable() and letter != " " for letter in text)


def covered(record: Record, span: Span) -> str:
    """Return the text of a span."""
    text = record.text if span.side == "text" else record.pair or ""
    return text[span.start : span.end]


def filler(record: Record, argument: Argument) -> int | None:
    """Return the span of an argument: its own, or the trigger of the event that is the argument."""
    return argument.span if argument.event is None else record.events[argument.event].trigger
