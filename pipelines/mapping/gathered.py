"""What a row says of mentions, relations and events, by its own ids and labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import Struct

from pipelines.mapping.body import Body
from pipelines.mapping.mentions import Given
from pipelines.mapping.paths import Scope

Reference = str | int  # the id of a mention or an event, or the place of a mention among those gathered


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

    mentions: list[Given] = field(default_factory=list)
    relations: list[Link] = field(default_factory=list)
    events: list[Happening] = field(default_factory=list)


Gather = Callable[[Scope, Body, Gathered], None]
