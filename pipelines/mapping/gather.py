"""What a row says of mentions, relations and events, by its own ids and labels, as a spec's `map` finds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import Struct

from pipelines.mapping.body import Body
from pipelines.mapping.fields import as_label
from pipelines.mapping.mentions import Given, given_field
from pipelines.mapping.paths import Scope, value, values
from pipelines.mapping.refused import RefusedError, short
from ubert.schema.mapping import Arguments, Events, Mapping, Mention, Mentions, Offsets, Relations
from ubert.schema.record import Task

Reference = str | int  # the id of a mention or an event, or the place of a mention among those gathered


class Found(Struct, frozen=True, gc=False):
    """A mention; without a label it is the labelled one at the same place, if there is one."""

    id: str | None
    label: str | None
    given: Given


class Link(Struct, frozen=True, gc=False):
    """A relation of a label, or a link of no label between mentions of one cluster."""

    label: str
    head: Reference
    tail: Reference


class Happening(Struct, frozen=True, gc=False):
    """An event; its arguments are roles and what has them."""

    id: str
    label: str
    trigger: Reference | None
    arguments: list[tuple[str, Reference]]


@dataclass(slots=True)
class Gathered:
    """All annotations of a row."""

    mentions: list[Found] = field(default_factory=list)
    relations: list[Link] = field(default_factory=list)
    events: list[Happening] = field(default_factory=list)


Gather = Callable[[Scope, Body, Gathered], None]
Refer = Callable[[Scope, Body, Gathered], Reference | None]

# What a record of a task holds of standoff, besides mentions.
_HELD: dict[Task, set[str]] = {
    "ner": set(),
    "relation": {"relations"},
    "event": {"relations", "events"},
    "coref": {"relations"},
}
_KINDS = ("relations", "events", "attributes", "equivalences", "notes")


def gatherer(task: Task, given: Mapping) -> Gather:
    """What gathers the annotations that a spec maps."""
    unheld = _unheld(task, given)
    given = _expanded(task, given)
    ignored = set(given.ignore_labels)
    parts = [
        *(_mentions(entry, given.offsets, ignored) for entry in given.spans or []),
        *(_relations(entry, given.offsets, ignored) for entry in [*(given.relations or []), *(given.links or [])]),
        *(_events(entry, given.offsets, ignored) for entry in given.events or []),
    ]

    def gather(scope: Scope, body: Body, into: Gathered) -> None:
        unheld(scope)
        for part in parts:
            part(scope, body, into)

    return gather


def _expanded(task: Task, given: Mapping) -> Mapping:
    """`standoff` in the words of the rest of the map."""
    at, held = given.standoff, _HELD.get(task, set()) - set(given.ignore)
    if at is None:
        return given
    spans = Mentions(each=f"{at}.spans[]", id="id", label="label", fragments="fragments", words="text")
    relations = Relations(each=f"{at}.relations?[]", label="label", head="head", tail="tail")
    arguments = Arguments(each="arguments[]", role="role", target="target")
    events = Events(each=f"{at}.events?[]", id="id", label="label", trigger="trigger?", arguments=[arguments])
    return given.model_copy(
        update={
            "spans": [spans],
            "relations": [relations] if "relations" in held else None,
            "events": [events] if "events" in held else None,
        }
    )


def _unheld(task: Task, given: Mapping) -> Callable[[Scope], None]:
    """What refuses standoff that a record of the task cannot hold, unless the spec ignores it."""
    if given.standoff is None:
        return lambda scope: None
    kinds = [kind for kind in _KINDS if kind not in _HELD[task] and kind not in given.ignore]
    fields = [(kind, value(f"{given.standoff}.{kind}?")) for kind in kinds]

    def check(scope: Scope) -> None:
        for kind, get in fields:
            if found := get(scope):
                detail = f"{short(found)} are {kind}; name them in `ignore` of the spec to leave them out"
                raise RefusedError("annotation that a record cannot hold", detail)

    return check


def _label(path: str | None, constant: str | None) -> Callable[[Scope], str | None]:
    if path is None:
        return lambda scope: constant
    get = value(path)

    def label(scope: Scope) -> str:
        found = get(scope)
        return found if type(found) is str else as_label(found)

    return label


def _when(conditions: dict[str, list[str]]) -> Callable[[Scope], bool] | None:
    if not conditions:
        return None
    tests = [(value(path), wanted) for path, wanted in conditions.items()]
    return lambda scope: all(as_label(get(scope)) in wanted for get, wanted in tests)


def _mentions(entry: Mentions, offsets: Offsets, ignored: set[str]) -> Gather:
    each, label, when = values(entry.each), _label(entry.label, entry.constant), _when(entry.when)
    name = _label(entry.id, None)
    place = given_field(entry, offsets)

    def gather(scope: Scope, body: Body, into: Gathered) -> None:
        mentions = into.mentions
        for item in each(scope):
            kind = label(item)
            if kind in ignored or (when and not when(item)):
                continue
            identity = name(item)
            shown = identity or str(len(mentions))
            mentions.append(Found(identity, kind, place(item, body, "mention", shown)))

    return gather


def _reference(target: str | Mention | None, offsets: Offsets, kind: str, own: str | None = None) -> Refer:
    """What gets the id of a mention, or gathers the mention itself under its label, or under `own`."""
    if target is None:
        return lambda scope, body, into: None
    if isinstance(target, str):
        get = value(target)

        def named(scope: Scope, body: Body, into: Gathered) -> Reference | None:
            found = get(scope)
            return None if found is None else as_label(found)

        return named
    label, place = _label(target.label or own, target.constant), given_field(target, offsets)

    def inline(scope: Scope, body: Body, into: Gathered) -> Reference:
        into.mentions.append(Found(None, label(scope), place(scope, body, kind, str(len(into.mentions)))))
        return len(into.mentions) - 1

    return inline


def _relations(entry: Relations, offsets: Offsets, ignored: set[str]) -> Gather:
    each, label, when = values(entry.each), _label(entry.label, entry.constant), _when(entry.when)
    head, tail = _reference(entry.head, offsets, "head"), _reference(entry.tail, offsets, "tail")

    def gather(scope: Scope, body: Body, into: Gathered) -> None:
        for item in each(scope):
            kind = label(item) or ""
            if kind in ignored or (when and not when(item)):
                continue
            ends = head(item, body, into), tail(item, body, into)
            if ends[0] is None or ends[1] is None:
                raise RefusedError("dangling relation", f"{short(item.item)} does not join two mentions")
            into.relations.append(Link(kind, ends[0], ends[1]))

    return gather


def _events(entry: Events, offsets: Offsets, ignored: set[str]) -> Gather:
    each, label = values(entry.each), _label(entry.label, None)
    name = value(entry.id) if entry.id else None
    trigger = _reference(entry.trigger, offsets, "trigger", own=entry.label)
    parts = [_arguments(part, offsets, ignored) for part in entry.arguments or []]

    def gather(scope: Scope, body: Body, into: Gathered) -> None:
        for item in each(scope):
            kind = label(item) or ""
            if kind not in ignored:
                identity = as_label(name(item)) if name else f"event {len(into.events)}"
                at = trigger(item, body, into)
                arguments = [argument for part in parts for argument in part(item, body, into)]
                into.events.append(Happening(identity, kind, at, arguments))

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
                raise RefusedError("dangling event", f"argument {name!r} is nothing")
            found.append((name, reference))
        return found

    return arguments
