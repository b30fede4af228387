"""A world in which training takes a second: an encoder with two layers, a tiny vocabulary, and shards."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import handmade
import torch
import yaml
from handmade import PEOPLE, PLACES, ner, sentiment
from ray_head import free_ports
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
from warm import Command

from ubert.schema.record import Record
from ubert.schema.specs.recipe import Recipe
from ubert.training.logs import log

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]"]
_TEXT = "person place firm went to by train and slept . Film number was good indeed opinion"
WORDS = sorted({word for text in (*PEOPLE, *PLACES, _TEXT) for word in text.split()})


def make_encoder(folder: Path, *, dropout: float = 0.1, spread: float = 0.02) -> Path:
    """Write a random BERT with two layers and its tokenizer into a folder that transformers can load."""
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
        initializer_range=spread,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder)
    return folder


def make_recipe(encoder: Path, **changed: Any) -> Recipe:
    """Make a recipe of eight steps in fp32, with a checkpoint every three."""
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
    """Write the recipe as a YAML file."""
    path.write_text(yaml.safe_dump(recipe.model_dump(exclude_none=True)), encoding="utf-8")
    return path


def losses(run: Path) -> list[float]:
    """Read the loss of each step from the run's log, and assert that each step occurs once."""
    rows, _ = log.read(run)
    assert [row.step for row in rows] == list(range(1, len(rows) + 1))
    return [row.loss for row in rows]


def make_corpora() -> dict[str, list[Record]]:
    """Make sentences of different lengths to tag and to classify."""
    return {"people": [ner(i, i % 5) for i in range(40)], "reviews": [sentiment(i) for i in range(20)]}


def make_shards(root: Path, encoder: Path) -> Path:
    """Make shards of a mixture `tiny` of these corpora."""
    return handmade.make_shards(root, make_corpora(), encoder=str(encoder), max_tokens=32, name="tiny")


class World(NamedTuple):
    """A store with shards, and the encoder that they are for."""

    root: Path
    encoder: Path
    shards: Path

    def run(self, name: str) -> Path:
        return self.root / "runs" / name


def make_world(root: Path, *, dropout: float = 0.1) -> World:
    encoder = make_encoder(root / "encoder", dropout=dropout)
    return World(root, encoder, make_shards(root, encoder))


def start(world: World, recipe: Recipe, *, name: str | None = None, largest_file: int | None = None) -> Command:
    """Start `python -m ubert.training`.

    Args:
        largest_file: maximum bytes of a file, to simulate a full disk.
    """
    return Command("ubert.training", *_arguments(world, recipe, name), largest_file=largest_file)


def start_two(world: World, recipe: Recipe) -> list[Command]:
    """Start `python -m ubert.training` as the two workers that a launcher such as torchrun would start."""
    arguments, [port] = _arguments(world, recipe, None), free_ports(1)
    ranks: list[dict[str, str]] = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [Command("ubert.training", *arguments, **group, **rank) for rank in ranks]


def launch(world: World, recipe: Recipe, *launcher: str, name: str | None = None) -> subprocess.Popen[str]:
    """Start `python -m ubert.training` under a launcher, such as `-m torch.distributed.run`."""
    return subprocess.Popen(
        [sys.executable, *launcher, "-m", "ubert.training", *_arguments(world, recipe, name)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _arguments(world: World, recipe: Recipe, name: str | None) -> list[str]:
    path = write_recipe(recipe, world.root / f"{recipe.name}.yaml")
    return [str(path), "--root", str(world.root), "--name", name or recipe.name]


@contextmanager
def full_disk(largest_file: int) -> Iterator[None]:
    """Limit the bytes of a file within this block, to simulate a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
