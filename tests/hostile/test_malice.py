"""Malicious input, or input that looks so: it is refused with one clear error, or kept as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from worlds import World, numbers

from pipelines.store.warehouse import sql

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


TEXTS = {
    "null": "number\x00one",
    "right to left": "number \u202eeno\u202c \u200f\u05d0\u05d7\u05d3",
    "escapes": "\x1b[31mnumber\x1b[0m\x07",
    "separators": "one\u2028two\u2029three\u0085four\x0bfive",
    "byte order mark": "\ufeffnumber",
    "beyond the plane": "\U0001f600\U0001f468\u200d\U0001f469",
    "sql": "'; DROP VIEW records; --",
}


def test_strange_characters_are_kept_as_they_are(world: World) -> None:
    world.spec()
    world.source("".join(json.dumps({"text": text, "label": 0}) + "\n" for text in TEXTS.values()))
    world.ingest()
    assert [row["text"] for row in world.records()] == list(TEXTS.values())
    lengths = sql(world.root, "SELECT length(text) AS n FROM records ORDER BY source.line")["n"].to_pylist()
    assert lengths == [len(text) for text in TEXTS.values()]


def test_rows_that_no_file_could_hold_or_no_parser_could_read_are_rejects(world: World) -> None:
    world.spec()
    bad = [
        '{"text": "half \\ud800", "label": 0}',
        '{"text": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"text": "a", "label": ' + "9" * 100_000 + "}",
        '{"text": "a", "label": NaN}',
        "\x00" * 100,
    ]
    world.source("\n".join(bad) + "\n" + numbers([1]))
    [counts] = world.ingest().splits
    assert (counts.records, counts.kept, counts.rejected) == (6, 1, 5)
    assert [row["line"] for row in world.rejects()] == [1, 2, 3, 4, 5]


HALF = "\ud800"  # of a surrogate pair
NAMED = {"text": "t", "spans": {"each": "s[]", "id": "i", "label": "l", "start": "b", "words": "w"}}


@pytest.mark.parametrize(
    ("changes", "good", "bad", "reason"),
    [
        (
            {"task": "choice", "map": {"text": "t", "candidates": "o", "label": "l"}, "categories": {}},
            {"t": "hello", "o": ["a", "b"], "l": 0},
            {"t": "hello", "o": ["a", HALF], "l": 0},
            "lone surrogate",
        ),
        (
            {"task": "ner", "map": {**NAMED, "candidates": "c"}, "categories": {}},
            {"t": "hello", "c": ["a", "b"], "s": []},
            {"t": "hello", "c": ["a", HALF], "s": []},
            "lone surrogate",
        ),
        (
            {"task": "ner", "map": NAMED, "categories": {"entity": {"a": "thing"}}},
            {"t": "hello", "s": []},
            {"t": "hello", "s": [{"i": HALF, "l": "a", "b": 0, "w": "jello"}]},
            "mention doesn't match its offsets",
        ),
    ],
)
def test_half_a_surrogate_pair_anywhere_in_a_row_refuses_that_row(
    world: World, changes: dict[str, Any], good: dict[str, Any], bad: dict[str, Any], reason: str
) -> None:
    world.spec(**changes)
    world.source("".join(json.dumps(row) + "\n" for row in (good, bad)))
    [counts] = world.ingest().splits
    assert (counts.kept, [row["reason"] for row in world.rejects()]) == (1, [reason])
    mentions = sql(world.root, "SELECT mention FROM mismatches")["mention"].to_pylist()
    assert mentions == (["\\ud800"] if reason.startswith("mention") else [])


def test_half_a_surrogate_pair_in_a_key_refuses_its_row(world: World) -> None:
    world.spec(format="json", options={"rows": ["{k}"]})
    world.source(json.dumps({HALF: {"text": "a", "label": 0}, "b": {"text": "b", "label": 1}}))
    [counts] = world.ingest().splits
    [reject] = world.rejects()
    assert (counts.kept, reject["reason"]) == (1, "lone surrogate") and "\\ud800" in reject["detail"]


@pytest.mark.parametrize("name", ["-rf", "--help", "a b", "$(true)", "a;b", "ü", "%s", "*"])
def test_a_file_may_be_named_like_an_option(world: World, name: str) -> None:
    world.spec(files=[{"split": "train", "path": f"{name}.jsonl"}])
    world.source(numbers([3]), f"{name}.jsonl")
    world.ingest()
    assert [file["path"] for file in world.files()] == [f"{name}.jsonl"]
