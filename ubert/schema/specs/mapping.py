"""`map` of a dataset's spec: which fields of a raw row hold what.

A field is named by a path (see `pipelines/mapping/paths.py`). Its keys are joined by dots. `[]` means every item
of a list. `{x}` means every key of an object; other paths of the same entry then use `{x}` for this key. A key in
double quotes, as in `"a.b"`, is meant literally.
The paths of an entry start at its item, or at the row if they begin with `/`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ubert.schema.record import Task
from ubert.schema.specs.rules import Clean, Condition, listed
from ubert.schema.yaml_file import Described

Scheme = Literal["BIO", "IOB", "IO", "BIOES", "BMES"]
Unit = Literal["character", "token", "utf16", "byte"]
Ignored = Literal["relations", "events", "attributes", "equivalences", "notes"]

QUOTED = r'(?:^|(?<=^/)|(?<=\.))"((?:[^"]|"")+)"(?=[.\[?]|$)'  # a step of a path: a key in double quotes


def quoted(key: str) -> str:
    """Write a key in double quotes, as a step of a path."""
    return '"' + key.replace('"', '""') + '"'


def unquoted(path: str) -> str:
    """Return a path without the quotes of its keys, for labels and messages."""
    return re.sub(QUOTED, lambda found: found[1].replace('""', '"'), path)


def _is_path(path: str) -> str:
    inner = re.sub(QUOTED, "key", path.removeprefix("/"))
    if (
        not inner
        or inner.count("{") != inner.count("}")
        or (inner.endswith(".") and inner != ".")
        or ".." in inner
        or re.search(r'(^|\.)"', inner)
    ):
        raise ValueError(
            "expected keys joined by dots, such as a.b, with [] for every item of a list: a[].b;"
            ' a key that has such signs itself is in double quotes: "a.b"'
        )
    return path


Path = Annotated[str, AfterValidator(_is_path)]


def _listed_as(item: Any) -> BeforeValidator:
    return BeforeValidator(listed, json_schema_input_type=item | list[item] | None)


# One path, or several that make up an id together.
Id = Path | Annotated[list[Path], Field(min_length=2)]
# One path, or several.
Paths = Annotated[list[Path], BeforeValidator(listed, json_schema_input_type=str | list[str])]


class Offsets(Described):
    """How the source gives the places of mentions."""

    unit: Unit = "character"
    """What `start`, `end` and `fragments` count. utf16: UTF-16 units, as in JavaScript, Java and .NET; an emoji is
    two. byte: the bytes of UTF-8."""
    end: Literal["exclusive", "inclusive"] = "exclusive"
    """exclusive: the end is the first place after the mention. inclusive: it is the mention's last place."""
    base: Literal["text", "document"] = "text"
    """Where offsets begin: at the text, or at a larger document that is not given. For a document, the row's
    mentions are shifted by the one number that puts all of them at their words."""
    absent_start: int | None = None
    """The start of mentions that have none."""
    compare: Literal["exact", "folded"] = "exact"
    """How given words must equal those of the text. exact: a line end may be a space. folded: case and white space
    don't count."""
    locate: Literal["reject", "unique", "first", "nearest"] = "reject"
    """What to do with a mention that has no offsets, or whose words are not at its offsets. reject: refuse the
    row. unique: take the place where its words are, if there is only one. first: take the first such place.
    nearest: take the one next to its offset."""


class Mention(Described):
    """One mention. Its place is one of: `start` with `end` or `words`; `fragments`; `indices`; `words` alone."""

    label: Path | None = None
    """The field with its label."""
    constant: str | None = Field(default=None, alias="as")
    """Instead of `label`: one label for all of them."""
    start: Path | None = None
    """Its start."""
    end: Path | None = None
    """Its end."""
    fragments: Path | None = None
    """A list of [start, end]."""
    indices: Path | None = None
    """A list of the numbers of its tokens."""
    words: Path | None = None
    """Its words, which are compared with the text."""
    sentence: Path | None = None
    """The number of the sentence in which token offsets count."""
    kb_id: Path | None = None
    """Its id in a knowledge base, or a list of ids, which are joined by `|`."""

    @model_validator(mode="after")
    def _has_a_place(self) -> Mention:
        ways = [self.start is not None, self.fragments is not None, self.indices is not None]
        if sum(ways) > 1 or not (any(ways) or self.words):
            raise ValueError("expected one of: start with end or words; fragments; indices; words alone")
        if (self.start is None and self.end is not None) or (self.start and not (self.end or self.words)):
            raise ValueError("start needs end, or words; end needs start")
        if self.label is not None and self.constant is not None:
            raise ValueError("expected label or as, not both")
        return self


class Mentions(Mention):
    """Mentions of the row."""

    each: Path = "."
    """The list of mentions. By default, the row itself is one."""
    id: Id | None = None
    """The field, or fields, with its id. Mentions with the same id are one entity or one cluster. They share a
    group, and the first represents it."""
    scope: Literal["row", "entry"] = "row"
    """Where ids are unique. entry: each entry has ids of its own, to which nothing can refer."""
    when: dict[Path, Condition] = Field(default_factory=dict)
    """Take only items whose fields have these values or pass these tests."""


class Relations(Described):
    """Relations of the row."""

    each: Path = "."
    """The list of relations. By default, the row itself is one."""
    label: Path | None = None
    """The field with its label."""
    constant: str | None = Field(default=None, alias="as")
    """Instead of `label`: one label for all of them."""
    head: Id | Mention
    """The id of its head, or the mention itself."""
    tail: Id | Mention
    """The id of its tail, or the mention itself."""
    when: dict[Path, Condition] = Field(default_factory=dict)
    """Take only items whose fields have these values or pass these tests."""


class TokenRelations(Described):
    """Relations in columns parallel to the tokens. A token represents the mention that ends with it, or that
    contains it."""

    labels: Path
    """For each token, a list of labels of relations."""
    numbers: Path
    """For each of these labels, the number of another token."""
    lead_to: Literal["head", "tail"]
    """Whether the numbered token is the head or the tail. This token is the opposite end."""
    first: Literal[0, 1] = 0
    """The number of the first token."""


class Arguments(Described):
    """Arguments of an event."""

    each: Path
    """The list of arguments."""
    role: Path | None = None
    """The field with its role."""
    constant: str | None = Field(default=None, alias="as")
    """Instead of `role`: one role for all of them."""
    target: Id | Mention
    """The id of a mention or an event, or a mention itself."""

    @model_validator(mode="after")
    def _has_a_role(self) -> Arguments:
        if (self.role is None) == (self.constant is None):
            raise ValueError("expected role or as")
        return self


class Events(Described):
    """Events of the row."""

    each: Path = "."
    """The list of events. By default, the row itself is one."""
    id: Id | None = None
    """The field, or fields, with its id."""
    label: Path | None = None
    """The field with its label."""
    constant: str | None = Field(default=None, alias="as")
    """Instead of `label`: one label for all of them."""
    trigger: Id | Mention | None = None
    """The id of its trigger, or the mention itself. The trigger has the event's label."""
    arguments: Annotated[list[Arguments] | None, _listed_as(Arguments)] = None
    """Its arguments."""
    when: dict[Path, Condition] = Field(default_factory=dict)
    """Take only items whose fields have these values or pass these tests."""

    @model_validator(mode="after")
    def _has_a_label(self) -> Events:
        if (self.label is None) == (self.constant is None):
            raise ValueError("expected label or as")
        return self


def _answers(given: Any) -> Any:
    """The answers of SQuAD, where a path alone is given."""
    return {"each": f"{given}[]", "words": "text", "start": "answer_start"} if isinstance(given, str) else given


class Mapping(Described):
    """Which fields of a row make up a record. The text is one of `text`, `tokens` and `chunks`; the task decides
    what else is needed."""

    clean: dict[Path, Clean] = Field(default_factory=dict)
    """How to clean fields first."""
    when: dict[Path, Condition] = Field(default_factory=dict)
    """Take only rows whose fields have these values or pass these tests. The others are left out, and counted."""

    text: Paths | None = None
    """The field with the text, or several, which `join` joins."""
    join: str = "\n"
    """The string between several fields."""
    tokens: Path | None = None
    """The words: a list, a list of sentences, or a string."""
    glue: str = " "
    """The string between words."""
    chunks: Path | None = None
    """A list of {text, entity?}."""
    pair: Paths | None = None
    """The second text, in the form of `text`."""

    label: Path | None = None
    """The label, or a list of labels."""
    label_separator: str | None = Field(default=None, min_length=1)
    """What separates labels in one string, for task multilabel."""
    ignore_labels: list[str] = Field(default_factory=list)
    """Labels to leave out. Any other unknown label rejects its row."""
    label_flags: Annotated[list[Path] | None, Field(min_length=2)] = None
    """Instead of `label`: a field for each label, with 1 or true where the text has it, and else 0 or false."""
    candidates: Path | dict[str, Path] | None = None
    """Categories that the row itself has: a list, or a field for each key."""
    candidate_keys: Path | None = None
    """A list of the candidates' keys, by which `label` names one."""
    candidate_flags: Path | None = None
    """Instead of `label`: a list with 1 or true for each candidate that is right."""
    value: Path | None = None
    """The field with the number, for task regression."""
    target: Path | None = None
    """The field with the text to generate, for task seq2seq."""

    tags: Paths | None = None
    """A list with a tag for each token. With nested mentions there are several such fields."""
    scheme: Scheme = "BIO"
    """The scheme of the tags."""
    offsets: Offsets = Offsets()
    """How the places of mentions are given."""
    spans: Annotated[list[Mentions] | None, _listed_as(Mentions)] = None
    """Mentions; one entry, or several that are read one after another."""
    relations: Annotated[list[Relations] | None, _listed_as(Relations)] = None
    """Relations between mentions."""
    token_relations: TokenRelations | None = None
    """Relations in columns parallel to the tokens."""
    events: Annotated[list[Events] | None, _listed_as(Events)] = None
    """Events of the row."""
    links: Annotated[list[Relations] | None, _listed_as(Relations)] = None
    """Pairs of mentions that belong to one cluster."""
    standoff: Path | None = None
    """Spans, relations and events by id, as the readers of brat and other annotation formats give them."""
    ignore: list[Ignored] = Field(default_factory=list)
    """Kinds of standoff annotations to leave out. Any other kind that a record can't hold rejects its row."""

    question: Path | None = None
    """The field with the question."""
    answers: Annotated[
        Mentions | None, BeforeValidator(_answers, json_schema_input_type=str | Mentions | None)
    ] = None
    """Its answers in the text; a path alone leads to answers in the form of SQuAD."""
    unanswerable: Path | None = None
    """The field that is true if the question has no answer. Without it, such a row is rejected."""

    def wrong(self, task: Task) -> str | None:
        """Return why this mapping doesn't fit a task, or None if it does."""
        given = {key for key, value in self if value is not None and key not in _MODIFIERS and key not in _OF_ROWS}
        body = given & _BODY
        if len(body) != 1:
            return (
                f"expected one of {', '.join(sorted(_BODY))}, got {' and '.join(sorted(body)) or 'none of them'}"
            )
        forms = _FORMS[task]
        if task == "ner":
            forms = (set(),) if "chunks" in given else _NER if "tokens" in given else _NER[1:]
        if not any(needed <= given - body <= needed | _MAY[task] for needed in forms):
            needed = ", or ".join(" and ".join(sorted(form)) for form in forms) or "nothing else"
            may = f" (and may have {', '.join(sorted(_MAY[task]))})" if _MAY[task] else ""
            got = " and ".join(sorted(given - body)) or "nothing"
            return f"in addition to {next(iter(body))}, task {task} needs {needed}{may}; got {got}"
        if self.candidate_keys is not None and isinstance(self.candidates, dict):
            return "candidate_keys: no effect here, because `candidates` has keys; remove it"
        if "tokens" not in given and (wants := sorted(given & {"tags", "token_relations"})):
            return f"{wants[0]} needs `tokens`: it has an entry for each token"
        idle = [k for k, bases in _MODIFIERS.items() if k in self.model_fields_set and not bases & given]
        return f"{', '.join(sorted(idle))}: no effect here; remove it" if idle else None


_BODY = {"text", "tokens", "chunks"}
_LABELS = ({"label"}, {"label", "candidates"}, {"candidates", "candidate_flags"}, {"label_flags"})
_NER = ({"tags"}, {"spans"}, {"standoff"}, {"events"}, {"events", "spans"})
# The keys that each task needs in addition to the text: all keys of one of these sets.
_FORMS: dict[Task, tuple[set[str], ...]] = {
    "classification": _LABELS,
    "multilabel": _LABELS,
    "pair": ({"pair", "label"}, {"pair", "candidates", "candidate_flags"}),
    "choice": ({"candidates", "label"}, {"candidates", "candidate_flags"}),
    "regression": ({"value"},),
    "ner": _NER,
    "relation": ({"standoff"}, {"relations"}, {"token_relations"}),
    "event": ({"standoff"}, {"events"}),
    "coref": ({"spans"}, {"standoff"}),
    "qa": ({"question", "answers"},),
    "seq2seq": ({"target"},),
    "text": (set(),),
}
_MAY: dict[Task, set[str]] = {
    "classification": set(),
    "multilabel": set(),
    "pair": {"candidates"},
    "choice": {"pair"},
    "regression": {"pair"},
    "ner": {"candidates"},
    "relation": {"spans", "tags"},
    "event": {"spans"},
    "coref": {"links"},
    "qa": {"unanswerable"},
    "seq2seq": {"pair"},
    "text": {"spans"},
}
_OF_ROWS = {"clean", "when"}
# Keys that determine how others are read.
_MODIFIERS: dict[str, set[str]] = {
    "join": {"text", "pair"},
    "glue": {"tokens"},
    "label_separator": {"label"},
    "ignore_labels": {"label", "tags", "spans", "standoff", "relations", "token_relations", "events"},
    "candidate_keys": {"candidates"},
    "scheme": {"tags"},
    "offsets": {"spans", "standoff", "relations", "events", "answers"},
    "ignore": {"standoff"},
}
