"""Drafts a second corpus, where rows have both a label of the text and mentions. It stands in comments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipelines.drafting.draft import Draft
from pipelines.drafting.trial import Trial
from pipelines.drafting.yaml_text import scalar
from ubert.schema.record import Task

LIKELY = 0.6  # score from which a second task is worth a corpus
LISTED = 40  # categories that are listed; more are taken from the data
_OF_TEXTS: tuple[Task, ...] = ("classification", "multilabel")
_OF_MENTIONS: tuple[Task, ...] = ("ner", "relation", "event", "coref")


def second_corpus(first: Trial, second: Trial, instruction: str) -> Iterator[str]:
    """Yield the lines of `also`, commented out."""
    kind = "label" if second.spec.task in _OF_TEXTS else "entity"
    names = second.labels.categories()[kind]
    others = dict.fromkeys(key for key in first.labels.categories() if key != kind)
    entry: dict[str, Any] = {
        "task": second.spec.task,
        "instruction": instruction,
        "map": _difference(first.guess.map, second.guess.map),
        "categories": {**others, kind: names if len(names) <= LISTED else "from_data"},
    }
    yield "#"
    yield "# The rows have a second task. For a corpus of it, too, uncomment these lines:"
    yield "# also:"
    yield f"#   {first.spec.name}_{'labels' if kind == 'label' else 'entities'}:"
    yield from (f"#     {key}: {scalar(item)}" for key, item in entry.items())


def second_of(made: Draft) -> Trial | None:
    """Return the likeliest trial of the other kind of task, for the same rows; None if there is none."""
    first = made.best.trial.spec.task
    wanted: tuple[Task, ...] = ("ner",) if first in _OF_TEXTS else _OF_TEXTS if first in _OF_MENTIONS else ()
    for one in made.candidates[1:]:
        if one.trial.spec.task in wanted and one.arranged is made.best.arranged and one.score >= LIKELY:
            return one.trial
    return None


def _difference(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return what makes one map of another: a key with no value removes the other's."""
    changed = {key: item for key, item in second.items() if first.get(key) != item}
    return {**dict.fromkeys(key for key in first if key not in second), **changed}
