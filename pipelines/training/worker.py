"""The work of one training worker, under any launcher."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist

from pipelines.models.evaluate import measure
from pipelines.shards.remote import shard_files
from pipelines.store.storage import ObjectPath, StorePath, on_disk, store_path
from pipelines.training.driven_run import download
from pipelines.training.remote_run import Mirror, push_dynamics, run_in
from ubert.inference.predictor import Predictor
from ubert.model.tokenizer import Tokenizer
from ubert.model.ubert import UbertModel
from ubert.schema.specs.recipe import Recipe
from ubert.training import loop, run_directory
from ubert.training.checkpoints import checkpoint
from ubert.training.step import Worker


def work_on(work: dict[str, Any], worker: Worker, leaving: Callable[[], bool]) -> None:
    """Train until the run is finished or its directory has a request to stop."""
    recipe, root = Recipe(**work["recipe"]), store_path(work["root"])
    run = run_directory.directory(on_disk(root), work["run"])

    def metrics(model: UbertModel, tokenizer: Tokenizer) -> dict[str, float]:
        predictor = Predictor(model, tokenizer, precision=recipe.precision)
        return {
            f"{wanted.corpus}/{wanted.split}/{name}": value
            for wanted in recipe.evaluate
            for name, value in measure(predictor, **wanted.model_dump(), root=root)["metrics"].items()
        }

    with suppress(KeyboardInterrupt), _in_store(root, run, recipe, worker, work["token"]) as written:
        loop.train(
            recipe,
            shards=shard_files(store_path(work["shards"]), work["cache"]),
            run=run,
            worker=worker,
            resume=work["resume"],
            measure=metrics,
            leaving=leaving,
            written=written,
        )


@contextmanager
def _in_store(
    root: StorePath, run: Path, recipe: Recipe, worker: Worker, token: str
) -> Iterator[Callable[[], None]]:
    """Download a run from an object store to this disk. Yield a function that uploads what this worker writes."""
    if not isinstance(root, ObjectPath):
        yield lambda: None
        return
    group = dist.new_group(backend="gloo", timeout=loop.PATIENCE) if worker.world > 1 else None
    if worker.rank > 0:
        dist.barrier(group)  # rank 0 may have a checkpoint that isn't in the store yet
    download(root, run, recipe)
    if worker.rank > 0:
        yield partial(push_dynamics, run_in(root, run.name), run)
        return
    mirror = Mirror(run_in(root, run.name), run, token)
    reached = checkpoint.latest(run)
    mirror.restart(checkpoint.step_of(reached.name) if reached else 0)
    if group:
        dist.barrier(group)
    with mirror.following():
        yield mirror.push
