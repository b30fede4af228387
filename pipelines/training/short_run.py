"""Short runs of one process in a temporary folder: cells of a probe, folds of a corpus, trials."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub import try_to_load_from_cache

from pipelines.shards.files import write
from pipelines.shards.rows import Rows
from pipelines.shards.unit import Unit, write_unit
from pipelines.store.store import now
from ubert.model.tokenizer import encoder_path, load_tokenizer
from ubert.model.ubert import CONFIG, WEIGHTS
from ubert.schema.manifest import MANIFEST, ShardManifest, fingerprint
from ubert.schema.record import Record
from ubert.schema.specs.recipe import Recipe
from ubert.training.checkpoints.checkpoint import hash_of

MAX_TOKENS = 256
# turns off what outlives a run, and evaluation during training
ALONE: dict[str, Any] = {
    "checkpoint_every": 10**9,
    "mlflow": False,
    "dynamics": False,
    "evaluate": [],
    "evaluate_every": None,
    "keep_best": None,
}


def short(recipe: Recipe, **changes: Any) -> Recipe:
    """Return the recipe of a short run, with the settings of another recipe."""
    return Recipe(**recipe.model_dump() | ALONE | changes)


def weights_of(folder: Path) -> str:
    """Return a short hash of a model's weights. Results store it to identify the weights that a run began with."""
    return hash_of(folder / WEIGHTS)[:16]


def weights_of_encoder(encoder: str) -> str:
    """Return the same hash for an encoder, or an empty string if its weights are not on this disk. The encoder may
    be one of a hub, and its weights may be in several files."""
    folder = Path(encoder_path(encoder))
    if not folder.is_dir():
        with suppress(ValueError):  # raised for what can't be a name of the hub
            cached = try_to_load_from_cache(encoder, CONFIG)
            folder = Path(cached).parent if isinstance(cached, str) else folder
    if (folder / WEIGHTS).is_file():
        return weights_of(folder)
    parts = sorted(folder.glob("model-*.safetensors"))
    return fingerprint(*map(hash_of, parts)) if parts else ""


def shards_of(records: Sequence[Record], encoder: str, directory: Path, max_tokens: int = MAX_TOKENS) -> Path:
    """Write shards of a few records into `directory`."""
    tokenizer = load_tokenizer(encoder)
    rows = Rows(tokenizer, max_tokens)
    unit = Unit(records[0].corpus, directory, directory, "shots", True, np.ones((len(records), 1), np.int32))
    write_unit(unit, rows, [rows.batch(records, range(len(records)))])
    mark = fingerprint([record.record_id for record in records], tokenizer.hash, max_tokens)
    manifest = ShardManifest(
        name="probe",
        fingerprint=mark,
        created=now(),
        mixture="probe",
        mixture_fingerprint=mark,
        encoder=encoder,
        tokenizer=tokenizer.hash,
        max_tokens=max_tokens,
        phases=1,
        **write([unit], tokenizer, directory, {}),
    )
    (directory / MANIFEST).write_text(manifest.model_dump_json(), encoding="utf-8")
    return directory


def train(recipe: Recipe, shards: Path, folder: Path) -> Path:
    """Train a run in a folder, in this process. Return the directory of its checkpoint.

    Raises:
        UserError: training fails.
    """
    from ubert.training import loop
    from ubert.training.step import Worker

    return loop.train(recipe, shards=shards, run=folder / "runs" / recipe.name, worker=Worker(progress=False))


def use_threads_of_task() -> None:
    """Set PyTorch's number of threads to what Ray assigns to the task that calls this."""
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
