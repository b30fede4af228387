"""Raw rows to records: the one place where a spec's `map` and `categories` meet a row.

One function for each shape of annotation prepares its look-ups from the spec, and returns a function that takes
the content of a row to the fields of a `Record`, or raises `RefusedError`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Literal

from pipelines.fields import (
    Content,
    RefusedError,
    any_field,
    category_of,
    list_field,
    places,
    short,
    text_field,
    words_field,
)
from pipelines.sources import RawRow, Slice
from pipelines.standoff import standoff
from ubert.schema.checks import problem
from ubert.schema.record import Category, Record, Reject, Source, Span, Split, Task
from ubert.schema.spec import DatasetSpec

Shape = Callable[[Content], dict[str, Any]]


def mapper(spec: DatasetSpec, split: Split, piece: Slice) -> Callable[[RawRow], Record | Reject]:
    """What takes the raw rows of a slice to records, or to rejects with their reason."""
    shape = _SHAPES[spec.task](spec)
    shared = {
        "corpus": spec.name,
        "split": split,
        "language": spec.language,
        "task": spec.task,
        "instruction": spec.instruction,
        "categories": spec.categories.all(),
    }
    prefix = f"{spec.name}/{split}/"

    def to_record(row: RawRow) -> Record | Reject:
        try:
            fields = shape(row.content)
        except RefusedError as refused:
            return _reject(piece.path, row, refused.reason, refused.detail)
        source = Source(piece.path, row.line, piece.sha)
        record = Record(record_id=prefix + row.locator, source=source, **{**shared, **fields})
        wrong = problem(record)
        return record if wrong is None else _reject(piece.path, row, *wrong)

    return to_record


def _reject(path: str, row: RawRow, reason: str, detail: str) -> Reject:
    which = row.locator.removeprefix(f"{path}:{row.line}")  # of several at one line
    return Reject(path, row.line, reason, f"{which}: {detail}" if which else detail, json.dumps(row.content))


def _label(spec: DatasetSpec) -> Shape:
    """A label, or several (a list, or a string that a separator parts), of a text or of a pair."""
    index = places(spec.categories.all(), "label", spec.categories.label)
    text, pair = _whole_text(spec), _pair(spec)
    label, separator = any_field(spec.map.label), spec.map.label_separator

    def fields(content: Content) -> dict[str, Any]:
        given = label(content)
        if separator is not None and isinstance(given, str):
            given = given.split(separator) if given else []
        labels = given if isinstance(given, list) else [given]
        found = sorted({category_of(each, index) for each in labels})
        return {"text": text(content), "pair": pair(content), "labels": found}

    return fields


def _value(spec: DatasetSpec) -> Shape:
    """A number, of a text or of a pair."""
    text, pair, value = text_field(spec.map.text), _pair(spec), any_field(spec.map.value)

    def fields(content: Content) -> dict[str, Any]:
        given = value(content)
        try:
            number = float(given)
        except (TypeError, ValueError, OverflowError):
            raise RefusedError("not a number", f"{spec.map.value!r} is {short(given)}") from None
        return {"text": text(content), "pair": pair(content), "value": number}

    return fields


def _whole_text(spec: DatasetSpec) -> Callable[[Content], str]:
    if spec.map.tokens:
        words = words_field(spec.map.tokens)
        return lambda content: " ".join(words(content))
    if spec.map.chunks:
        chunks, part = list_field(spec.map.chunks), text_field("text")
        return lambda content: "".join(part(chunk) for chunk in chunks(content))
    return text_field(spec.map.text)


def _pair(spec: DatasetSpec) -> Callable[[Content], str | None]:
    return text_field(spec.map.pair) if spec.map.pair else lambda content: None


def _target(spec: DatasetSpec) -> Shape:
    """A text to generate."""
    text, target = text_field(spec.map.text), text_field(spec.map.target)
    return lambda content: {"text": text(content), "target": target(content)}


def _text(spec: DatasetSpec) -> Shape:
    """A text and nothing about it."""
    text = text_field(spec.map.text)
    return lambda content: {"text": text(content)}


def _mentions(spec: DatasetSpec) -> Shape:
    """Mentions, in the form that the spec maps."""
    if spec.map.tokens:
        return _tagged(spec)
    return _chunked(spec) if spec.map.chunks else standoff(spec)


def _tagged(spec: DatasetSpec) -> Shape:
    """Tokens and their tags; the text is the tokens joined by a space."""
    index = places(spec.categories.all(), "entity", spec.categories.entity)
    tokens, tags, scheme = words_field(spec.map.tokens), words_field(spec.map.tags), spec.map.scheme

    def fields(content: Content) -> dict[str, Any]:
        words, marks = tokens(content), tags(content)
        if len(words) != len(marks):
            raise RefusedError("wrong number of tags", f"{len(marks)} tags of {len(words)} tokens")
        if "" in words:
            raise RefusedError("empty token", f"token {words.index('')} of {len(words)}")
        found = tagged_spans(marks, scheme)
        # starts[i]: where token i begins in the text, one space after the one before.
        starts = list(accumulate((len(word) + 1 for word in words), initial=0)) if found else []
        spans = [Span(starts[s], starts[e] - 1, category_of(label, index)) for s, e, label in found]
        return {"text": " ".join(words), "spans": spans}

    return fields


def tagged_spans(tags: list[str], scheme: Literal["BIO", "IOB", "BIOES", "BMES"]) -> list[tuple[int, int, str]]:
    """Spans of tokens [start, end) with their label, from one tag a token (`O`, or a mark and a label: `B-city`).

    BIO: every span begins with B. IOB: one that begins with I, after O or another label, is a span too. BIOES and
    BMES: spans of one token are S, longer ones go from B over I (M) to E.

    Raises:
        RefusedError: a tag is not of the scheme, or cannot follow the one before it.
    """
    closed = scheme in ("BIOES", "BMES")
    inside = "M" if scheme == "BMES" else "I"
    found: list[tuple[int, int, str]] = []
    start, label = -1, ""  # of the open span; -1: none is
    for i, tag in enumerate([*tags, "O"]):
        mark, _, kind = tag.partition("-")
        goes_on = start >= 0 and kind == label
        if mark == inside and goes_on:
            continue
        if closed and mark == "E" and goes_on:
            found.append((start, i + 1, label))
            start = -1
            continue
        if start >= 0:
            if closed:
                raise RefusedError("tags out of order", f"{tag!r} at token {i} after an unfinished {label!r}")
            found.append((start, i, label))
            start = -1
        if tag == "O":
            continue
        if kind and (mark == "B" or (mark == "I" and scheme == "IOB")):
            start, label = i, kind
        elif kind and closed and mark == "S":
            found.append((i, i + 1, kind))
        else:
            raise RefusedError("tags out of order", f"{tag!r} at token {i} begins no span in {scheme}")
    return found


def _chunked(spec: DatasetSpec) -> Shape:
    """Chunks {text, entity?} whose texts make up the text."""
    index = places(spec.categories.all(), "entity", spec.categories.entity)
    chunks, part = list_field(spec.map.chunks), text_field("text")

    def fields(content: Content) -> dict[str, Any]:
        parts: list[str] = []
        spans: list[Span] = []
        at = 0
        for chunk in chunks(content):
            parts.append(part(chunk))
            end = at + len(parts[-1])
            if chunk.get("entity") is not None:
                spans.append(Span(at, end, category_of(chunk["entity"], index)))
            at = end
        return {"text": "".join(parts), "spans": spans}

    return fields


def _answers(spec: DatasetSpec) -> Shape:
    """Answers {text, answer_start} to a question, which is the only category; equal ones are one span."""
    text, question, answers = (
        text_field(spec.map.text),
        text_field(spec.map.question),
        list_field(spec.map.answers),
    )
    unanswerable = any_field(spec.map.unanswerable) if spec.map.unanswerable else lambda content: False

    def fields(content: Content) -> dict[str, Any]:
        context, asked = text(content), question(content)
        if not asked.strip():
            raise RefusedError("empty question", f"question is {asked!r}")
        found = dict.fromkeys(_answer(context, answer) for answer in answers(content))
        if bool(found) == bool(unanswerable(content)):
            if found:
                raise RefusedError("answer to an unanswerable question", f"{len(found)} answers")
            raise RefusedError("no answer", "no answer and not marked unanswerable")
        spans = [Span(start, end, 0) for start, end in found]
        return {"text": context, "categories": (Category(asked, "question"),), "spans": spans}

    return fields


def _answer(context: str, answer: Any) -> tuple[int, int]:
    match answer:
        case {"text": str(words), "answer_start": int(start)}:
            if not 0 <= start < start + len(words) <= len(context):
                detail = f"answer {short(words)} at {start} of a text of {len(context)} characters"
                raise RefusedError("span outside its text", detail)
            if not context.startswith(words, start):
                detail = f"answer {short(words)} at {start}, where the text says "
                detail += short(context[start : start + len(words)])
                raise RefusedError("mention doesn't match its offsets", detail)
            return start, start + len(words)
        case _:
            raise RefusedError("wrong type", f"an answer is {short(answer)}, expected text and answer_start")


_SHAPES: dict[Task, Callable[[DatasetSpec], Shape]] = {
    "classification": _label,
    "multilabel": _label,
    "pair": _label,
    "regression": _value,
    "ner": _mentions,
    "relation": standoff,
    "event": standoff,
    "qa": _answers,
    "seq2seq": _target,
    "text": _text,
}
