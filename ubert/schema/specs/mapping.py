"""`map` of a dataset's spec: which fields of a raw row hold what.

Fields are paths (see `pipelines/mapping/paths.py`): keys joined by dots, `[]` for every item of a list, `{x}`
for every key of an object, which paths of the same entry then call `{x}`. Paths of an entry are looked up in its
item, those that begin with `/` in the row.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ubert.schema.record import Task
from ubert.schema.specs.rules import Clean, Condition, listed
from ubert.schema.yaml_file import Strict

Scheme = Literal["BIO", "IOB", "IO", "BIOES", "BMES"]
Ignored = Literal["relations", "events", "attributes", "equivalences", "notes"]


def _is_path(path: str) -> str:
    inner = path.removeprefix("/")
    if (
        not inner
        or inner.count("{") != inner.count("}")
        or (inner.endswith(".") and inner != ".")
        or ".." in inner
    ):
        raise ValueError("expected keys joined by dots, such as a.b, with [] for every item of a list: a[].b")
    return path


Path = Annotated[str, AfterValidator(_is_path)]


def _listed_as(item: Any) -> BeforeValidator:
    return BeforeValidator(listed, json_schema_input_type=item | list[item] | None)


# One path, or several that make up an id together.
Id = Path | Annotated[list[Path], Field(min_length=2)]
# One path, or several.
Paths = Annotated[list[Path], BeforeValidator(listed, json_schema_input_type=str | list[str])]


class Offsets(Strict):
    """How the places of mentions are given.

    unit: `start`, `end` and `fragments` count characters, or tokens. end: the end is the first place after the
    mention (exclusive), or its last (inclusive). base: offsets count from the start of the text, or of a larger
    document that is not given: then the one shift at which all mentions of the row have their words is taken.
    absent_start: the start of mentions that give none. compare: words are equal as they are (exact; a line end
    may be given as a space), or without regard to case and white space (folded). locate: what becomes of a
    mention that has no offsets, or other words at its offsets than it says: the row is refused (reject); it is
    where its words are found, if just once in the text (unique), first (first), or next to its offset
    (nearest)."""

    unit: Literal["character", "token"] = "character"
    end: Literal["exclusive", "inclusive"] = "exclusive"
    base: Literal["text", "document"] = "text"
    absent_start: int | None = None
    compare: Literal["exact", "folded"] = "exact"
    locate: Literal["reject", "unique", "first", "nearest"] = "reject"


class Mention(Strict):
    """One mention: where it is, and its label (`label`: a field, `as`: the same for all).

    Its place: `start` with `end` or `words`; `fragments`, a list of [start, end]; `indices`, a list of tokens;
    or `words` alone. `sentence`: the number of the sentence in which token offsets count. Words that are given
    are compared with the text. `kb_id`: its id in a knowledge base, or a list of ids, which are joined by `|`."""

    label: Path | None = None
    constant: str | None = Field(default=None, alias="as")
    start: Path | None = None
    end: Path | None = None
    fragments: Path | None = None
    indices: Path | None = None
    words: Path | None = None
    sentence: Path | None = None
    kb_id: Path | None = None

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
    """Mentions of the row: one for each that `each` leads to, or one. Mentions of one `id` (a field, or several)
    are one entity (or one cluster): they share a group, and the first stands for it. `scope` entry: its ids are no
    other entry's, so that each entry may count from 1; nothing can refer to them. `when`: only where each of these
    fields has the value, or one of the values, that is named, or passes a test."""

    each: Path = "."
    id: Id | None = None
    scope: Literal["row", "entry"] = "row"
    when: dict[Path, Condition] = Field(default_factory=dict)


class Relations(Strict):
    """Relations of the row: `head` and `tail` are ids of mentions, or mentions themselves."""

    each: Path = "."
    label: Path | None = None
    constant: str | None = Field(default=None, alias="as")
    head: Id | Mention
    tail: Id | Mention
    when: dict[Path, Condition] = Field(default_factory=dict)


class TokenRelations(Strict):
    """Relations in columns beside the tokens: each token has a list of `labels`, and as many `numbers` of other
    tokens, counted from `first`. A token stands for the mention that ends with it, or that it is in. The numbers
    lead to the head of each relation, or to its tail (`lead_to`); the token itself is of the other one."""

    labels: Path
    numbers: Path
    lead_to: Literal["head", "tail"]
    first: Literal[0, 1] = 0


class Arguments(Strict):
    """Arguments of an event: `target` is the id of a mention or an event, or a mention itself. Their role is
    `role`, or `as` for all."""

    each: Path
    role: Path | None = None
    constant: str | None = Field(default=None, alias="as")
    target: Id | Mention

    @model_validator(mode="after")
    def _has_a_role(self) -> Arguments:
        if (self.role is None) == (self.constant is None):
            raise ValueError("expected role or as")
        return self


class Events(Strict):
    """Events of the row: `trigger` is the id of a mention, or a mention itself, whose label is the event's. The
    label is `label`, or `as` for all."""

    each: Path = "."
    id: Id | None = None
    label: Path | None = None
    constant: str | None = Field(default=None, alias="as")
    trigger: Id | Mention | None = None
    arguments: Annotated[list[Arguments] | None, _listed_as(Arguments)] = None
    when: dict[Path, Condition] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_a_label(self) -> Events:
        if (self.label is None) == (self.constant is None):
            raise ValueError("expected label or as")
        return self


def _answers(given: Any) -> Any:
    """The answers of SQuAD, where a path alone is given."""
    return {"each": f"{given}[]", "words": "text", "start": "answer_start"} if isinstance(given, str) else given


class Mapping(Strict):
    """What of a row makes up a record.

    The text is `text` (one or several fields, joined by `join`), or `tokens` (a list of words, or of sentences of
    words, or a string of words; joined by `glue`), or `chunks` (a list of {text, entity?}). `pair` is read as
    `text`. `tags` are as many as tokens; of several fields of tags (nested mentions) each is read. `candidates`
    are categories that the row itself names: a list, with `candidate_keys` to tell them by, or a field for each
    key; instead of a label, `candidate_flags` are 1 or true for those that are labels. `standoff` holds spans,
    relations and events by id, as `pipelines/sources/annotation_formats/brat.py` describes. `links` join mentions
    that are of one cluster. A question without `answers` is kept only where `unanswerable` is true. `clean` says
    how fields are cleaned first; `when`, which rows are taken: the others are left out, and counted."""

    clean: dict[Path, Clean] = Field(default_factory=dict)
    when: dict[Path, Condition] = Field(default_factory=dict)

    text: Paths | None = None
    join: str = "\n"
    tokens: Path | None = None
    glue: str = " "
    chunks: Path | None = None
    pair: Paths | None = None

    label: Path | None = None
    label_separator: str | None = Field(default=None, min_length=1)  # between the labels of a multilabel string
    ignore_labels: list[str] = Field(default_factory=list)
    candidates: Path | dict[str, Path] | None = None
    candidate_keys: Path | None = None
    candidate_flags: Path | None = None
    value: Path | None = None
    target: Path | None = None

    tags: Paths | None = None
    scheme: Scheme = "BIO"
    offsets: Offsets = Offsets()
    spans: Annotated[list[Mentions] | None, _listed_as(Mentions)] = None
    relations: Annotated[list[Relations] | None, _listed_as(Relations)] = None
    token_relations: TokenRelations | None = None
    events: Annotated[list[Events] | None, _listed_as(Events)] = None
    links: Annotated[list[Relations] | None, _listed_as(Relations)] = None
    standoff: Path | None = None
    # Kinds of standoff that are not taken. Any other that a record cannot hold makes a reject, so nothing is
    # lost in silence; so do labels, unless `ignore_labels` names them.
    ignore: list[Ignored] = Field(default_factory=list)

    question: Path | None = None
    answers: Annotated[
        Mentions | None, BeforeValidator(_answers, json_schema_input_type=str | Mentions | None)
    ] = None
    unanswerable: Path | None = None

    def wrong(self, task: Task) -> str | None:
        """What makes this no mapping for a task, if anything does."""
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
            return f"beside {next(iter(body))}, task {task} needs {needed}{may}; got {got}"
        if self.candidate_keys is not None and isinstance(self.candidates, dict):
            return "candidate_keys: without a use here, as `candidates` has keys; remove it"
        if "tokens" not in given and (wants := sorted(given & {"tags", "token_relations"})):
            return f"{wants[0]} needs `tokens`: it has an entry for each token"
        idle = [k for k, bases in _MODIFIERS.items() if k in self.model_fields_set and not bases & given]
        return f"{', '.join(sorted(idle))}: without a use here; remove it" if idle else None


_BODY = {"text", "tokens", "chunks"}
_NER = ({"tags"}, {"spans"}, {"standoff"}, {"events"}, {"events", "spans"})
# What each task is mapped from, beside the text: one of these sets, whole.
_FORMS: dict[Task, tuple[set[str], ...]] = {
    "classification": ({"label"}, {"candidates", "candidate_flags"}),
    "multilabel": ({"label"}, {"candidates", "candidate_flags"}),
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
    "classification": {"candidates"},
    "multilabel": {"candidates"},
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
# Keys that say how others are read.
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
