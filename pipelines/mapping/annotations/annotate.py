"""Fills the spans, relations and events of a record from the annotations of a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from pipelines.mapping.annotations.gather import gatherer
from pipelines.mapping.annotations.gathered import Gathered, Link, Reference, SourceEvent
from pipelines.mapping.annotations.mentions import locate
from pipelines.mapping.annotations.units import Fragments
from pipelines.mapping.body import body_field
from pipelines.mapping.candidates import candidates_field
from pipelines.mapping.fields import category_of, places
from pipelines.mapping.missing_labels import Index
from pipelines.mapping.notices import MERGED, SEVERAL_LABELS
from pipelines.mapping.paths import Scope
from pipelines.mapping.refused import RefusedError
from ubert.schema.components import components
from ubert.schema.record import Argument, Category, Event, Mismatch, Record, Relation, Span
from ubert.schema.specs.dataset import DatasetSpec


class _Lookup(NamedTuple):
    """Indices of categories by source label."""

    span: dict[str, int]  # entities and triggers
    relation: dict[tuple[str, str | None, str | None], int]  # by labels of the relation, its head and its tail
    event: dict[str, int]
    role: dict[str, dict[str, int]]  # by event label, then by role label


class _Places(NamedTuple):
    """The first span of each mention, by its id and by its index among the gathered mentions; and the
    label of each such span."""

    of_id: dict[str, int]
    of_mention: list[int]
    label: dict[int, str]

    def span(self, reference: Reference) -> int | None:
        """Return the first span of the mention that a reference names, or None if there is none."""
        return self.of_mention[reference] if isinstance(reference, int) else self.of_id.get(reference)


def annotated(spec: DatasetSpec, noticed: Counter[str], index: Index) -> Callable[[Scope, Record], list[Mismatch]]:
    """Return a function that fills a record with the annotations of a row, and returns their mismatches.

    Mentions with the same id, and the fragments of one mention, become spans with the same `group`.
    Relations and events refer to the first of these spans. In a coreference record every span has its
    cluster as `group`, and no category. Spans of an unlabelled text have no category either.

    Args:
        noticed: counts suspicious annotations.
        index: wraps the dictionaries that map labels to categories.
    """
    body, gather = body_field(spec.map), gatherer(spec.task, spec.map)
    candidates = candidates_field(spec)
    lookup = _lookup(spec, index)

    def fill(scope: Scope, record: Record) -> list[Mismatch]:
        text, gathered = body(scope), Gathered()
        gather(scope, text, gathered)
        found, mismatches = locate(text, gathered.mentions, spec.map.offsets)
        record.text, known = text.text, lookup.span
        if candidates:
            own = candidates(scope)
            names = list(dict.fromkeys(name for _, name in own))
            known = {key: names.index(name) for key, name in own}
            record.categories = tuple(Category(name, "entity") for name in names)
        record.spans, places = _spans(gathered, found, None if spec.task in ("coref", "text") else known, noticed)
        if spec.task == "coref":
            _cluster(record.spans, [_ends(link, places) for link in gathered.relations])
            return mismatches
        record.relations = [_relation(link, places, lookup) for link in gathered.relations]
        record.events = _events(gathered.events, places, lookup)
        return mismatches

    return fill


def _lookup(spec: DatasetSpec, index: Index) -> _Lookup:
    categories, given = spec.categories.all(), spec.categories
    events = places(categories, "event", {label: kind.name for label, kind in given.event.items()})
    relations = {(r.label, r.head, r.tail): categories.index(given.of_relation(r)) for r in given.relation}
    roles = {
        label: {
            role: categories.index(Category(name, "role", event=kind.name)) for role, name in kind.roles.items()
        }
        for label, kind in given.event.items()
    }
    return _Lookup(
        span=index("entity", {**places(categories, "entity", given.entity), **events}),
        relation=index("relation", relations),
        event=index("event", events),
        role={label: index(f"roles of {label}", of) for label, of in roles.items()},
    )


def _spans(
    gathered: Gathered, found: list[Fragments], index: dict[str, int] | None, noticed: Counter[str]
) -> tuple[list[Span], _Places]:
    """Make the spans of the mentions, without repetitions.

    Mentions with the same fragments and label are one mention if they have the same id, or if the later one
    has no id. A mention without a label is merged with a labelled one at the same place.

    Args:
        found: the fragments of each mention.
        index: categories by label; None: spans get no category.
        noticed: counts repeated mentions, and ids whose mentions have different labels.
    """
    spans: list[Span] = []
    places = _Places({}, [-1] * len(found), {})
    of_id, of_mention, label_of = places
    at: dict[Fragments, tuple[str | None, str | None, int]] = {}  # label, id and first span of the first mention
    others: dict[tuple[Fragments, str | None, str | None], int] = {}  # the first spans of later mentions
    mentions = gathered.mentions
    unlabelled = [mention.label is None for mention in mentions]
    order = sorted(range(len(found)), key=unlabelled.__getitem__) if any(unlabelled) else range(len(found))
    for i in order:
        mention, fragments = mentions[i], found[i]
        label, identity = mention.label, mention.id
        here = at.get(fragments)
        known = None
        if here is not None:
            first_there = label in (None, here[0]) and identity in (None, here[1])
            known = here[2] if first_there else others.get((fragments, label, identity))
            if known is None and label is None and here[0] is not None:
                known = here[2]  # the labelled mention at this place gets another id
        if known is not None:
            of_mention[i] = known
            if mention.kind == "mention" and label is not None:
                noticed[MERGED] += 1
            if identity is not None:
                of_id.setdefault(identity, known)
            if spans[known].kb_id is None:
                for span in spans[known : known + len(fragments)]:
                    span.kb_id = mention.kb_id
            continue
        first = of_mention[i] = len(spans)
        category = None if index is None or label is None else category_of(label, index)
        shared = None if identity is None else of_id.get(identity)
        if shared is not None and label is not None and label_of.get(shared, label) != label:
            noticed[SEVERAL_LABELS] += 1
        group = None if shared is None and len(fragments) == 1 else _group(spans, shared)
        for start, end in fragments:
            spans.append(Span(start, end, category, "text", group, mention.kb_id))
        if here is None:
            at[fragments] = (label, identity, first)
        else:
            for key in ((label, identity), (None, identity), (label, None)):
                others.setdefault((fragments, *key), first)
        if identity is not None and shared is None:
            of_id[identity] = first
        if label is not None:
            label_of[first] = label
    return spans, places


def _group(spans: list[Span], shared: int | None) -> int:
    """Return the group of a mention: the group of the first mention with the same id, or a new one."""
    known = None if shared is None else spans[shared].group
    group = (
        1 + max((span.group for span in spans if span.group is not None), default=-1) if known is None else known
    )
    if shared is not None:
        spans[shared].group = group
    return group


def _cluster(spans: list[Span], links: list[tuple[int, int]]) -> None:
    """Set the group of each span to its cluster. Spans of one group, and spans joined by links, form a
    cluster; any other span is a cluster of its own."""
    first_of: dict[int, int] = {}
    groups = [(i, first_of.setdefault(s.group, i)) for i, s in enumerate(spans) if s.group is not None]
    for number, members in enumerate(components(len(spans), [*groups, *links])):
        for i in members:
            spans[i].group = number


def _ends(link: Link, places: _Places) -> tuple[int, int]:
    head, tail = places.span(link.head), places.span(link.tail)
    if head is None or tail is None:
        detail = f"{link.label} from {link.head!r} to {link.tail!r} does not join two mentions of the row"
        raise RefusedError("dangling relation", detail)
    return head, tail


def _relation(link: Link, places: _Places, lookup: _Lookup) -> Relation:
    start, end = _ends(link, places)
    label, head, tail = link.label, places.label.get(start), places.label.get(end)
    for joined in ((label, head, tail), (label, head, None), (label, None, tail)):
        if joined in lookup.relation:
            return Relation(start, end, lookup.relation[joined])
    category = lookup.relation.get((label, None, None))
    if category is not None:
        return Relation(start, end, category)
    detail = f"relation {label!r} from {head!r} to {tail!r} is not among the spec's categories"
    raise RefusedError("unknown category", detail)


def _events(events: list[SourceEvent], places: _Places, lookup: _Lookup) -> list[Event]:
    """Make events with their arguments. An argument may be another event of the row."""
    event_of = {event.id: i for i, event in enumerate(events)}
    if len(event_of) != len(events):
        raise RefusedError("bad annotation", "two events have the same id")
    made = []
    for event in events:
        category = category_of(event.label, lookup.event)
        trigger = None if event.trigger is None else places.span(event.trigger)
        if event.trigger is not None and trigger is None:
            raise RefusedError("dangling event", f"{event.id}: no mention {event.trigger!r} for its trigger")
        arguments = []
        for role, target in event.arguments if event.label in lookup.role else ():
            place = _role_of(role, lookup.role[event.label])
            span = places.span(target)
            nested = event_of.get(target) if span is None and isinstance(target, str) else None
            if span is None and nested is None:
                raise RefusedError("dangling event", f"{event.id}: no mention or event {target!r}")
            arguments.append(Argument(place, span, nested))
        made.append(Event(category, trigger, arguments))
    return made


def _role_of(role: str, index: dict[str, int]) -> int:
    """Return the category of a role. If the role is unknown, its trailing digits are removed, because brat
    numbers repeated roles (Theme2)."""
    return category_of(role if role in index else role.rstrip("0123456789"), index)
