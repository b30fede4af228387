"""Find mentions and answers that out-of-fold predictions contradict.

If a mention of the corpus and one of the model overlap, the type or the boundaries are wrong. Otherwise the corpus
has a spurious mention, or it misses the model's mention. The score takes into account how reliable the model is in
a category: its recall for spurious mentions, and its precision for the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pipelines.suspects.evidence import Suspect
from ubert.schema.record import Record

FLAGGED = 0.5  # a mention with a higher score is more likely wrong than right


class Mention(NamedTuple):
    """Characters [start, end) of a text, and a category."""

    start: int
    end: int
    category: str

    def overlaps(self, other: Mention) -> bool:
        """Return whether both share a character."""
        return self.start < other.end and other.start < self.end


class Predicted(NamedTuple):
    """A model's predictions for a text: the probability of each possible mention, and the mentions it predicts."""

    scores: Mapping[Mention, float]
    holding: Sequence[Mention]


class Reliable(NamedTuple):
    """How reliable a model is, by category."""

    found: Mapping[str, float]  # recall: share of the corpus's mentions that it finds
    right: Mapping[str, float]  # precision: share of its own mentions that are in the corpus


NOTHING = Predicted({}, ())


def suspicious_mentions(records: Sequence[Record], predictions: Mapping[str, Predicted]) -> Iterator[Suspect]:
    """Yield the mentions that a model contradicts, and those that the corpus lacks according to it."""
    every = [(record, mentions_of(record), predictions.get(record.record_id, NOTHING)) for record in records]
    pooled = bool(records) and records[0].task == "qa"  # most questions occur only once
    reliable = _reliable([(gold, one) for _, gold, one in every], pooled)
    for record, gold, one in every:
        yield from _answers(record, gold, one, reliable) if pooled else _contradicted(record, gold, one, reliable)


def mentions_of(record: Record) -> list[Mention]:
    """Return the annotated mentions of a record's text."""
    return [
        Mention(span.start, span.end, record.categories[span.category].name)
        for span in record.spans
        if span.side == "text" and span.category is not None
    ]


def _reliable(every: Sequence[tuple[list[Mention], Predicted]], pooled: bool) -> Reliable:
    """Compute recall and precision by category; if `pooled`, for all categories together under the name ''."""
    gold_count, own_count, both_count = Counter[str](), Counter[str](), Counter[str]()
    for gold, prediction in every:
        held = set(prediction.holding)
        for count, found in ((gold_count, gold), (own_count, held), (both_count, held.intersection(gold))):
            count.update("" if pooled else mention.category for mention in found)
    return Reliable(
        {name: both_count[name] / count for name, count in gold_count.items()},
        {name: both_count[name] / count for name, count in own_count.items()},
    )


def _contradicted(
    record: Record, gold: list[Mention], prediction: Predicted, reliable: Reliable
) -> Iterator[Suspect]:
    left = [mention for mention in gold if mention not in prediction.holding]
    own = sorted((one for one in prediction.holding if one not in gold), key=lambda one: -prediction.scores[one])
    for mention in left:
        best = next((one for one in own if one[:2] == mention[:2]), None)
        best = best or next((one for one in own if one.overlaps(mention)), None)
        at_all = prediction.scores.get(mention, 0.0)
        if best is None:
            score = (1 - at_all) * reliable.found[mention.category]
            yield _suspect(record, "spurious", mention, None, 1 - at_all, score)
            continue
        own.remove(best)
        kind = "wrong boundary" if best.category == mention.category else "wrong type"
        sure = prediction.scores[best]
        yield _suspect(record, kind, mention, best, sure, sure * (1 - at_all) * reliable.right[best.category])
    for one in own:
        if not any(one.overlaps(mention) for mention in gold):
            sure = prediction.scores[one]
            yield _suspect(record, "missed", None, one, sure, sure * reliable.right[one.category])


def _answers(record: Record, gold: list[Mention], prediction: Predicted, reliable: Reliable) -> Iterator[Suspect]:
    """Yield suspects among answers. Each answer of the corpus is right; only the model's first answer counts."""
    for category in record.categories:
        wanted, own = (
            [one for one in some if one.category == category.name] for some in (gold, prediction.holding)
        )
        best = own[0] if own else None
        if best is not None and any(best.overlaps(answer) for answer in wanted):
            continue
        at_all = max((prediction.scores.get(answer, 0.0) for answer in wanted), default=0.0)
        if best is not None:
            sure = prediction.scores[best]
            kind, answer = ("wrong answer", wanted[0]) if wanted else ("missed answer", None)
            yield _suspect(record, kind, answer, best, sure, sure * (1 - at_all) * reliable.right[""])
        elif wanted:
            sure = 1 - at_all
            yield _suspect(record, "spurious answer", wanted[0], None, sure, sure * reliable.found[""])


def _suspect(
    record: Record, kind: str, said: Mention | None, predicted: Mention | None, sure: float, score: float
) -> Suspect:
    theirs, ours = (None if one is None else described(record, one) for one in (said, predicted))
    return Suspect(record, kind, theirs, ours, sure, score, score > FLAGGED)


def described(record: Record, mention: Mention) -> str:
    """Return the words of a mention and its category; for an answer only its words."""
    words = record.text[mention.start : mention.end]
    return words if record.task == "qa" else f"{words} [{mention.category}]"
