"""Maps raw rows to records, or to rejects with a reason.

For each shape of annotation, a function prepares dictionaries from the spec. It returns a function that
fills a `Record` with the content of a row, or raises `RefusedError`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from pipelines.mapping.annotations.annotate import annotated
from pipelines.mapping.annotations.fillers import fillers
from pipelines.mapping.annotations.mentions import MisplacedError, given_field, locate
from pipelines.mapping.annotations.tags import tagged_spans
from pipelines.mapping.body import body_field, whole_text_field
from pipelines.mapping.candidates import candidates_field, chosen
from pipelines.mapping.clean import cleaner
from pipelines.mapping.conditions import condition
from pipelines.mapping.fields import (
    Field,
    as_label,
    category_of,
    flag_field,
    joined_field,
    list_field,
    places,
    text_field,
    words_field,
)
from pipelines.mapping.missing_labels import Census, Index, as_it_is, counted_in
from pipelines.mapping.notices import notice
from pipelines.mapping.paths import Scope, value, values
from pipelines.mapping.refused import RefusedError, as_json, short
from pipelines.sources import RawRow, Slice
from ubert.schema.checks import problem
from ubert.schema.record import Category, Mismatch, Misplaced, Record, Reject, Source, Span, Split, Task
from ubert.schema.specs.dataset import DatasetSpec
from ubert.schema.specs.mapping import unquoted

Shape = Callable[[Scope, Record], list[Mismatch]]
NONE: list[Mismatch] = []


def mapper(
    spec: DatasetSpec,
    split: Split,
    misplaced: Callable[[Misplaced], None] = lambda misplaced: None,
    noticed: Counter[str] | None = None,
    lacking: Census | None = None,
) -> Callable[[Slice, RawRow], Record | Reject]:
    """Return a function that maps the raw rows of slices to records, or to rejects.

    Args:
        misplaced: called with each mention that is not at its offsets.
        noticed: counts what looks wrong in the records.
        lacking: counts the labels that are missing in the categories.
    """
    total, of_row = Counter[str]() if noticed is None else noticed, Counter[str]()
    fill, clean, when = _shape(spec, of_row, as_it_is), cleaner(spec.map.clean), condition(spec.map.when)
    census = None if lacking is None else _shape(spec, Counter(), counted_in(lacking))
    shared = (spec.name, split, spec.language, spec.task, spec.instruction)
    categories = spec.categories.all()
    prefix = f"{spec.name}/{split}/"

    def report(piece: Slice, row: RawRow, mismatches: list[Mismatch]) -> None:
        for mismatch in mismatches:
            misplaced(Misplaced(piece.path, row.line, row.locator, mismatch))

    def to_record(piece: Slice, row: RawRow) -> Record | Reject:
        source = Source(piece.path, row.line, piece.sha)
        record = Record(prefix + row.locator, *shared, "", source, None, categories)
        scope = Scope(row.content, row.content, {})
        try:
            if spec.map.clean:
                content = clean(row.content)
                scope = Scope(content, content, {})
            if when is not None:
                when(scope)  # refuses a row that lacks the fields of `when`
            mismatches = fill(scope, record)
        except RefusedError as refused:
            of_row.clear()
            if census is not None and refused.reason == "unknown category":
                with suppress(RefusedError):
                    census(scope, Record(prefix + row.locator, *shared, "", source, None, categories))
            if isinstance(refused, MisplacedError):
                report(piece, row, refused.mismatches)
            return _reject(piece.path, row, refused.reason, refused.detail)
        if mismatches:
            report(piece, row, mismatches)
        wrong = problem(record, categories)
        if wrong is not None:
            of_row.clear()
            return _reject(piece.path, row, *wrong)
        notice(record, of_row)
        if of_row:
            total.update(of_row)
            of_row.clear()
        return record

    return to_record


def _reject(path: str, row: RawRow, reason: str, detail: str) -> Reject:
    which = row.locator.removeprefix(f"{path}:{row.line}").removeprefix(path)  # empty for a single row
    return Reject(path, row.line, reason, f"{which}: {detail}" if which else detail, as_json(row.content))


def _shape(spec: DatasetSpec, noticed: Counter[str], index: Index) -> Shape:
    """Return the function that fills records of this spec. `index` wraps the dictionaries of labels."""
    if spec.categories.fillers is not None:
        return fillers(spec, noticed, index)
    if spec.task == "ner" and spec.map.tags is not None:
        return _tagged(spec, index)
    if spec.task == "ner" and spec.map.chunks is not None:
        return _chunked(spec, index)
    if spec.map.candidate_flags is not None:
        return _flagged(spec)
    if spec.map.label_flags is not None:
        return _columns(spec, spec.map.label_flags, index)
    if spec.task in _ANNOTATED or (spec.task == "text" and spec.map.spans is not None):
        return annotated(spec, noticed, index)
    if spec.map.label is not None:
        return _label(spec, index)
    return _SHAPES[spec.task](spec)


def _label(spec: DatasetSpec, index: Index) -> Shape:
    """Fill a text or a pair with one or several labels. Several are a list, or a string with separators."""
    known = index("label", places(spec.categories.all(), "label", spec.categories.label))
    texts, label, separator = _texts(spec), value(spec.map.label or "."), spec.map.label_separator
    ignored, candidates = set(spec.map.ignore_labels), candidates_field(spec)
    keyed = spec.map.candidate_keys is not None or isinstance(spec.map.candidates, dict)

    def fill(scope: Scope, record: Record) -> list[Mismatch]:
        given = label(scope)
        if separator is not None and isinstance(given, str):
            given = given.split(separator) if given else []
        labels = given if isinstance(given, list) else [given]
        if ignored:
            labels = [each for each in labels if as_label(each) not in ignored]
        texts(scope, record)
        if candidates is None:
            found = [category_of(each, known) for each in labels]
        else:
            own = candidates(scope)
            found = [chosen(each, own, keyed) for each in labels]
            record.categories = tuple(Category(name, "label") for _, name in own)
        record.labels = sorted(set(found)) if len(found) > 1 else found
        return NONE

    return fill


def _flagged(spec: DatasetSpec) -> Shape:
    """Fill a text or a pair with the row's candidates. A flag for each candidate tells whether it is a label."""
    texts, candidates = _texts(spec), candidates_field(spec)
    if candidates is None or spec.map.candidate_flags is None:
        raise ValueError("expected `candidates` and `candidate_flags`")
    flags = list_field(spec.map.candidate_flags)

    def fill(scope: Scope, record: Record) -> list[Mismatch]:
        own, given = candidates(scope), flags(scope)
        if len(given) != len(own) or not all(flag in (0, 1) for flag in given):
            detail = f"{spec.map.candidate_flags!r} is {short(given)}, expected 0 or 1 for each of {len(own)}"
            raise RefusedError("wrong type", detail)
        texts(scope, record)
        record.labels = [i for i, flag in enumerate(given) if flag]
        record.categories = tuple(Category(name, "label") for _, name in own)
        return NONE

    return fill


def _columns(spec: DatasetSpec, paths: list[str], index: Index) -> Shape:
    """Fill a text with labels that have a field each, whose flag tells whether the text has the label."""
    known = index("label", places(spec.categories.all(), "label", spec.categories.label))
    texts = _texts(spec)
    flags = [(unquoted(path), flag_field(path, required=True)) for path in dict.fromkeys(paths)]

    def fill(scope: Scope, record: Record) -> list[Mismatch]:
        texts(scope, record)
        record.labels = sorted([category_of(label, known) for label, flag in flags if flag(scope)])
        return NONE

    return fill


def _value(spec: DatasetSpec) -> Shape:
    """Fill a text or a pair with a number."""
    texts, get = _texts(spec), value(spec.map.value or ".")

    def fill(scope: Scope, record: Record) -> list[Mismatch]:
        given = get(scope)
        try:
            if isinstance(given, bool) or (isinstance(given, str) and "_" in given):  # Python would accept these
                raise ValueError
            record.value = float(given)
        except (TypeError, ValueError, OverflowError):
            raise RefusedError("not a number", f"{spec.map.value!r} is {short(given)}") from None
        texts(scope, record)
        return NONE

    return fill


def _pair(spec: DatasetSpec) -> Field[str] | None:
    return joined_field(spec.map.pair, spec.map.join) if spec.map.pair else None


def _target(spec: DatasetSpec) -> Shape:
    """Fill a text or a pair with a text to generate."""
    text, pair, target = whole_text_field(spec.map), _pair(spec), text_field(spec.map.target or ".")

    def fill(scope: Scope, record: Record) -> list[Mismatch]:
        record.text, record.target = text(scope), target(scope)
        if pair is not None:
            record.pair = pair(scope)
        return NONE

    return fill


def _texts(spec: DatasetSpec) -> Shape:
    """Fill a text or a pair without annotations. `annotated` fills an unlabelled text with mentions."""
    text, pair = whole_text_field(spec.map), _pair(spec)

    def fill(scope: Scope, record: Record) -> list[Mismatch]:
        record.text = text(scope)
        if pair is not None:
            record.pair = pair(scope)
        return NONE

    return fill


def _tagged(spec: DatasetSpec, index: Index) -> Shape:
    """Fill tokens with the spans of their tags, from each column of tags. The text is the joined tokens."""
    known = index("entity", places(spec.categories.all(), "entity", spec.categories.entity))
    body, scheme, ignored = body_field(spec.map), spec.map.scheme, set(spec.map.ignore_labels)
    columns = [words_field(path) for path in spec.map.tags or []]

    def fill(scope: Scope, record: Record) -> list[Mismatch]:
        text = body(scope)
        record.text, spans = text.text, record.spans
        for column in columns:
            tags = column(scope)
            if len(tags) != len(text.starts):
                raise RefusedError("wrong number of tags", f"{len(tags)} tags for {len(text.starts)} tokens")
            for start, end, label in tagged_spans(tags, scheme):
                if label not in ignored:
                    spans.append(Span(text.starts[start], text.ends[end - 1], category_of(label, known)))
        return NONE

    return fill


def _chunked(spec: DatasetSpec, index: Index) -> Shape:
    """Fill a text that is given as chunks {text, entity?}, with their entities."""
    known = index("entity", places(spec.categories.all(), "entity", spec.categories.entity))
    chunks, part, entity = values(f"{spec.map.chunks}[]"), text_field("text"), value("entity?")

    def fill(scope: Scope, record: Record) -> list[Mismatch]:
        parts: list[str] = []
        at = 0
        for chunk in chunks(scope):
            parts.append(part(chunk))
            end = at + len(parts[-1])
            label = entity(chunk)
            if label is not None:
                record.spans.append(Span(at, end, category_of(label, known)))
            at = end
        record.text = "".join(parts)
        return NONE

    return fill


def _answers(spec: DatasetSpec) -> Shape:
    """Fill a text with the answers to a question, which is the only category. Equal answers are one span."""
    body, question = body_field(spec.map), text_field(spec.map.question or ".")
    if spec.map.answers is None:
        raise ValueError("expected `answers`")
    each, given = values(spec.map.answers.each), given_field(spec.map.answers, spec.map.offsets)
    unanswerable = flag_field(spec.map.unanswerable) if spec.map.unanswerable else lambda scope: False

    def fill(scope: Scope, record: Record) -> list[Mismatch]:
        text, query = body(scope), question(scope)
        if not query.strip():
            raise RefusedError("empty question", f"question is {query!r}, expected words")
        answers = [given(answer, text, "answer", i, None, None) for i, answer in enumerate(each(scope))]
        if bool(answers) == unanswerable(scope):
            if answers:
                raise RefusedError("answer to an unanswerable question", f"{len(answers)} answers, expected none")
            raise RefusedError("no answer", "the question has no answer and is not marked unanswerable")
        found, mismatches = locate(text, answers, spec.map.offsets)
        record.text, record.categories = text.text, (Category(query, "question"),)
        once = dict.fromkeys(place for places in found for place in places)
        record.spans = [Span(start, end, 0) for start, end in once]
        return mismatches

    return fill


_ANNOTATED = {"ner", "relation", "event", "coref"}
_SHAPES: dict[Task, Callable[[DatasetSpec], Shape]] = {
    "regression": _value,
    "qa": _answers,
    "seq2seq": _target,
    "text": _texts,
}
