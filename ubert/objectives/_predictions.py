"""What a model says of a text, typed. Offsets are characters of the text; a `score` is a probability."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class LabelPrediction:
    """A category that holds for the whole text."""

    category: str
    score: float


@dataclass(slots=True, frozen=True)
class ValuePrediction:
    """The number that a text has."""

    value: float


@dataclass(slots=True, frozen=True)
class TextPrediction:
    """The negative log-likelihood of a text's masked tokens together, in nats, and how many these are."""

    nats: float
    masked: int


@dataclass(slots=True, frozen=True)
class SpanPrediction:
    """A mention: characters [start, end) of the text."""

    start: int
    end: int
    category: str
    text: str
    score: float


@dataclass(slots=True, frozen=True)
class DiscontinuousPrediction:
    """A mention of several fragments, in the order of the text; `score` is the lowest of its cells."""

    category: str
    fragments: tuple[SpanPrediction, ...]
    score: float


@dataclass(slots=True, frozen=True)
class RelationPrediction:
    """A relation from one mention to another; `score` is the lower one of its two cells."""

    category: str
    head: SpanPrediction
    tail: SpanPrediction
    score: float


@dataclass(slots=True, frozen=True)
class EventPrediction:
    """An event: its trigger, and its arguments in the order of the text, with their roles as categories. An
    argument that is an event itself has the words of that event's trigger."""

    category: str
    trigger: SpanPrediction
    arguments: tuple[SpanPrediction, ...]


@dataclass(slots=True, frozen=True)
class ClusterPrediction:
    """Mentions of one and the same, in the order of the text; one alone is a cluster too."""

    mentions: tuple[SpanPrediction, ...]


@dataclass(slots=True, frozen=True)
class WrittenPrediction:
    """A text that was written. `score`: the logarithm of its probability, divided by the penalty of its length."""

    text: str
    score: float


Prediction = (
    LabelPrediction
    | ValuePrediction
    | TextPrediction
    | SpanPrediction
    | DiscontinuousPrediction
    | RelationPrediction
    | EventPrediction
    | ClusterPrediction
    | WrittenPrediction
)
