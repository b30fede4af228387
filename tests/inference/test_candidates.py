"""Candidate categories from the arguments of a prediction, and the tokens of their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ubert.inference.candidates import candidates, short
from ubert.inference.names import LONGEST_KEPT, name_encoder
from ubert.inference.questions import INSTRUCTIONS, questions
from ubert.model.tokenizer import Encoding
from ubert.objectives import objectives
from ubert.objectives.tasks.ner import PARTS
from ubert.schema.record import Category


def test_a_type_is_one_candidate_however_many_relations_join_it() -> None:
    ends = ("person", "city")
    found = candidates("relation", ["person"], {"lives in": ends, "born in": ends}, {})
    assert [category.name for category in found] == ["person", "city", "lives in", "born in"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"task": "multilabel", "categories": ["x", "y"]}, [Category("x", "label"), Category("y", "label")]),
        ({"task": "regression", "categories": ["-1", "2.5"]}, [Category("-1", "value"), Category("2.5", "value")]),
        ({"task": "qa", "categories": ["Who?"]}, [Category("Who?", "question")]),
        ({"task": "ner", "categories": ["x"], "discontinuous": True}, [Category("x", "entity"), PARTS]),
        (
            {"task": "relation", "relations": {"lives in": ("person", "city"), "knows": None}},
            [
                Category("person", "entity"),
                Category("city", "entity"),
                Category("lives in", "relation", head="person", tail="city"),
                Category("knows", "relation"),
            ],
        ),
        (
            {"task": "event", "events": {"attack": ["attacker", "target"], "trial": ["target"]}},
            [
                Category("attack", "event"),
                Category("trial", "event"),
                Category("attacker", "role", event="attack"),
                Category("target", "role", event="attack"),
                Category("target", "role", event="trial"),
            ],
        ),
        ({"task": "coref"}, []),
    ],
)
def test_what_is_asked_for_becomes_candidates_in_order(asked: dict[str, Any], expected: list[Category]) -> None:
    [query] = questions(["a text"], **asked)
    assert query.given == tuple(expected)


def test_roles_may_be_any_iterable() -> None:
    roles = ["attacker", "target"]
    assert candidates("event", [], {}, {"attack": iter(roles)}) == candidates("event", [], {}, {"attack": roles})  # type: ignore[dict-item]


def test_each_text_is_asked_with_its_own_second_text() -> None:
    asked = questions(["a", "b"], task="pair", categories=["x"], pairs=["c", "d"], instruction="compare")
    assert [(query.text, query.pair, query.instruction) for query in asked] == [
        ("a", "c", "compare"),
        ("b", "d", "compare"),
    ]
    [empty] = questions(["a"], task="ner", categories=["x"], pairs=[""])  # such as a column without values
    assert empty.text == "a"
    [alone] = questions(["a"], task="ner", categories=["x"])
    assert (alone.pair, alone.instruction) == (None, "named entity recognition")
    assert questions([], task="ner", categories=["x"], overlap={"x": "nested"}) == []


def test_each_task_that_can_be_asked_has_an_instruction_of_its_own() -> None:
    assert set(INSTRUCTIONS) == set(objectives()) - {"text"}
    assert len(set(INSTRUCTIONS.values())) == len(INSTRUCTIONS)


def test_a_message_quotes_sixty_characters_of_a_text() -> None:
    assert short("x" * 60) == repr("x" * 60)
    assert short("x" * 61) == repr("x" * 57 + "...")


class CountingTokenizer:
    """Remembers what it has tokenised."""

    def __init__(self) -> None:
        self.tokenised: list[str] = []

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        self.tokenised.extend(texts)
        return [Encoding(*np.zeros((3, 1), np.int32)) for _ in texts]


@pytest.mark.parametrize(("size", "times"), [(1, 1), (LONGEST_KEPT, 1), (LONGEST_KEPT + 1, 2)])
def test_the_tokens_of_short_names_are_kept_and_those_of_long_ones_are_not(size: int, times: int) -> None:
    tokenizer: Any = CountingTokenizer()
    tokens = name_encoder(tokenizer)
    assert len(tokens("x" * size).ids) == len(tokens("x" * size).ids) == 1
    assert tokenizer.tokenised == ["x" * size] * times
