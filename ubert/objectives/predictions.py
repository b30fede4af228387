"""Typed predictions. Offsets are characters of the text; a `score` is a probability."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class LabelPrediction:
    """A category that holds for the whole text."""

    category: str
    score: float


@dataclass(slots=True, frozen=True)
class ValuePrediction:
    """The predicted number of a text."""

    value: float


@dataclass(slots=True, frozen=True)
class TextPrediction:
    """The total negative log-likelihood of a text's masked tokens, in nats, and their number."""

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
    """A mention of several fragments, in text order. `score` is the lowest score of its cells."""

    category: str
    fragments: tuple[SpanPrediction, ...]
    score: float


@dataclass(slots=True, frozen=True)
class RelationPrediction:
    """A relation from one mention to another. `score` is the lower score of its two cells."""

    category: str
    head: SpanPrediction
    tail: SpanPrediction
    score: float


@dataclass(slots=True, frozen=True)
class EventPrediction:
    """An event: its trigger, and its arguments in text order, with their roles as categories. An argument
    that is itself an event has the span of that event's trigger."""

    category: str
    trigger: SpanPrediction
    arguments: tuple[SpanPrediction, ...]


@dataclass(slots=True, frozen=True)
class ClusterPrediction:
    """Mentions of the same thing, in text order. A single mention is a cluster too."""

    mentions: tuple[SpanPrediction, ...]


@dataclass(slots=True, frozen=True)
class WrittenPrediction:
    """A generated text. `score`: its log-probability divided by the length penalty."""

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
