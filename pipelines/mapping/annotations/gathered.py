"""The annotations of a row before they are located, with the ids and labels of the source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import Struct

from pipelines.mapping.annotations.mentions import Given
from pipelines.mapping.body import Body
from pipelines.mapping.paths import Scope

Reference = str | int  # the id of a mention or an event, or the index of a gathered mention


class Link(Struct, frozen=True, gc=False):
    """A relation with a label, or a link between mentions of one cluster, whose label is empty."""

    label: str
    head: Reference
    tail: Reference


class SourceEvent(Struct, frozen=True, gc=False):
    """An event. Its arguments are pairs of a role and its filler."""

    id: str
    label: str
    trigger: Reference | None
    arguments: list[tuple[str, Reference]]


@dataclass(slots=True)
class Gathered:
    """All annotations of a row."""

    mentions: list[Given] = field(default_factory=list)
    relations: list[Link] = field(default_factory=list)
    events: list[SourceEvent] = field(default_factory=list)


Gather = Callable[[Scope, Body, Gathered], None]
