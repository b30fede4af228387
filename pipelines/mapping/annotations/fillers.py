"""Turns the role fillers of events into mentions, each with a category for its role and event. A model can
then learn events without triggers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from msgspec.structs import replace

from pipelines.mapping.annotations.annotate import annotated
from pipelines.mapping.missing_labels import Index
from pipelines.mapping.notices import NO_FILLER
from pipelines.mapping.paths import Scope
from pipelines.mapping.refused import RefusedError
from ubert.schema.checks import filler
from ubert.schema.record import Mismatch, Record, Span
from ubert.schema.specs.dataset import DatasetSpec


def fillers(spec: DatasetSpec, noticed: Counter[str], index: Index) -> Callable[[Scope, Record], list[Mismatch]]:
    """Return a function that fills a record with the role fillers of a row's events. If an argument is
    another event, its filler is that event's trigger.

    `noticed` counts events without arguments, and arguments that are events without a trigger, because no
    mention represents these.
    """
    of_events = spec.categories.model_copy(update={"fillers": None})
    fill_events = annotated(spec.model_copy(update={"task": "event", "categories": of_events}), noticed, index)
    known, place = of_events.all(), {category: i for i, category in enumerate(spec.categories.all())}
    entity = {
        i: place[spec.categories.filler(role.name, role.event or "")]
        for i, role in enumerate(known)
        if role.kind == "role"
    }

    def fill(scope: Scope, record: Record) -> list[Mismatch]:
        mismatches = fill_events(scope, record)
        if record.relations:
            detail = f"{len(record.relations)} relations; name them in `ignore` of the spec to leave them out"
            raise RefusedError("annotation that a record cannot hold", detail)
        found: dict[tuple[int, int, int, int | None], Span] = {}  # mentions in several fragments may share one
        for event in record.events:
            if not event.arguments:
                noticed[NO_FILLER] += 1
            for argument in event.arguments:
                first = filler(record, argument)
                if first is None:
                    noticed[NO_FILLER] += 1
                    continue
                for span in _whole(record, first):
                    category = entity[argument.role]
                    named = replace(span, category=category)
                    found.setdefault((span.start, span.end, category, span.group), named)
        record.spans, record.events = list(found.values()), []
        return mismatches

    return fill


def _whole(record: Record, first: int) -> list[Span]:
    """Return the spans of a mention, or of all mentions of its entity."""
    group = record.spans[first].group
    return [record.spans[first]] if group is None else [span for span in record.spans if span.group == group]
