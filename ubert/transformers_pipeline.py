"""The functions behind `ubert.pipeline`, with the arguments and results of the pipelines of transformers.

They don't subclass `transformers.Pipeline`. Its classes expect a head with fixed labels, or run a forward pass for
each label of each text. Our predictor scores all labels in one pass, for many texts at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import float_info
from typing import Any, TypedDict, cast

from ubert.inference.predictor import Predictor
from ubert.inference.questions import listed, questions
from ubert.objectives import LabelPrediction, Overlaps, SpanPrediction


class Classified(TypedDict):
    """A text with all candidate labels, best first."""

    sequence: str
    labels: list[str]
    scores: list[float]


class Entity(TypedDict):
    """A mention: characters [start, end) of the text. `word` is the text between them."""

    entity_group: str
    score: float
    word: str
    start: int
    end: int


def classify(
    predictor: Predictor,
    sequences: str | Iterable[str],
    candidate_labels: str | Sequence[str],
    *,
    multi_label: bool = False,
    instruction: str | None = None,
) -> Classified | list[Classified]:
    """Score all candidate labels of each text. Unless `multi_label`, the scores of a text sum to 1."""
    labels = _labels(candidate_labels)
    texts = _texts(sequences)
    scores: Iterable[Mapping[str, float]]
    if not multi_label and len(labels) > 1:
        queries = questions(
            texts,
            task="classification",
            categories=labels,
            instruction=instruction,
            instructions=predictor.instructions,
        )
        scores = (dict(zip(labels, shares, strict=True)) for shares in predictor.probabilities(queries))
    else:
        results = predictor.predict(
            texts,
            task="multilabel",  # scores a single label, too
            categories=labels,
            threshold=float_info.min,
            instruction=instruction or predictor.instructions["multilabel" if multi_label else "classification"],
        )
        scores = ({one.category: one.score for one in cast(list[LabelPrediction], each)} for each in results)
    found = list(map(_ranked, texts, scores))
    return found[0] if isinstance(sequences, str) else found


def extract(
    predictor: Predictor,
    inputs: str | Iterable[str],
    candidate_labels: str | Sequence[str],
    *,
    instruction: str | None = None,
    threshold: float | None = None,
    overlap: Overlaps = "highest",
) -> list[Entity] | list[list[Entity]]:
    """Find the mentions of each text; see `Predictor.predict` for the settings."""
    results = predictor.predict(
        _texts(inputs),
        task="ner",
        categories=_labels(candidate_labels),
        instruction=instruction,
        threshold=threshold,
        overlap=overlap,
    )
    found = [[_entity(mention) for mention in cast(list[SpanPrediction], result)] for result in results]
    return found[0] if isinstance(inputs, str) else found


PIPELINES: Mapping[str, Callable[..., Any]] = {
    "zero-shot-classification": classify,
    "token-classification": extract,
    "ner": extract,
}


def _texts(given: str | Iterable[str]) -> list[str]:
    return [given] if isinstance(given, str) else listed("inputs", given)


def _labels(given: str | Sequence[str]) -> list[str]:
    """Return labels as a list; like transformers, accept a comma-separated string."""
    if isinstance(given, str):
        return [label.strip() for label in given.split(",") if label.strip()]
    return listed("candidate_labels", given)


def _ranked(text: str, scores: Mapping[str, float]) -> Classified:
    labels = sorted(scores, key=lambda label: -scores[label])
    return {"sequence": text, "labels": labels, "scores": [scores[label] for label in labels]}


def _entity(mention: SpanPrediction) -> Entity:
    return {
        "entity_group": mention.category,
        "score": mention.score,
        "word": mention.text,
        "start": mention.start,
        "end": mention.end,
    }
