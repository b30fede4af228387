"""Standoff annotations to spans, relations and events by index; see `pipelines/sources/brat.py` for their form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pipelines.fields import Content, RefusedError, category_of, dict_field, list_field, places, short, text_field
from ubert.schema.record import Argument, Category, Event, Relation, Span, Task
from ubert.schema.spec import DatasetSpec

# What a record of a task holds besides spans.
HELD: dict[Task, set[str]] = {"ner": set(), "relation": {"relations"}, "event": {"relations", "events"}}
KINDS = ("relations", "events", "attributes", "equivalences", "notes")

_label, _id, _role, _target, _trigger = map(text_field, ("label", "id", "role", "target", "trigger"))
_fragments, _arguments = list_field("fragments"), list_field("arguments")


class _Lookup(NamedTuple):
    """Source labels to places among the categories."""

    span: dict[str, int]  # entities and triggers
    relation: dict[tuple[str, str | None, str | None], int]  # label, head's label, tail's label
    event: dict[str, int]
    role: dict[str, dict[str, int]]  # by event label


def standoff(spec: DatasetSpec) -> Callable[[Content], dict[str, Any]]:
    """What takes a document's standoff to the fields of a `Record`.

    A discontinuous mention becomes one span a fragment, joined by `group`; its first fragment stands for it in
    relations and events. What a record of the task cannot hold refuses the row, unless the spec ignores it.
    """
    text, annotations = text_field(spec.map.text), dict_field(spec.map.standoff)
    lookup, ignored = _lookup(spec), set(spec.map.ignore_labels)
    held = HELD[spec.task] - set(spec.map.ignore)
    unheld = [kind for kind in KINDS if kind not in held and kind not in spec.map.ignore]

    def fields(content: Content) -> dict[str, Any]:
        words, found = text(content), annotations(content)
        for kind in unheld:
            if found.get(kind):
                detail = f"{short(found[kind])} are {kind}; name them in `ignore` of the spec to leave them out"
                raise RefusedError("annotation that a record cannot hold", detail)

        def taken(kind: str) -> list[Content]:
            items = list_field(kind)(found) if kind in found else []
            return [item for item in items if _label(item) not in ignored]

        mentions = taken("spans")
        spans, span_of = _spans(words, mentions, lookup)
        labels = {_id(mention): _label(mention) for mention in mentions}
        relations = taken("relations") if "relations" in held else []
        events = taken("events") if "events" in held else []
        return {
            "text": words,
            "spans": spans,
            "relations": [_relation(relation, span_of, labels, lookup) for relation in relations],
            "events": _events(events, span_of, lookup),
        }

    return fields


def _lookup(spec: DatasetSpec) -> _Lookup:
    categories, given = spec.categories.all(), spec.categories
    event = places(categories, "event", {label: kind.name for label, kind in given.event.items()})
    return _Lookup(
        span={**places(categories, "entity", given.entity), **event},
        relation={(r.label, r.head, r.tail): categories.index(given.of_relation(r)) for r in given.relation},
        event=event,
        role={
            label: {
                role: categories.index(Category(name, "role", event=kind.name))
                for role, name in kind.roles.items()
            }
            for label, kind in given.event.items()
        },
    )


def _spans(text: str, mentions: list[Content], lookup: _Lookup) -> tuple[list[Span], dict[str, int]]:
    """Spans, and for each mention's id the place of its first one."""
    spans: list[Span] = []
    span_of: dict[str, int] = {}
    for mention in mentions:
        category = category_of(_label(mention), lookup.span)
        fragments = _fragments(mention)
        group = len(span_of) if len(fragments) > 1 else None
        span_of[_id(mention)] = len(spans)
        for fragment in fragments:
            match fragment:
                case [int(start), int(end)] if 0 <= start < end <= len(text):
                    spans.append(Span(start, end, category, group=group))
                case _:
                    detail = f"{_id(mention)}: fragment {short(fragment)} of a text of {len(text)} characters"
                    raise RefusedError("span outside its text", detail)
        _agree(text, mention, fragments)
    if len(span_of) != len(mentions):
        raise RefusedError("bad annotation", "two mentions have the same id")
    return spans, span_of


def _agree(text: str, mention: Content, fragments: list[list[int]]) -> None:
    """Refuse a mention whose words, where given, are not those at its offsets; line ends are given as spaces."""
    if not fragments:
        raise RefusedError("bad annotation", f"{_id(mention)} has no fragments")
    given, there = mention.get("text"), " ".join(text[start:end] for start, end in fragments)
    if given is not None and given != there and given != there.replace("\r\n", " ").replace("\n", " "):
        detail = f"{_id(mention)} says {short(given)}, the text at {short(fragments)} {short(there)}"
        raise RefusedError("mention doesn't match its offsets", detail)


def _relation(relation: Content, span_of: dict[str, int], labels: dict[str, str], lookup: _Lookup) -> Relation:
    """A relation from its first argument to its second."""
    targets = [_target(argument) for argument in _arguments(relation)]
    if len(targets) != 2 or not all(target in span_of for target in targets):
        raise RefusedError("dangling relation", f"{short(relation)} does not join two mentions of the document")
    head, tail = targets
    label = _label(relation)
    for key in (
        (label, labels[head], labels[tail]),
        (label, labels[head], None),
        (label, None, labels[tail]),
        (label, None, None),
    ):
        if key in lookup.relation:
            return Relation(span_of[head], span_of[tail], lookup.relation[key])
    detail = f"relation {label!r} from {labels[head]!r} to {labels[tail]!r} is not among the spec's categories"
    raise RefusedError("unknown category", detail)


def _events(events: list[Content], span_of: dict[str, int], lookup: _Lookup) -> list[Event]:
    """Events with their arguments; an argument may be another event of the document."""
    event_of = {_id(event): i for i, event in enumerate(events)}
    if len(event_of) != len(events):
        raise RefusedError("bad annotation", "two events have the same id")
    made = []
    for event in events:
        label = _label(event)
        trigger = None if event.get("trigger") is None else _trigger(event)
        category = category_of(label, lookup.event)
        if trigger is not None and trigger not in span_of:
            raise RefusedError("dangling event", f"{_id(event)}: no mention {trigger!r} for its trigger")
        arguments = []
        for argument in _arguments(event):
            role, target = _role_of(_role(argument), lookup.role[label]), _target(argument)
            if target not in span_of and target not in event_of:
                raise RefusedError("dangling event", f"{_id(event)}: no mention or event {target!r}")
            arguments.append(Argument(role, span_of.get(target), event_of.get(target)))
        made.append(Event(category, None if trigger is None else span_of[trigger], arguments))
    return made


def _role_of(role: str, index: dict[str, int]) -> int:
    """The place of a role's category; brat numbers the second and later arguments of one role: Theme2."""
    return category_of(role if role in index else role.rstrip("0123456789"), index)
