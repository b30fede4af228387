"""A world in which training takes a second: an encoder of two layers, a tokenizer of a few words, and shards."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from pipelines.shard import run_unit
from pipelines.shard_files import Unit, write
from pipelines.store import Store
from ubert.model.tokenizer import load_tokenizer
from ubert.schema.arrow import concat, records_to_batch
from ubert.schema.manifest import ShardManifest
from ubert.schema.recipe import Recipe
from ubert.schema.record import Category, Record, Source, Span
from ubert.training import log

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]"]
WORDS = [
    "find", "mentions", "of", "person", "place", "in", "the", "text", "ann", "bob", "rome", "oslo", "lives",
    "went", "to", "and", "from", "saw",
]  # fmt: skip


def make_encoder(folder: Path, *, dropout: float = 0.1) -> Path:
    """A random BERT of two layers with its tokenizer, as a folder that transformers loads."""
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(SPECIAL + WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=backend, mask_token="[MASK]", **names).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(SPECIAL + WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder)
    return folder


def make_recipe(encoder: Path, **changed: Any) -> Recipe:
    """Eight steps with a checkpoint every three, in fp32."""
    settings: dict[str, Any] = {
        "name": "tiny",
        "mixture": "tiny",
        "encoder": str(encoder),
        "table_size": 8,
        "max_tokens": 32,
        "tokens_per_batch": 256,
        "steps": 8,
        "precision": "fp32",
        "checkpoint_every": 3,
        "learning_rate": 1e-3,
    }
    return Recipe(**settings | changed)


def write_recipe(recipe: Recipe, path: Path) -> Path:
    """The recipe as a YAML file."""
    path.write_text(yaml.safe_dump(recipe.model_dump(exclude_none=True)), encoding="utf-8")
    return path


def losses(run: Path) -> list[float]:
    """The loss of each step, from the run's log; each step is there once."""
    rows, _ = log.read(run)
    assert [row.step for row in rows] == list(range(1, len(rows) + 1))
    return [row.loss for row in rows]


def make_records() -> list[Record]:
    """Forty sentences to tag and twenty to classify, of different lengths."""
    draw = random.Random(0)
    entities = (Category("person", "entity"), Category("place", "entity"))
    labels = (Category("went", "label"), Category("lives", "label"))
    records = []
    for i in range(60):
        person, place, verb = (
            draw.choice(["ann", "bob"]),
            draw.choice(["rome", "oslo"]),
            draw.choice(["went", "lives"]),
        )
        text = " ".join(
            [person, verb, "in", place, *draw.choices(["and", "to", "saw", "from"], k=draw.randrange(9))]
        )
        record = Record(
            record_id=f"tiny/train/{i}",
            corpus="tiny",
            split="train",
            language="en",
            task="ner" if i % 3 else "classification",
            instruction="find mentions" if i % 3 else "find the text",
            text=text,
            source=Source("tiny.txt", i + 1, ""),
            categories=entities if i % 3 else labels,
        )
        if i % 3:
            at = text.index(place)
            record.spans = [Span(0, len(person), 0), Span(at, at + len(place), 1)]
        else:
            record.labels = [("went", "lives").index(verb)]
        records.append(record)
    return records


def make_shards(root: Path, encoder: Path) -> Path:
    """Shards of the tiny mixture in a store, as `ubert shard` makes them, but in this process."""
    records = make_records()
    part, members = root / "part-0.parquet", root / "members.parquet"
    pq.write_table(concat([records_to_batch(records)]), part)
    drawn = {
        "record_id": pa.array([record.record_id for record in records]),
        "corpus": ["tiny"] * len(records),
        "split": ["train"] * len(records),
        "copies": pa.array([1] * len(records), pa.int32()),
        "key": pa.array(range(len(records)), pa.uint64()),
    }
    pq.write_table(pa.table(drawn), members)
    tokenizer = load_tokenizer(str(encoder))
    directory = root / "shards" / "tiny" / "0123456789abcdef"
    unit = Unit("tiny", part, members, directory)
    run_unit(unit, str(encoder), 32)
    manifest = ShardManifest(
        name="tiny",
        fingerprint=directory.name,
        created="2026-01-01T00:00:00+00:00",
        mixture="tiny",
        mixture_fingerprint="0",
        encoder=str(encoder),
        tokenizer=tokenizer.hash,
        max_tokens=32,
        **write([unit], tokenizer, directory),
    )
    return Store(root).publish("shards", manifest)
