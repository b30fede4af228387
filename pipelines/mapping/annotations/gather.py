"""Gathers the mentions, relations and events of a row, as a spec's `map` describes."""

from __future__ import annotations

from collections.abc import Callable

from pipelines.mapping.annotations.columns import tagged_mentions, token_relations
from pipelines.mapping.annotations.gathered import Gather, Gathered, Link, Reference, SourceEvent
from pipelines.mapping.annotations.mentions import given_field
from pipelines.mapping.annotations.standoff import standoff
from pipelines.mapping.body import Body
from pipelines.mapping.conditions import condition
from pipelines.mapping.fields import as_label
from pipelines.mapping.paths import Scope, value, values
from pipelines.mapping.refused import RefusedError, as_json, short
from ubert.schema.record import Task
from ubert.schema.specs.mapping import Arguments, Events, Mapping, Mention, Mentions, Offsets, Relations

Refer = Callable[[Scope, Body, Gathered], Reference | None]


def gatherer(task: Task, given: Mapping) -> Gather:
    """Return a function that gathers the annotations that a spec maps."""
    ignored = set(given.ignore_labels)
    parts = [
        *([standoff(given.standoff, task, given)] if given.standoff else []),
        *(tagged_mentions(path, given.scheme, given.offsets, ignored) for path in given.tags or []),
        *(_mentions(n, entry, given.offsets, ignored) for n, entry in enumerate(given.spans or [])),
        *(_relations(entry, given.offsets, ignored) for entry in [*(given.relations or []), *(given.links or [])]),
        *([token_relations(given.token_relations, given.offsets, ignored)] if given.token_relations else []),
        *(_events(entry, given.offsets, ignored) for entry in given.events or []),
    ]

    def gather(scope: Scope, body: Body, into: Gathered) -> None:
        for part in parts:
            part(scope, body, into)

    return gather


def _label(path: str | None, constant: str | None) -> Callable[[Scope], str | None]:
    if path is None:
        return lambda scope: constant
    get = value(path)

    def label(scope: Scope) -> str:
        found = get(scope)
        return found if type(found) is str else as_label(found)

    return label


def _identity(given: str | list[str] | None) -> Callable[[Scope], str | None]:
    """Return a function that gets an id from one or several fields, or None if an optional field is missing."""
    if given is None:
        return lambda scope: None
    if isinstance(given, list):
        parts = [_identity(path) for path in given]

        def composed(scope: Scope) -> str | None:
            found = [part(scope) for part in parts]
            return None if None in found else as_json(found)

        return composed
    get = value(given)

    def identity(scope: Scope) -> str | None:
        found = get(scope)
        return None if found is None else as_label(found)

    return identity


def _mentions(number: int, entry: Mentions, offsets: Offsets, ignored: set[str]) -> Gather:
    each, label, when = values(entry.each), _label(entry.label, entry.constant), condition(entry.when)
    name = _identity(entry.id)
    place, apart = given_field(entry, offsets), entry.scope == "entry"

    def gather(scope: Scope, body: Body, into: Gathered) -> None:
        mentions = into.mentions
        for item in each(scope):
            if when and not when(item):
                continue
            kind = label(item)
            if kind in ignored:
                continue
            identity = name(item)
            if apart and identity is not None:
                identity = as_json([number, identity])
            mentions.append(place(item, body, "mention", len(mentions), identity, kind))

    return gather


def _reference(
    target: str | list[str] | Mention | None,
    offsets: Offsets,
    kind: str,
    own: Callable[[Scope], str | None] = lambda scope: None,
) -> Refer:
    """Return a function that gets the id of a mention, or gathers an inline mention and returns its index.
    An inline mention without a label of its own gets the label that `own` returns."""
    if target is None:
        return lambda scope, body, into: None
    if not isinstance(target, Mention):
        get = _identity(target)
        return lambda scope, body, into: get(scope)
    labelled = target.label is not None or target.constant is not None
    label = _label(target.label, target.constant) if labelled else own
    place = given_field(target, offsets)

    def inline(scope: Scope, body: Body, into: Gathered) -> Reference:
        into.mentions.append(place(scope, body, kind, len(into.mentions), None, label(scope)))
        return len(into.mentions) - 1

    return inline


def _relations(entry: Relations, offsets: Offsets, ignored: set[str]) -> Gather:
    each, label, when = values(entry.each), _label(entry.label, entry.constant), condition(entry.when)
    head, tail = _reference(entry.head, offsets, "head"), _reference(entry.tail, offsets, "tail")

    def gather(scope: Scope, body: Body, into: Gathered) -> None:
        for item in each(scope):
            if when and not when(item):
                continue
            kind = label(item) or ""
            if kind in ignored:
                continue
            ends = head(item, body, into), tail(item, body, into)
            if ends[0] is None or ends[1] is None:
                raise RefusedError("dangling relation", f"{short(item.item)} does not join two mentions")
            into.relations.append(Link(kind, ends[0], ends[1]))

    return gather


def _events(entry: Events, offsets: Offsets, ignored: set[str]) -> Gather:
    each, label, when = values(entry.each), _label(entry.label, entry.constant), condition(entry.when)
    name, trigger = _identity(entry.id), _reference(entry.trigger, offsets, "trigger", own=label)
    parts = [_arguments(part, offsets, ignored) for part in entry.arguments or []]

    def gather(scope: Scope, body: Body, into: Gathered) -> None:
        for item in each(scope):
            if when and not when(item):
                continue
            kind = label(item) or ""
            if kind in ignored:
                continue
            identity = name(item) or f"event {len(into.events)}"
            at = trigger(item, body, into)
            arguments = [argument for part in parts for argument in part(item, body, into)]
            into.events.append(SourceEvent(identity, kind, at, arguments))

    return gather


def _arguments(
    entry: Arguments, offsets: Offsets, ignored: set[str]
) -> Callable[[Scope, Body, Gathered], list[tuple[str, Reference]]]:
    each, role = values(entry.each), _label(entry.role, entry.constant)
    target = _reference(entry.target, offsets, "argument")

    def arguments(scope: Scope, body: Body, into: Gathered) -> list[tuple[str, Reference]]:
        found: list[tuple[str, Reference]] = []
        for item in each(scope):
            name = role(item) or ""
            if name in ignored:
                continue
            reference = target(item, body, into)
            if reference is None:
                raise RefusedError("dangling event", f"argument {name!r} names no mention")
            found.append((name, reference))
        return found

    return arguments
