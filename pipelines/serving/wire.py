"""The server's requests and responses, as its OpenAPI document describes them, and its limits. This module
imports no torch, because the server starts before the model is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Overlap

Task = Literal[
    "classification", "multilabel", "pair", "choice", "regression", "ner", "relation", "event", "coref", "qa"
]
TASKS: tuple[Task, ...] = get_args(Task)
# A request is validated before its size is checked, so its size must not be the number of its errors.
Strings = Annotated[list[str], Field(fail_fast=True)]
MOST_KEYS = 10_000  # of a mapping; each key can be an error


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one request and of the queue.

    `body`: bytes of a request. `characters`: of one text or name. `waiting`: texts in the queue.
    `seconds`: until a request's body has arrived, and until the request is answered.
    """

    body: int = 1 << 20
    texts: int = 128
    characters: int = 20_000
    categories: int = 256
    waiting: int = 1024
    seconds: float = 30.0


class TooMuchError(UserError):
    """A request exceeds a limit."""


class AbsentError(UserError):
    """An address names something that doesn't exist."""


class Body(BaseModel):
    """A JSON object that allows only these keys."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def check_keys(cls, given: Any) -> Any:
        """Check the number of keys of the object, and of each mapping in it.

        Raises:
            TooMuchError: there are too many.
        """
        if isinstance(given, dict):
            most = max(len(mapping) for mapping in (given, *given.values()) if isinstance(mapping, dict))
            if most > MOST_KEYS:
                raise TooMuchError(f"an object has {most:,} keys, expected at most {MOST_KEYS:,}; ask for fewer")
        return given


class PredictOptions(Body):
    """What to predict for texts."""

    task: Task
    categories: Strings = Field([], description="Labels, entity types, questions, or numbers of a scale.")
    relations: dict[str, Annotated[list[str], Field(min_length=2, max_length=2)] | None] = Field(
        {}, description="For relation: a name, and the entity types of its head and tail, or null for any."
    )
    events: dict[str, Strings] = Field({}, description="For event: a type, and its roles.")
    instruction: str | None = Field(None, description="The task in words, as in the training.")
    threshold: float | None = Field(None, gt=0, lt=1, description="Least probability of a prediction.")
    overlap: Overlap | dict[str, Overlap] = Field(
        "highest", description="Which of two overlapping mentions are kept."
    )
    discontinuous: bool = Field(False, description="For ner: mentions may have several fragments.")

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `ubert.inference.questions.questions`."""
        given = {name: getattr(self, name) for name in PredictOptions.model_fields}
        return {**given, "relations": {name: ends and tuple(ends) for name, ends in self.relations.items()}}

    def check(self, limits: Limits) -> None:
        """Check the categories against the limits.

        Raises:
            TooMuchError: there are too many categories, or one is too long.
        """
        names = [
            *self.categories,
            *(name for relation, ends in self.relations.items() for name in (relation, *(ends or ()))),
            *(name for event, roles in self.events.items() for name in (event, *roles)),
        ]
        if len(names) > limits.categories:
            raise TooMuchError(f"{len(names):,} categories, expected at most {limits.categories:,}; ask for fewer")
        check_lengths("a category or the instruction", [*names, self.instruction or ""], limits)


class PredictRequest(PredictOptions):
    """Texts, and what to predict for each of them."""

    texts: Strings = Field(min_length=1)
    pairs: Strings | None = Field(None, description="The second text of each text.")

    def check(self, limits: Limits) -> None:
        PredictOptions.check(self, limits)
        if len(self.texts) > limits.texts:
            raise TooMuchError(
                f"{len(self.texts):,} texts, expected at most {limits.texts:,}; send several requests"
            )
        check_lengths("a text", [*self.texts, *(self.pairs or ())], limits)


class TablesRequest(PredictOptions):
    """One text, and what to score in its structure tables."""

    text: str
    pair: str | None = None

    def check(self, limits: Limits) -> None:
        PredictOptions.check(self, limits)
        check_lengths("the text", [self.text, self.pair or ""], limits)


def check_lengths(what: str, strings: list[str], limits: Limits) -> None:
    """Check the lengths of strings against the limits.

    Raises:
        TooMuchError: a string is too long.
    """
    longest = max(map(len, strings), default=0)
    if longest > limits.characters:
        raise TooMuchError(
            f"{what} has {longest:,} characters, expected at most {limits.characters:,}; send it in parts"
        )


class Mention(BaseModel):
    """A mention: the characters [start, end) of the text."""

    start: int
    end: int
    category: str
    text: str
    score: float


class Prediction(BaseModel):
    """One prediction. It has the fields of its task; see the guide "Predict"."""

    category: str | None = None
    score: float | None = None
    value: float | None = None
    start: int | None = None
    end: int | None = None
    text: str | None = None
    fragments: list[Mention] | None = None
    head: Mention | None = None
    tail: Mention | None = None
    trigger: Mention | None = None
    arguments: list[Mention] | None = None
    mentions: list[Mention] | None = None


class PredictResponse(BaseModel):
    """The predictions of each text, in the order of the texts."""

    model: str
    results: list[list[Prediction]]


class Token(BaseModel):
    """A token: the characters [start, end) of the text."""

    start: int
    end: int


class Table(BaseModel):
    """The structure table of one category. `anchor` is the probability that a label holds for the whole
    text, or that a question has no answer in the tokens; null for kinds that have none. `cells` has [first
    token, last token, probability] for each cell above a small probability."""

    category: str
    kind: str
    anchor: float | None
    cells: list[tuple[int, int, float]]


class Tables(BaseModel):
    """The tokens of a text, as far as one forward pass reads it, and its tables."""

    tokens: list[Token]
    tables: list[Table]


class ModelInfo(BaseModel):
    """The model, its tasks and its limits. `key`: requests need an API key."""

    model: str
    ready: bool
    key: bool
    tasks: tuple[Task, ...]
    thresholds: dict[str, float]
    limits: Limits


class ErrorResponse(BaseModel):
    """Why a request failed, in one sentence."""

    error: str
