"""A common form for the annotations of a record and for predictions, so that they can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from ubert.objectives import (
    ClusterPrediction,
    DiscontinuousPrediction,
    EventPrediction,
    LabelPrediction,
    Prediction,
    RelationPrediction,
    SpanPrediction,
    ValuePrediction,
)
from ubert.objectives.tasks.coref import MENTION
from ubert.objectives.tasks.ner import discontinuous
from ubert.objectives.tasks.regression import buckets
from ubert.objectives.tasks.relation import UNTYPED
from ubert.schema.checks import filler
from ubert.schema.record import Record

Kind = Literal["label", "value", "mention", "relation", "trigger", "argument", "cluster"]


class Mention(NamedTuple):
    """Characters [start, end) of the text, and their category."""

    name: str
    start: int
    end: int


class Annotation(NamedTuple):
    """One annotation. A label of the whole text has no `mentions`. Otherwise they are

    - one mention, or its fragments;
    - the head and tail of a relation;
    - the trigger and filler of an argument;
    - the mentions of a cluster, in order.
    """

    kind: Kind
    name: str
    mentions: tuple[Mention, ...] = ()


def annotated(record: Record) -> set[Annotation]:
    """Return a record's annotations, each once.

    The fragments of a discontinuous mention form one mention if the candidates have a relation for them;
    otherwise each is a mention of its own. Events without a trigger, and spans of the second text or without
    a category, are left out.
    """
    return set(_annotated(record))


def predicted(record: Record, predictions: Sequence[Prediction]) -> set[Annotation]:
    """Convert predictions for a record to annotations, each once."""
    return {annotation for prediction in predictions for annotation in _predicted(record, prediction)}


def representatives(record: Record) -> dict[Mention, Mention]:
    """Map each mention of a coreference cluster to the cluster's first one, because a relation holds between
    clusters."""
    first: dict[int, Mention] = {}
    found = {}
    for i, span in enumerate(record.spans):
        if span.group is not None and record.task == "relation":
            mention = _mention(record, i)
            found[mention] = first.setdefault(span.group, mention)
    return found


def nearest(record: Record, value: float) -> str:
    """Return the name of the bucket that is nearest to a value."""
    numbers = buckets(record.categories)
    return record.categories[int(abs(numbers - value).argmin())].name


def _annotated(record: Record) -> Iterator[Annotation]:
    names = [category.name for category in record.categories]
    for label in record.labels:
        yield Annotation("label", names[label])
    if record.value is not None and record.categories:
        yield Annotation("value", nearest(record, record.value))
    if record.task == "coref":
        yield from _clusters(record)
    elif record.task != "event":
        yield from _mentions(record)
    same = representatives(record)
    for relation in record.relations:
        ends = (_mention(record, i) for i in (relation.head, relation.tail))
        yield Annotation("relation", names[relation.category], tuple(same.get(end, end) for end in ends))
    for event in record.events:
        if event.trigger is None:
            continue
        name = names[event.category]
        trigger = _mention(record, event.trigger, name)
        yield Annotation("trigger", name, (trigger,))
        for argument in event.arguments:
            if (span := filler(record, argument)) is not None:
                role = names[argument.role]
                yield Annotation("argument", role, (trigger, _mention(record, span, role)))


def _mentions(record: Record) -> Iterator[Annotation]:
    together = record.task == "ner" and any(category.kind == "relation" for category in record.categories)
    several = discontinuous(record) if together else []
    for group in several:
        mentions = tuple(_mention(record, i) for i in group)
        yield Annotation("mention", mentions[0].name, mentions)
    joined = {(record.spans[group[0]].group, record.spans[group[0]].category) for group in several}
    for i, span in enumerate(record.spans):
        says = span.side == "text" and (span.category is not None or record.task == "relation")
        if says and (span.group, span.category) not in joined:
            mention = _mention(record, i)
            yield Annotation("mention", mention.name, (mention,))


def _clusters(record: Record) -> Iterator[Annotation]:
    groups: dict[int, set[Mention]] = {}
    for i, span in enumerate(record.spans):
        if span.side == "text":
            mention = _mention(record, i, MENTION.name)
            groups.setdefault(-1 - i if span.group is None else span.group, set()).add(mention)
    for mentions in groups.values():
        yield Annotation("cluster", MENTION.name, tuple(sorted(mentions)))


def _mention(record: Record, i: int, name: str | None = None) -> Mention:
    span = record.spans[i]
    kind = UNTYPED if span.category is None else record.categories[span.category].name
    return Mention(name or kind, span.start, span.end)


def _predicted(record: Record, prediction: Prediction) -> Iterator[Annotation]:
    match prediction:
        case LabelPrediction(category):
            yield Annotation("label", category)
        case ValuePrediction(value):
            yield Annotation("value", nearest(record, value))
        case SpanPrediction(_, _, category):
            yield Annotation("mention", category, (_of(prediction),))
        case DiscontinuousPrediction(category, fragments):
            yield Annotation("mention", category, tuple(map(_of, fragments)))
        case RelationPrediction(category, head, tail):
            yield Annotation("relation", category, (_of(head), _of(tail)))
        case EventPrediction(category, trigger, arguments):
            yield Annotation("trigger", category, (_of(trigger),))
            for argument in arguments:
                yield Annotation("argument", argument.category, (_of(trigger), _of(argument)))
        case ClusterPrediction(mentions):
            yield Annotation("cluster", MENTION.name, tuple(sorted(map(_of, mentions))))


def _of(span: SpanPrediction) -> Mention:
    return Mention(span.category, span.start, span.end)


def of_kind(annotations: set[Annotation], kind: Kind) -> set[tuple[str, tuple[Mention, ...]]]:
    """Return the annotations of one kind, as name and mentions."""
    return {(each.name, each.mentions) for each in annotations if each.kind == kind}
