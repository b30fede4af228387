"""The spec of a dataset: `corpus_specs/datasets/<name>.yaml`, data and no code."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from ubert.schema.record import Category, Split, Task
from ubert.schema.yaml_file import Strict

NAME = r"^[a-z0-9][a-z0-9_.-]*$"


class Upstream(Strict):
    """Where the publisher keeps the dataset, pinned."""

    url: str
    revision: str | None = None


class Files(Strict):
    """Source files of one split. `path` may be a glob, relative to the dataset's folder. `blake3` pins their
    content (`ubert ingest` prints the right value when it is wrong); absent for files that are meant to vary."""

    split: Split
    path: str
    blake3: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    encoding: str = "utf-8"

    @field_validator("path")
    @classmethod
    def _stays_inside(cls, path: str) -> str:
        if path.startswith(("/", "~")) or ".." in path.split("/") or "\\" in path or "\0" in path:
            raise ValueError("expected a path inside the dataset's folder")
        return path


class RelationType(Strict):
    """A relation label of the source and, where the source constrains them, its argument types (in the
    source's labels)."""

    label: str
    name: str
    head: str | None = None
    tail: str | None = None


class EventType(Strict):
    """An event label's natural name and its roles: source label -> natural name."""

    name: str
    roles: dict[str, str] = Field(default_factory=dict)


class Categories(Strict):
    """The candidate categories of every record: source label -> natural name, in order."""

    label: dict[str, str] = Field(default_factory=dict)
    entity: dict[str, str] = Field(default_factory=dict)
    relation: list[RelationType] = Field(default_factory=list)
    event: dict[str, EventType] = Field(default_factory=dict)

    def all(self) -> tuple[Category, ...]:
        """Labels, entities, relations, events, then the roles event by event."""
        relations = [
            Category(r.name, "relation", head=r.head and self.entity[r.head], tail=r.tail and self.entity[r.tail])
            for r in self.relation
        ]
        roles = [
            Category(role, "role", event=event.name)
            for event in self.event.values()
            for role in event.roles.values()
        ]
        return (
            *(Category(name, "label") for name in self.label.values()),
            *(Category(name, "entity") for name in self.entity.values()),
            *relations,
            *(Category(event.name, "event") for event in self.event.values()),
            *roles,
        )

    @model_validator(mode="after")
    def _relations_join_entities(self) -> Categories:
        for relation in self.relation:
            for side in (relation.head, relation.tail):
                if side is not None and side not in self.entity:
                    raise ValueError(f"relation {relation.label!r} joins {side!r}, which is not among entity")
        return self


class Mapping(Strict):
    """Which fields of a raw row hold what. A field is a key, or keys joined by dots."""

    id: str | None = None
    text: str | None = None
    pair: str | None = None
    label: str | None = None
    value: str | None = None
    target: str | None = None
    tokens: str | None = None
    tags: str | None = None
    scheme: Literal["BIO", "IOB", "BIOES", "BMES"] = "BIO"
    chunks: str | None = None
    standoff: str | None = None
    question: str | None = None
    answers: str | None = None


class DatasetSpec(Strict):
    """One dataset for one task."""

    name: str = Field(pattern=NAME)
    dataset: str | None = Field(default=None, pattern=NAME)  # the folder in the mirror; default: the name
    description: str
    task: Task
    language: str = Field(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]+)*$")
    licence: str
    upstream: Upstream | None = None
    instruction: str = Field(min_length=1)
    format: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    options: dict[str, Any] = Field(default_factory=dict)  # checked by the format's reader
    files: list[Files] = Field(min_length=1)
    map: Mapping
    categories: Categories = Categories()

    @property
    def folder(self) -> str:
        """Name of the dataset's folder of raw files."""
        return self.dataset or self.name
