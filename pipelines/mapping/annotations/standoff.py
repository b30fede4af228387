"""Gathers standoff annotations. Our own readers produce them (`pipelines/sources/annotation_formats/brat.py`),
so their shape is known, and they are converted to types without resolving paths."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert

from pipelines.mapping.annotations.gathered import Gather, Gathered, Link, Reference, SourceEvent
from pipelines.mapping.annotations.mentions import Given
from pipelines.mapping.annotations.units import Fragments
from pipelines.mapping.body import Body
from pipelines.mapping.paths import Scope, value
from pipelines.mapping.refused import RefusedError, short
from ubert.schema.record import Task
from ubert.schema.specs.mapping import Mapping

# The annotations that a record of each task can hold besides mentions.
_HELD: dict[Task, set[str]] = {
    "ner": set(),
    "relation": {"relations"},
    "event": {"relations", "events"},
    "coref": {"relations"},
}
_KINDS = ("relations", "events", "attributes", "equivalences", "notes")


class _Mention(Struct, gc=False):
    id: str
    label: str
    fragments: Annotated[Fragments, Meta(min_length=1)]
    text: str


class _Relation(Struct, gc=False):
    label: str
    head: str
    tail: str


class _Argument(Struct, gc=False):
    role: str
    target: str


class _Event(Struct, gc=False):
    id: str
    label: str
    arguments: list[_Argument]
    trigger: str | None = None


class _Standoff(Struct, gc=False):
    spans: list[_Mention]
    relations: list[_Relation] = []
    events: list[_Event] = []


def standoff(path: str, task: Task, given: Mapping) -> Gather:
    """Return a function that gathers the standoff annotations at `path`. It refuses a row with annotations
    that a record of the task cannot hold, unless the spec ignores them."""
    get, ignored = value(path), set(given.ignore_labels)
    held = _HELD[task] - set(given.ignore)
    unheld = [kind for kind in _KINDS if kind not in _HELD[task] and kind not in given.ignore]
    beyond = 1 if given.offsets.end == "inclusive" else 0

    def gather(scope: Scope, body: Body, into: Gathered) -> None:
        raw = get(scope)
        found = _typed(path, raw)
        for kind in unheld:
            if there := raw.get(kind):
                detail = f"{short(there)} are {kind}; name them in `ignore` of the spec to leave them out"
                raise RefusedError("annotation that a record cannot hold", detail)
        for number, m in enumerate(found.spans):
            if m.label not in ignored:
                places = tuple((s, e + beyond) for s, e in m.fragments) if beyond else m.fragments
                into.mentions.append(Given("mention", number, m.id, m.label, places, None, m.text))
        if "relations" in held:
            into.relations += [Link(r.label, r.head, r.tail) for r in found.relations if r.label not in ignored]
        if "events" in held:
            into.events += [_source_event(event, ignored) for event in found.events if event.label not in ignored]

    return gather


def _typed(path: str, raw: Any) -> _Standoff:
    try:
        return convert(raw, _Standoff)
    except (ValidationError, UnicodeEncodeError) as error:  # a text has half of a surrogate pair
        raise RefusedError("wrong type", f"{path!r} is not standoff: {error}") from None


def _source_event(event: _Event, ignored: set[str]) -> SourceEvent:
    arguments: list[tuple[str, Reference]] = [
        (each.role, each.target) for each in event.arguments if each.role not in ignored
    ]
    return SourceEvent(event.id, event.label, event.trigger, arguments)
