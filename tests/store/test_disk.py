"""Atomic writes: after a power failure a file has its old content or all of the new."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_run import make_encoder, make_recipe

from pipelines.store.store import atomic
from ubert.model.tokenizer import load_tokenizer
from ubert.model.ubert import Shape, UbertModel
from ubert.schema.disk import write_whole
from ubert.training.checkpoints import checkpoint
from ubert.training.optimizer import adamw


def write_atomic(folder: Path) -> Path:
    with atomic(folder / "deep" / "part") as path:
        path.write_bytes(b"content")
    return folder / "deep" / "part"


def write_small(folder: Path) -> Path:
    write_whole(folder / "manifest.json", "{}")
    return folder / "manifest.json"


def write_checkpoint(folder: Path) -> Path:
    encoder = make_encoder(folder / "encoder")
    tokenizer = load_tokenizer(str(encoder))
    model = UbertModel.new(str(encoder), Shape(table_size=8), vocabulary=tokenizer.vocabulary, seed=0)
    recipe = make_recipe(encoder)
    state = checkpoint.State(
        step=1, tokens=9, seconds=0.5, loss=2.0, recipe=recipe, shards="s", tokenizer=tokenizer.hash
    )
    return checkpoint.save(
        folder / "run", model, tokenizer, checkpoint.tensors(model, adamw(model, recipe)), state
    )


@pytest.mark.parametrize("write", [write_atomic, write_small, write_checkpoint])
def test_what_is_written_is_on_the_disk_before_it_has_its_name(
    write: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, set[str]]] = []  # of each call: which inode, and the names there were then
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, {str(path) for path in tmp_path.rglob("*")}))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    made = write(tmp_path)
    before = {inode for inode, names in synced if str(made) not in names}
    after = {inode for inode, names in synced if str(made) in names}
    assert before >= {path.stat().st_ino for path in (made, *made.glob("*"))}
    assert made.parent.stat().st_ino in after
