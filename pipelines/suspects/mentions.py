"""Mentions and answers that out-of-fold predictions contradict.

If a mention of the corpus and one of the model overlap, the type or the boundaries are wrong. Otherwise the corpus
has a spurious mention, or it missed the model's. How likely the corpus is wrong depends on how reliable the model
is in a category: which share of the corpus's mentions it finds, and which share of its own are in the corpus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pipelines.suspects.evidence import Suspect
from ubert.schema.record import Record

FLAGGED = 0.5  # score from which a mention is more likely wrong than right


class Mention(NamedTuple):
    """Characters [start, end) of a text, and a category."""

    start: int
    end: int
    category: str

    def overlaps(self, other: Mention) -> bool:
        """Whether both share a character."""
        return self.start < other.end and other.start < self.end


class Told(NamedTuple):
    """What a model says of a text: the probability of each possible mention, and those that hold."""

    scores: Mapping[Mention, float]
    holding: Sequence[Mention]


class Reliable(NamedTuple):
    """How reliable a model is, by category."""

    found: Mapping[str, float]  # share of the corpus's mentions
    right: Mapping[str, float]  # share of its own mentions


NOTHING = Told({}, ())


def suspicious_mentions(records: Sequence[Record], told: Mapping[str, Told]) -> Iterator[Suspect]:
    """The mentions that a model contradicts, and those that it misses in the corpus."""
    every = [(record, mentions_of(record), told.get(record.record_id, NOTHING)) for record in records]
    pooled = bool(records) and records[0].task == "qa"  # questions are asked once each
    reliable = _reliable([(gold, one) for _, gold, one in every], pooled)
    for record, gold, one in every:
        yield from _answers(record, gold, one, reliable) if pooled else _contradicted(record, gold, one, reliable)


def mentions_of(record: Record) -> list[Mention]:
    """The mentions of a record's text, as the corpus has them."""
    return [
        Mention(span.start, span.end, record.categories[span.category].name)
        for span in record.spans
        if span.side == "text" and span.category is not None
    ]


def _reliable(every: Sequence[tuple[list[Mention], Told]], pooled: bool) -> Reliable:
    """`pooled`: one share for all categories, under the name ''."""
    gold_count, own_count, both_count = Counter[str](), Counter[str](), Counter[str]()
    for gold, told in every:
        held = set(told.holding)
        for count, found in ((gold_count, gold), (own_count, held), (both_count, held.intersection(gold))):
            count.update("" if pooled else mention.category for mention in found)
    return Reliable(
        {name: both_count[name] / count for name, count in gold_count.items()},
        {name: both_count[name] / count for name, count in own_count.items()},
    )


def _contradicted(record: Record, gold: list[Mention], told: Told, reliable: Reliable) -> Iterator[Suspect]:
    left = [mention for mention in gold if mention not in told.holding]
    own = sorted((one for one in told.holding if one not in gold), key=lambda one: -told.scores[one])
    for mention in left:
        best = next((one for one in own if one[:2] == mention[:2]), None)
        best = best or next((one for one in own if one.overlaps(mention)), None)
        at_all = told.scores.get(mention, 0.0)
        if best is None:
            score = (1 - at_all) * reliable.found[mention.category]
            yield _suspect(record, "spurious", mention, None, 1 - at_all, score)
            continue
        own.remove(best)
        kind = "wrong boundary" if best.category == mention.category else "wrong type"
        sure = told.scores[best]
        yield _suspect(record, kind, mention, best, sure, sure * (1 - at_all) * reliable.right[best.category])
    for one in own:
        if not any(one.overlaps(mention) for mention in gold):
            sure = told.scores[one]
            yield _suspect(record, "missed", None, one, sure, sure * reliable.right[one.category])


def _answers(record: Record, gold: list[Mention], told: Told, reliable: Reliable) -> Iterator[Suspect]:
    """The same of questions, any of whose answers is right; the model's first answer counts."""
    for category in record.categories:
        wanted, own = ([one for one in some if one.category == category.name] for some in (gold, told.holding))
        best = own[0] if own else None
        if best is not None and any(best.overlaps(answer) for answer in wanted):
            continue
        at_all = max((told.scores.get(answer, 0.0) for answer in wanted), default=0.0)
        if best is not None:
            sure = told.scores[best]
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
    """The words of a mention and its category; of an answer its words."""
    words = record.text[mention.start : mention.end]
    return words if record.task == "qa" else f"{words} [{mention.category}]"
