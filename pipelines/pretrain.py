"""A recipe to a trained run: mixture and shards where they are missing, then the training loop under Ray Train.

Ray starts the workers and joins them; batches, checkpoints and logs are those of `ubert.training`. Nothing is
reported to Ray Train: it keeps no metrics without a checkpoint of its own, and a report waits for its next poll.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console

from pipelines.evaluate import measure
from pipelines.mix import mix
from pipelines.place import Place, on_disk, place
from pipelines.shard import shard
from pipelines.specs import mixture
from pipelines.store import Store, now
from pipelines.tasks import session
from ubert.inference.predictor import Predictor
from ubert.model.tokenizer import Tokenizer
from ubert.model.ubert import UbertModel
from ubert.schema.errors import UserError
from ubert.schema.manifest import fingerprint
from ubert.schema.recipe import Recipe
from ubert.training import checkpoint, log, loop, run_directory
from ubert.training.step import Worker

ATTEMPTS = 3  # at going on from one checkpoint, where workers die
ROLL_CALL = 120.0  # seconds that nodes have to answer; Ray takes half a minute to find that one is dead
POLL = 0.5  # seconds between two looks at the log of a run

errors = Console(stderr=True)


def pretrain(
    recipe: Recipe,
    *,
    root: Place,
    specs: Path,
    workers: int = 1,
    resume: str | None = None,
    address: str | None = None,
) -> Path:
    """Train a recipe, from the last checkpoint of its run where it has one; a finished run is left as it is.

    Args:
        root: the store.
        specs: the folder of specs, for the mixture.
        resume: name of a run to go on with, perhaps for longer; default: the run of the recipe's name.
        address: a Ray cluster; default: a local Ray.

    Returns:
        The directory of the last checkpoint.

    Raises:
        UserError: something is missing, differs from what the run was begun with, or fails in training.
        KeyboardInterrupt: training was asked to stop, and has written a checkpoint.
    """
    store = Store(root.absolute())
    run = run_directory.directory(on_disk(root), resume or recipe.name)
    for wanted in recipe.evaluate:
        store.current("corpora", wanted.corpus)
    mix(mixture(recipe.mixture, specs), root=store.root, encoder=recipe.encoder)
    shards = shard(
        recipe.mixture, encoder=recipe.encoder, max_tokens=recipe.max_tokens, root=store.root, address=address
    )
    # what a worker would refuse too, before waiting for Ray
    with run_directory.locked(run):
        run_directory.check(run, recipe, shards.fingerprint, shards.tokenizer, resume=resume is not None)
    if (finished := run_directory.finished(run)) and resume is None:
        return run / finished.checkpoint
    work = {
        "recipe": recipe.model_dump(),
        "shards": str(on_disk(root) / "shards" / shards.name / shards.fingerprint),
        "run": str(run),
        "root": str(store.root),
        "resume": resume is not None,
    }
    errors.print(f"run {run.name}: starting {workers} worker{'s' * (workers > 1)}", highlight=False)
    with session(address, dashboard=True):
        return _train(work, run, workers)


def _train(work: dict[str, Any], run: Path, workers: int) -> Path:
    """Run the loop on Ray's workers. Where one dies, as many of them as there is room for go on from the last
    checkpoint with the same global batches; and all of them, once there is room for all."""
    from ray.train import WorkerGroupError

    kind = "GPU" if _there("GPU") else "CPU"
    if workers > (there := _there(kind)):
        raise UserError(
            f"--workers {workers}: Ray has {there} {kind}s, and a worker needs one; ask for fewer"
            + (", or start Ray with --num-gpus 0 to train without" if kind == "GPU" else "")
        )
    deaths, reached = 0, checkpoint.latest(run)
    while True:
        now = max(1, min(workers, _there(kind)))
        if now < workers:
            errors.print(f"there is room for {now} of {workers} workers; all go on when there is for all")
        try:
            stopped = _fit(work, run, now, kind, partial(_is_roomier, now, workers, kind))
        except WorkerGroupError as error:
            failures = list(error.worker_failures.values())
            for failure in failures:
                if isinstance(failure, UserError):
                    raise UserError(str(failure)) from None
            if not any(map(_died, failures)):
                raise
            before, reached = reached, checkpoint.latest(run)
            deaths = deaths + 1 if reached == before else 1
            if deaths == ATTEMPTS:
                raise UserError(
                    f"{run}: a worker died {ATTEMPTS} times after the same checkpoint, most likely for want of "
                    "memory; lower tokens_per_step or ask for fewer --workers; the same command goes on from there"
                ) from None
            errors.print(f"a worker died; the others stop, and the run goes on from {reached and reached.name}")
            _call_roll()
            continue
        if finished := run_directory.finished(run):
            return run / finished.checkpoint
        if stopped:
            raise KeyboardInterrupt(
                f"stopped; {checkpoint.latest(run)} is written, and the same command goes on from there"
            )


def _died(failure: Exception) -> bool:
    """Whether a worker's failure is that it died, or that it lost the connection to one that did."""
    from ray.exceptions import RayError

    cause = getattr(failure, "health_check_failure", failure)
    return isinstance(cause, RayError | dist.DistError) or "gloo/transport" in str(failure)


def _call_roll() -> None:
    """Wait until each node has answered or is known to be dead: until then Ray counts its processors."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    answer = ray.remote(num_cpus=0, max_retries=0)(_answer)
    calls = [
        answer.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["Alive"]
    ]
    ray.wait(calls, num_returns=len(calls), timeout=ROLL_CALL)


def _answer() -> None:
    """What a node does that is there."""


def _is_roomier(now: int, workers: int, kind: str) -> bool:
    """Whether fewer workers are at work than were asked for, and Ray has processors for all by now."""
    return now < workers <= _there(kind)


def _there(kind: str) -> int:
    """Processors of a kind, CPU or GPU, that Ray has now, busy or not."""
    import ray

    return int(ray.cluster_resources().get(kind, 0))  # type: ignore[no-untyped-call]


def _fit(work: dict[str, Any], run: Path, workers: int, kind: str, roomier: Callable[[], bool]) -> bool:
    """One attempt under Ray Train, which ends when the run is finished or has been stopped; returns whether a user
    stopped it, and not that it has become `roomier`."""
    from ray.train import LoggingConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    trainer = TorchTrainer(
        _work,
        train_loop_config=work,
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=kind == "GPU"),
        run_config=RunConfig(  # type: ignore[call-arg]  # its static type is that of V1
            # a name that comes again makes Ray Train go on with what it knows of it
            name=f"{run.name}-{fingerprint(work, now())}",
            storage_path=str(run / "ray"),
            # threads that spin while they wait make a step ten times as long where others use the processor too
            worker_runtime_env={"env_vars": {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive")}},
            logging_config=LoggingConfig(log_level="ERROR"),
        ),
    )
    with ThreadPoolExecutor(1, "ray-train") as thread, run_directory.stopping(run) as asked:
        fitting = thread.submit(trainer.fit)
        stops = _show(run, fitting, asked, roomier)
        fitting.result()
    return stops


def _show(run: Path, fitting: Future[Any], asked: Callable[[], bool], roomier: Callable[[], bool]) -> bool:
    """Show the run's log as it grows, and pass a wish to stop on to the workers, as a file; returns whether it was
    not for room alone."""
    grows = False
    _, seen = log.read(run)
    with log.progress() as show:
        while wait([fitting], timeout=POLL).not_done:
            grows = grows or roomier()
            if grows or asked():
                (run / run_directory.STOP).touch()
            rows, seen = log.read(run, seen)
            for row in rows:
                show(row)
        for row in log.read(run, seen)[0]:
            show(row)
    if grows:
        (run / run_directory.STOP).unlink(missing_ok=True)  # which was no user's
    return asked() or not grows


def _work(work: dict[str, Any]) -> None:
    """What each worker runs."""
    import ray.train
    import ray.train.torch

    context = ray.train.get_context()
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // context.get_local_world_size()))
    worker = Worker(
        rank=context.get_world_rank(),
        world=context.get_world_size(),
        device=ray.train.torch.get_device(),
        progress=False,
    )
    recipe, shards, run = Recipe(**work["recipe"]), Path(work["shards"]), Path(work["run"])
    root = place(work["root"])

    def metrics(model: UbertModel, tokenizer: Tokenizer) -> dict[str, float]:
        predictor = Predictor(model, tokenizer, precision=recipe.precision)
        return {
            f"{wanted.corpus}/{wanted.split}/{name}": value
            for wanted in recipe.evaluate
            for name, value in measure(predictor, **wanted.model_dump(), root=root)["metrics"].items()
        }

    with suppress(KeyboardInterrupt):  # it was asked to stop, and the run's directory tells
        loop.train(recipe, shards=shards, run=run, worker=worker, resume=work["resume"], measure=metrics)
