"""Guesses a task and a `map` for the rows of a format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pipelines.drafting.tasks.fields import Fields, fields_of
from pipelines.drafting.tasks.guess import Guess, called
from pipelines.drafting.tasks.mentions import mentions
from pipelines.drafting.tasks.printed import as_parsed, printed
from pipelines.drafting.tasks.texts import whole_texts
from ubert.schema.specs.rules import Clean

# Formats whose rows always have the same shape have one map.
_FIXED: dict[str, Guess] = {
    "aste": Guess(
        "relation",
        {
            "tokens": "sentence",
            "relations": {
                "each": "triplets[]",
                "label": "sentiment",
                "head": {"as": "aspect", "indices": "aspect"},
                "tail": {"as": "opinion", "indices": "opinion"},
            },
            "offsets": {"unit": "token"},
        },
        0.97,
        ("each triplet joins an aspect and an opinion",),
    ),
    "conll2012": Guess(
        "coref",
        {
            "tokens": "sentences",
            "spans": {"each": "clusters.{cluster}[]", "id": "{cluster}", "fragments": "."},
            "offsets": {"unit": "token"},
        },
        0.97,
        ("the last column has clusters of mentions",),
    ),
    "marked_relations": Guess(
        "relation",
        {
            "text": "text",
            "spans": {"each": "mentions[]", "id": "id", "start": "start", "end": "end", "as": "nominal"},
            "relations": {"each": "relations[]", "label": "label", "head": "head", "tail": "tail"},
        },
        0.97,
        ("each sentence has a relation of its two mentions",),
    ),
    "pipe_spans": Guess(
        "ner",
        {
            "tokens": "sentence",
            "spans": {"each": "spans[]", "start": "start", "end": "end", "label": "label"},
            "offsets": {"unit": "token"},
        },
        0.97,
        ("each sentence has spans of words",),
    ),
}


def guesses(form: str, rows: Sequence[dict[str, Any]]) -> list[Guess]:
    """Return the possible ways to map the rows, likeliest first."""
    if form in _FIXED:
        return [_FIXED[form]]
    fields = fields_of(rows)
    if parse := printed(fields):
        fields = fields_of(as_parsed(rows, parse))
    found: Iterator[Guess] = iter((*mentions(fields), *whole_texts(fields)))
    if form == "conll":
        found = (guess for guess in found if guess.task == "ner" or "tokens" in guess.map)
    found = (_with_parsed(_of_accepted(guess, fields), parse) for guess in found)
    return sorted(found, key=lambda guess: -guess.score)


def _with_parsed(guess: Guess, parse: dict[str, Clean]) -> Guess:
    """Add to a map how to parse the fields that it uses."""
    paths = str(guess.map)
    used = {
        path: how
        for path, how in parse.items()
        if re.search(rf"'/?{re.escape(path.removesuffix('?'))}(?!\w)", paths)
    }
    if not used:
        return guess
    given = guess.map.get("clean", {})
    clean = {**given, **{path: {"parse": how.parse, **given.get(path, {})} for path, how in used.items()}}
    why = f"lists or objects are written as strings in {called(*used)}"
    return guess._replace(map={**guess.map, "clean": clean}, reasons=(*guess.reasons, why))


def _of_accepted(guess: Guess, fields: Fields) -> Guess:
    """Leave out rows that the annotator didn't accept: Prodigy exports them, too."""
    answer = fields.get("answer")
    said = {*answer.values} if answer and answer.all(str) else set[str]()
    if not {"accept"} < said <= {"accept", "reject", "ignore"} or guess.map.get("label") == "answer":
        return guess
    why = f"{called('answer')} tells which rows the annotator accepted"
    return guess._replace(map={**guess.map, "when": {"answer": "accept"}}, reasons=(*guess.reasons, why))
