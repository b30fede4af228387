"""The spec of a dataset: `corpus_specs/datasets/<name>.yaml`, data and no code."""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ubert.schema.licence import CLASSES, LicenceClass, licence_class
from ubert.schema.names import LANGUAGE, NAME
from ubert.schema.record import Category, Split, Task
from ubert.schema.specs.fetch import Fetches
from ubert.schema.specs.mapping import Mapping
from ubert.schema.specs.rules import NameRules
from ubert.schema.yaml_file import Described, InsidePath

HASH = r"^[0-9a-f]{64}$"


class Upstream(Described):
    """Where the publisher keeps the dataset."""

    url: str
    """The address."""
    revision: str | None = None
    """The commit, tag or version."""


class Files(Described):
    """Source files of one split."""

    split: Split
    """train, validation or test."""
    path: InsidePath
    """A file, or a glob such as `docs/*.txt`, in the dataset's folder."""
    blake3: str | None = Field(default=None, pattern=HASH)
    """Pins the content. If it is wrong, `ubert ingest` prints the right value. Leave it out for files that
    vary."""
    whole: str | None = Field(default=None, pattern=HASH)
    """If `blake3` pins a part of the files, this pins all of them, as `fetch` brings them. Either is accepted."""
    encoding: str = "utf-8"
    """The encoding of text."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the format for these files, which override those of the spec. One file can thus serve several
    splits."""
    labelled: bool = True
    """false: the publisher gives no annotations, so all rows of the split may be rejected."""

    @property
    def pins(self) -> list[str]:
        """The hashes that the content may have; none: any."""
        return [pin for pin in (self.blake3, self.whole) if pin]

    @field_validator("encoding")
    @classmethod
    def _keeps_line_ends(cls, encoding: str) -> str:
        # Files are cut at the byte of a line end before they are decoded.
        try:
            single = "\n".encode(encoding) == b"\n"
        except (LookupError, UnicodeError):
            single = False
        if not single:
            raise ValueError(
                "expected a text encoding in which a line end is one byte (utf-8, latin-1, cp1252, gb18030, ...); "
                "save files in any other as UTF-8"
            )
        return encoding


class RelationType(Described):
    """One type of relation."""

    label: str
    """Its label in the source."""
    name: str
    """Its name in plain words."""
    head: str | None = None
    """The source's label of the entities that may be its head; default: any."""
    tail: str | None = None
    """The source's label of the entities that may be its tail; default: any."""


class EventType(Described):
    """One type of event."""

    name: str
    """Its name in plain words."""
    roles: dict[str, str] = Field(default_factory=dict)
    """Its roles: source label -> name in plain words."""


FROM_DATA = "from_data"
OpenKind = Literal["label", "entity"]


def _written_as(form: Any) -> BeforeValidator:
    """Tell editors in which form the key may be written; `Categories` itself converts it."""
    return BeforeValidator(lambda given: given, json_schema_input_type=form)


# Source label -> natural name; or labels, named by `names`; or all labels that the data has.
Names = Annotated[dict[str, str], _written_as(dict[str, str] | list[str] | Literal["from_data"])]
RelationTypes = Annotated[list[RelationType], _written_as(list[RelationType | str])]


class Categories(Described):
    """The candidate categories of every record, in order. Labels with the same name are one category."""

    names: NameRules = NameRules()
    """How names are made of labels that have none."""
    from_data: list[OpenKind] = Field(default_factory=list)
    """Kinds whose categories are all labels in the data. `label: from_data` is short for it."""
    label: Names = Field(default_factory=dict)
    """Labels of whole texts: source label -> name in plain words, or a list of source labels."""
    entity: Names = Field(default_factory=dict)
    """Types of entities, in the same form."""
    relation: RelationTypes = Field(default_factory=list)
    """Types of relations, or source labels."""
    event: dict[str, EventType] = Field(default_factory=dict)
    """Types of events, by their source labels."""
    value: list[Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=list)
    """The numbers that a regression chooses among, in ascending order."""
    fillers: str | None = None
    """For task ner: a pattern such as "{role} of the {event}". Each role filler of an event becomes a mention of
    the category with this name. The corpus then has no other categories."""

    @model_validator(mode="before")
    @classmethod
    def _names_by_rules(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get(FROM_DATA, []), list):
            return given
        try:
            rules = NameRules.model_validate(given.get("names", {}))
        except ValidationError:
            return given  # pydantic then reports the error of `names`
        named, open_kinds = dict(given), list(given.get(FROM_DATA, []))
        for kind in ("label", "entity"):
            if named.get(kind) == FROM_DATA:
                named[kind] = {}
                open_kinds.append(kind)
            elif isinstance(labels := named.get(kind), list) and all(map(_is_scalar, labels)):
                named[kind] = {label: rules.name(str(label)) for label in labels}
        if isinstance(named.get("relation"), list):
            named["relation"] = [
                {"label": each, "name": rules.name(str(each))} if _is_scalar(each) else each
                for each in named["relation"]
            ]
        return {**named, FROM_DATA: open_kinds} if open_kinds else named

    def filled(self, labels: dict[str, list[str]]) -> Categories:
        """These categories with the labels that the data has of some kinds."""
        names = {kind: {label: self.names.name(label) for label in found} for kind, found in labels.items()}
        return self.model_copy(update=names)

    @field_validator("fillers")
    @classmethod
    def _names_role_and_event(cls, given: str | None) -> str | None:
        if given is not None and not ("{role}" in given and "{event}" in given):
            raise ValueError(f"expected a name with {{role}} and {{event}} in it, got {given!r}")
        return given

    @field_validator("value")
    @classmethod
    def _ascends(cls, given: list[float]) -> list[float]:
        if any(not low < high for low, high in pairwise(given)):
            raise ValueError(f"expected numbers that ascend, got {given}")
        return given

    def of_relation(self, relation: RelationType) -> Category:
        """The category of a relation type, its argument types by their natural names."""
        head = relation.head and self.entity[relation.head]
        tail = relation.tail and self.entity[relation.tail]
        return Category(relation.name, "relation", head=head, tail=tail)

    def filler(self, role: str, event: str) -> Category:
        """The category of what fills a role of an event, where fillers are mentions."""
        return Category((self.fillers or "").replace("{role}", role).replace("{event}", event), "entity")

    def all(self) -> tuple[Category, ...]:
        """Labels, entities, relations, events, the roles event by event, then values, each once."""
        roles = [(role, event.name) for event in self.event.values() for role in event.roles.values()]
        if self.fillers is not None:
            return tuple(dict.fromkeys(self.filler(role, event) for role, event in roles))
        every = (
            *(Category(name, "label") for name in self.label.values()),
            *(Category(name, "entity") for name in self.entity.values()),
            *(self.of_relation(relation) for relation in self.relation),
            *(Category(event.name, "event") for event in self.event.values()),
            *(Category(role, "role", event=event) for role, event in roles),
            *(Category(_number(value), "value") for value in self.value),
        )
        return tuple(dict.fromkeys(every))

    @model_validator(mode="after")
    def _relations_join_entities(self) -> Categories:
        for relation in self.relation:
            for side in (relation.head, relation.tail):
                if side is not None and side not in self.entity:
                    raise ValueError(
                        f"relation {relation.label!r} joins {side!r}, which is not a label of `entity`; add it "
                        "there"
                    )
        return self


def _number(value: float) -> str:
    """Write a number shortly, but so that it can be read again."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _is_scalar(given: Any) -> bool:
    """Whether a value is a label, or what YAML made of one without quotes, such as `no` or 1."""
    return isinstance(given, str | int | float | date | None)


def _wrong_fillers(task: Task | None, mapping: Mapping | None, given: Categories) -> str | None:
    """Return why a task and a mapping can't have these `fillers`, or need some; None if all is well."""
    if mapping is None:
        return None
    if given.fillers is not None and (task != "ner" or not (mapping.events or mapping.standoff)):
        return "`fillers` is for task ner with `events` or `standoff` in `map`"
    if given.fillers is None and task == "ner" and mapping.events:
        return 'task ner with `events` needs `fillers`, such as "{role} of the {event}"'
    return None


# The kinds of category that a task cannot do without.
NEEDED_KIND: dict[Task, str] = {
    "classification": "label",
    "multilabel": "label",
    "pair": "label",
    "ner": "entity",
    "relation": "relation",
    "event": "event",
    "regression": "value",
}


class DatasetSpec(Described):
    """One dataset for one task. A file may begin with `extends: <name>` of another spec, and then states only what
    differs: in `map`, `options` and `categories` key by key. A key without a value removes the inherited one."""

    name: str = Field(pattern=NAME)
    """The name of the corpus, and of this file."""
    dataset: str | None = Field(default=None, pattern=NAME)
    """The folder of the raw files in the mirror; by default the name. Several specs can read one folder."""
    description: str
    """What the dataset is, and which parts are left out or rejected, and why."""
    task: Task
    """The kind of annotation, which a model learns to predict."""
    language: str = Field(pattern=LANGUAGE)
    """The language as a BCP-47 tag: en, de, zh-Hant."""
    licence: str
    """The licence in the publisher's words."""
    licence_class: LicenceClass | None = Field(default=None, validate_default=True)
    """What the licence allows; required if its name is not well known. `licences` of a mixture selects by it."""
    upstream: Upstream | None = None
    """Where the publisher keeps the dataset."""
    instruction: str = Field(min_length=1)
    """The task in words, which the model reads, such as "sentiment of a review"."""
    format: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    """The format of the files; docs/formats.md lists all."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the format."""
    fetch: Fetches = Field(default_factory=list)
    """Where to download files that are not in the mirror."""
    files: list[Files] = Field(min_length=1)
    """The source files, split by split."""
    error_budget: float = Field(default=0.01, ge=0, le=1)
    """The share of a split's rows, and of its files, that may be rejected. Above it, nothing is published. If you
    need more than 0.05, the spec is more likely wrong than the data."""
    twins: list[Annotated[str, Field(pattern=NAME)]] = Field(default_factory=list)
    """Datasets (folders of the mirror) or specs with the same texts and other annotations. `hold_out` of a mixture
    holds them out together."""
    map: Mapping
    """Which fields of a row make up a record."""
    categories: Categories = Field(default=Categories(), validate_default=True)
    """The categories: source label -> name in plain words."""

    @property
    def folder(self) -> str:
        """Name of the dataset's folder of raw files."""
        return self.dataset or self.name

    @field_validator("licence_class")
    @classmethod
    def _is_classed(cls, given: LicenceClass | None, info: ValidationInfo) -> LicenceClass | None:
        licence = info.data.get("licence")
        found = given or (licence and licence_class(licence))
        if licence and not found:
            raise ValueError(
                f"licence {licence!r} is not a well-known one; give its class, one of {', '.join(CLASSES)}"
            )
        return found

    @field_validator("files")
    @classmethod
    def _named_once(cls, given: list[Files]) -> list[Files]:
        named = [(files.split, files.path) for files in given]
        twice = sorted({f"{path} of {split}" for split, path in named if named.count((split, path)) > 1})
        if twice:
            raise ValueError(f"named twice in one split: {', '.join(twice)}; name each once")
        return given

    @field_validator("map")
    @classmethod
    def _maps_what_the_task_needs(cls, given: Mapping, info: ValidationInfo) -> Mapping:
        task = info.data.get("task")
        wrong = task and given.wrong(task)
        if wrong:
            raise ValueError(wrong)
        return given

    @field_validator("categories")
    @classmethod
    def _has_what_the_task_needs(cls, given: Categories, info: ValidationInfo) -> Categories:
        kind = NEEDED_KIND.get(info.data.get("task", "text"))
        mapping: Mapping | None = info.data.get("map")
        if wrong := _wrong_fillers(info.data.get("task"), mapping, given):
            raise ValueError(wrong)
        kind = kind if given.fillers is None else "event"
        from_rows = mapping is not None and mapping.candidates is not None
        if kind is not None and not from_rows and not getattr(given, kind) and kind not in given.from_data:
            raise ValueError(f"task {info.data['task']} needs `{kind}`; list its categories there")
        if kind == "value" and (others := [c.kind for c in given.all() if c.kind != kind]):
            raise ValueError(
                f"task regression takes only `value`; remove `{others[0]}` (`{others[0]}: ` if inherited)"
            )
        return given
