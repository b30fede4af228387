"""Train a recipe: build missing mixture and shards, then run the training loop under Ray Train.

The loop restarts if a worker dies, a machine is preempted, or processors for more workers become free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from pipelines.mixtures.mix import mix
from pipelines.mixtures.replay import trained_on
from pipelines.models.evaluate import records_of
from pipelines.ray_tasks import session
from pipelines.shards.remote import RemoteShards, shard_files
from pipelines.shards.shard import shard
from pipelines.specs import paraphrases
from pipelines.store.disk_cache import CACHE
from pipelines.store.storage import StorePath, on_disk
from pipelines.store.store import Store
from pipelines.training import capacity, restart
from pipelines.training.driven_run import DrivenRun, StoredRun, driving
from ubert.evaluation import metric
from ubert.schema.errors import UserError
from ubert.schema.manifest import RunManifest
from ubert.schema.specs.recipe import Recipe
from ubert.training import run_directory
from ubert.training.checkpoints import checkpoint

ATTEMPTS = 3  # the run fails after as many deaths of workers at one checkpoint
WITHOUT_GPU = ": Ray has no GPU now; start machines with GPUs before the run"  # in a cluster

errors = Console(stderr=True)


def pretrain(
    recipe: Recipe,
    *,
    root: StorePath,
    specs: Path,
    workers: int = 1,
    resume: str | None = None,
    address: str | None = None,
    cache: int = CACHE,
) -> Path:
    """Train a recipe, from the last checkpoint of its run if there is one. A finished run is not trained
    again, unless `resume` names it.

    Args:
        root: the store.
        specs: the folder of specs, for the mixture.
        resume: name of a run to continue, perhaps for longer; default: the run named after the recipe.
        address: a Ray cluster; default: a local Ray.
        cache: bytes of shards from an object store that each machine keeps.

    Returns:
        The directory of the last checkpoint.

    Raises:
        UserError: something is missing, differs from how the run began, or fails in training.
        KeyboardInterrupt: training was asked to stop; its steps, if any, are in a checkpoint.
    """
    store, resumed = Store(root.absolute()), resume is not None
    if resume:
        _check_begun(store.root, resume)
    with driving(store.root, resume or recipe.name, recipe) as driven:
        run = driven.run
        _check_measured(recipe, store)
        mix(trained_on(recipe, root=store.root, specs=specs), root=store.root, encoder=recipe.encoder)
        shards = shard(
            recipe.shards,
            encoder=recipe.encoder,
            max_tokens=recipe.max_tokens,
            root=store.root,
            paraphrases=paraphrases(specs),
            address=address,
        )
        # a worker would raise the same error, but only after Ray has started
        with run_directory.locked(run):
            state = run_directory.check(run, recipe, shards.fingerprint, shards.tokenizer, resume=resumed)
        earlier = run_directory.finished(run)
        if earlier and not resumed and state and state.step == earlier.steps:  # otherwise a checkpoint is corrupt
            return run / earlier.checkpoint
        directory = store.directory("shards", shards.name, shards.fingerprint)
        files = shard_files(directory, cache)
        if isinstance(files, RemoteShards):
            files.check_capacity(recipe)
        work = {
            "recipe": recipe.model_dump(),
            "shards": str(directory),
            "cache": cache,
            "run": run.name,
            "token": driven.token,
            "root": str(store.root),
            "resume": resumed,
        }
        with session(address, dashboard=True) as ends:
            return _train(work, driven, workers, capacity.kind(), earlier, ends)


def _check_begun(root: StorePath, name: str) -> None:
    """Refuse to resume a run that is neither on this disk nor in the store, before its directory is made."""
    run = run_directory.directory(on_disk(root), name)
    if not run.exists() and not any((root / "runs" / name).glob("*/*/*")):
        raise UserError(f"{run}: no checkpoint to resume from; correct --resume, or train without it first")


def _check_measured(recipe: Recipe, store: Store) -> None:
    """Check before training that its splits have records, and that the metric of `keep_best` is measured.

    Raises:
        UserError: one is missing.
    """
    names = []
    for wanted in recipe.evaluate:
        manifest = store.current("corpora", wanted.corpus)[1]
        records_of(manifest, wanted.split)
        names += [f"{wanted.corpus}/{wanted.split}/{name}" for name in metric(manifest.task).summarise(Counter())]
    checkpoint.check_best(recipe, names)


def _train(
    work: dict[str, Any],
    driven: DrivenRun,
    workers: int,
    kind: capacity.Kind,
    earlier: RunManifest | None,
    ends: bool,
) -> Path:
    """Run the training loop on Ray's workers.

    If a worker dies or its machine is preempted, the run continues from the last checkpoint with the same global
    batches. It uses as many workers as there are free processors, and all workers once there are enough.

    Args:
        earlier: the manifest of the run if it was finished before.
        ends: Ray was started for this session, and ends with it.
    """
    from ray.exceptions import RayActorError
    from ray.train import TrainingFailedError

    if workers > (total := capacity.total(kind)):
        raise UserError(
            f"--workers {workers}: Ray has {total} {kind}s, and a worker needs one; ask for fewer"
            + (", or start Ray with --num-gpus 0 to train without" if kind == "GPU" else "")
        )
    run = driven.run
    # The log of a run in an object store lags, so it does not tell whether workers still start.
    leaves = ends and not isinstance(driven, StoredRun)
    deaths, reached = 0, checkpoint.latest(run)
    with run_directory.stopping(run) as stop_requested:
        starting = f"run {run.name}: starting {workers} worker{'s' * (workers > 1)} on {kind}s"
        errors.print(starting + WITHOUT_GPU * (kind == "CPU" and not ends), highlight=False, soft_wrap=True)
        while now := _workers_to_start(workers, kind, stop_requested):
            died = False
            try:
                grew = restart.fit(
                    work, driven, now, kind, stop_requested, partial(_can_grow, now, workers, kind), leaves
                )
                driven.download()
                if (finished := run_directory.finished(run)) and finished != earlier:
                    return run / finished.checkpoint
                ended = f"enough {kind}s are free for all workers" if grew else "a machine is being preempted"
            except (TrainingFailedError, RayActorError) as error:
                ended, died = restart.explained(error)
                driven.download()
            before, reached = reached, checkpoint.latest(run)
            deaths = died + (deaths if reached == before else 0)
            if deaths == ATTEMPTS:
                raise UserError(
                    f"{run}: {ATTEMPTS} attempts failed after the same checkpoint, the last because {ended}; "
                    f"{restart.CURES[ended]}; the same command continues from there"
                )
            if not stop_requested():
                errors.print(f"{ended}; the run continues from {reached.name if reached else 'its start'}")
                if died:
                    capacity.wait_for_nodes(stop_requested)
    last = checkpoint.latest(run)
    raise KeyboardInterrupt(
        f"stopped; {last} is written; the same command continues from there"
        if last
        else "stopped before the first step; the same command begins again"
    )


def _workers_to_start(workers: int, kind: capacity.Kind, stop_requested: Callable[[], bool]) -> int:
    """Return how many of the workers to start now. Wait until it is at least one; return 0 if the run is
    asked to stop before."""
    while not stop_requested():
        if now := min(workers, capacity.wait_until_free(kind, workers)):
            if now < workers:
                errors.print(f"starting {now} of {workers} workers; the others join when enough {kind}s are free")
            return now
        errors.print(f"no {kind} is free; the run waits for one, and Ctrl-C stops it")
        capacity.wait_for_one(kind, stop_requested)
    return 0


def _can_grow(now: int, workers: int, kind: capacity.Kind) -> bool:
    """Tell whether fewer workers run than were requested, and enough processors are now free for all."""
    return now < workers <= now + capacity.free(kind)
