"""Texts of a megabyte are ingested as they are, sharded, and predicted to their end."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from handmade import ENCODER, make_shards, record, window_starts
from tiny_checkpoint import write_checkpoint
from worlds import World

import ubert
from pipelines.ingest.run_unit import run_unit
from pipelines.ingest.units import plan
from pipelines.specs import dataset_spec
from ubert.inference.predictor import Predictor
from ubert.loader.shards import open_shards
from ubert.objectives import SpanPrediction
from ubert.schema.record import Span

MEGABYTE = 1 << 20
TEXTS = {
    "one word": "a" * MEGABYTE,
    "no space": "é" + "\u0301" * (MEGABYTE // 2),
    "lines": "a\n" * (MEGABYTE // 2),
    "nothing to see": "\u200b\ufeff" * (MEGABYTE // 6),
}
ENDED = {kind: f"{text} Ada" for kind, text in TEXTS.items()}
LASTING = {"no space", "lines"}  # of very many tokens
kinds = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind in LASTING else kind for kind in ENDED]
)


def test_they_are_ingested_as_they_are(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.spec()
    world.source("".join(json.dumps({"text": text, "label": 0}) + "\n" for text in ENDED.values()))
    spec = dataset_spec("toy", world.specs)
    [unit] = plan(spec, world.data / "toy").units
    assert run_unit(unit, spec, world.root) == len(ENDED)
    assert pq.read_table(world.root / unit.part)["text"].to_pylist() == list(ENDED.values())


@kinds
def test_a_mention_at_their_end_is_in_their_shard(kind: str, tmp_path: Path) -> None:
    text = ENDED[kind]
    named = record("long", 0, "ner", text, ["person"], spans=[Span(len(text) - 3, len(text), 0)])
    shards = open_shards(make_shards(tmp_path, {"long": [named]}, encoder=ENCODER, max_tokens=64))
    last = int(np.argmax(window_starts(shards)))
    [[category, first, end]] = shards.example(last).gold_cells.tolist()
    assert category == 0 and first == end == len(shards.example(last).text) - 1


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return ubert.load(write_checkpoint(tmp_path_factory.mktemp("model")), precision="fp32")


@kinds
def test_they_are_predicted(kind: str, predictor: Predictor) -> None:
    text = ENDED[kind]
    [found] = predictor.predict([text], task="ner", categories=["person"], threshold=0.01, overlap="nested")
    mentions = [one for one in found if isinstance(one, SpanPrediction)]
    assert mentions and all(text[one.start : one.end] == one.text for one in mentions)
    assert max(one.end for one in mentions) == len(text)
    [label] = predictor.predict([text], task="classification", categories=["good", "bad"])
    assert len(label) == 1
