"""How `ubert pretrain` restarts a run, without Ray: after which failures, how often, with how many workers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from threading import Timer
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from handmade import shard_members, write_mixture
from ray.exceptions import RayActorError
from ray.train import ControllerError, PreemptionError, WorkerGroupError
from ray.train.v2._internal.exceptions import (
    WorkerGroupStartupFailedError,
    WorkerGroupStartupTimeoutError,
    WorkerHealthCheckFailedError,
)
from tiny_run import losses, make_corpora, make_encoder, make_recipe

from pipelines.mixtures.mix import mix
from pipelines.models.evaluate import evaluate
from pipelines.specs import mixture
from pipelines.store.storage import ObjectPath, StorePath, upload
from pipelines.training import pretrain as job
from pipelines.training import remote_run
from pipelines.training.driven_run import DrivenRun
from pipelines.training.restart import explained
from pipelines.training.worker import work_on
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Recipe
from ubert.training import run_directory
from ubert.training.checkpoints import checkpoint
from ubert.training.logs import log
from ubert.training.step import Worker

QUIET = Worker(progress=False)
DEAD = WorkerGroupError("a worker died", {0: RayActorError()})
Attempt = Callable[..., bool]


class GoneError(Exception):
    """Ends a test within an attempt."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of shards, the spec of their mixture, and their encoder."""
    place = tmp_path_factory.mktemp("place")
    encoder = str(make_encoder(place / "encoder", dropout=0.0))
    (place / "specs/mixtures").mkdir(parents=True)
    drawn = {"name": "tiny", "sources": [{"corpus": name} for name in make_corpora()]}
    (place / "specs/mixtures/tiny.yaml").write_text(yaml.safe_dump(drawn), encoding="utf-8")
    write_mixture(place / "store", "unused", make_corpora())
    mix(mixture("tiny", place / "specs"), root=place / "store", encoder=encoder)
    shard_members(place / "store", "tiny", encoder, 32)
    return place


@pytest.fixture
def pretrain(place: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Train with attempts that take the place of Ray Train's, on four processors of which some are free."""

    def pretrained(
        recipe: Recipe,
        attempt: Attempt,
        workers: int = 1,
        free: int = 4,
        root: StorePath | None = None,
        **more: Any,
    ) -> Path:
        monkeypatch.setattr(job.restart, "fit", attempt)
        monkeypatch.setattr(job, "session", lambda *given, **named: nullcontext())
        monkeypatch.setattr(job.capacity, "kind", lambda: "CPU")
        monkeypatch.setattr(job.capacity, "total", lambda kind: 4)
        monkeypatch.setattr(job.capacity, "wait_until_free", lambda kind, wanted: free)
        monkeypatch.setattr(job.capacity, "wait_for_nodes", lambda stop_requested: None)
        return job.pretrain(recipe, root=root or place / "store", specs=place / "specs", workers=workers, **more)

    return pretrained


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (DEAD, "the last because a worker died; most likely memory ran out"),
        (PreemptionError(SimpleNamespace(preempted_ranks=[0])), "a machine was preempted; lower checkpoint_every"),
    ],
)
def test_a_run_fails_after_three_deaths_at_one_checkpoint(
    place: Path, pretrain: Callable[..., Path], error: Exception, cause: str
) -> None:
    started: list[str] = []

    def fit(work: dict[str, Any], driven: DrivenRun, *others: object) -> bool:
        reached = checkpoint.latest(driven.run)
        started.append(reached.name if reached else "none")
        if len(started) == 3:  # after two deaths before the first step, the first of three after the second
            steps = iter(range(9))
            work_on(work, QUIET, lambda: next(steps) == 1)
        raise error

    with pytest.raises(UserError, match=f"3 attempts failed after the same checkpoint, .*{cause}"):
        pretrain(make_recipe(place / "encoder", name=f"dying{len(cause)}"), fit)
    assert started == ["none", "none", "none", "step-000002", "step-000002"]


def test_a_run_that_gets_on_survives_any_number_of_deaths(place: Path, pretrain: Callable[..., Path]) -> None:
    def fit(work: dict[str, Any], driven: DrivenRun, *others: object) -> bool:
        work_on(work, QUIET, lambda: True)  # a step
        if run_directory.finished(driven.run):
            return False
        raise DEAD

    last = pretrain(make_recipe(place / "encoder", name="lasting"), fit)
    assert last == place / "store/runs/lasting/checkpoints/step-000008"
    assert len(losses(last.parents[1])) == 8


@pytest.mark.parametrize(("free", "now", "grows"), [(1, 1, [False, True, True]), (9, 3, [False, False, False])])
def test_a_run_starts_with_free_processors_and_grows_once_there_are_enough(
    place: Path,
    pretrain: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    free: int,
    now: int,
    grows: list[bool],
) -> None:
    found: list[bool] = []

    def fit(
        work: dict[str, Any],
        driven: DrivenRun,
        workers: int,
        kind: str,
        stop_requested: object,
        can_grow: Callable[[], bool],
        leaves: bool,
    ) -> bool:
        assert (workers, kind) == (now, "CPU")
        for more in (1, 2, 3):
            monkeypatch.setattr(job.capacity, "free", lambda kind, more=more: more)
            found.append(can_grow())
        raise GoneError

    with pytest.raises(GoneError):
        pretrain(make_recipe(place / "encoder", name=f"growing-{free}"), fit, workers=3, free=free)
    assert found == grows
    with pytest.raises(UserError, match=r"--workers 5: Ray has 4 CPUs, and a worker needs one; ask for fewer$"):
        pretrain(make_recipe(place / "encoder", name=f"growing-{free}"), fit, workers=5)


def test_a_stop_before_a_longer_run_starts_is_not_its_end(place: Path, pretrain: Callable[..., Path]) -> None:
    """The manifest is still that of the shorter run."""
    recipe = make_recipe(place / "encoder", name="longer")

    def fit(work: dict[str, Any], driven: DrivenRun, *others: object) -> bool:
        if work["resume"]:
            driven.request(run_directory.STOP)
            return False
        work_on(work, QUIET, lambda: False)
        return False

    pretrain(recipe, fit)
    with pytest.raises(KeyboardInterrupt, match=r"stopped; .*step-000008 is written"):
        pretrain(recipe.model_copy(update={"steps": 12}), fit, resume="longer")


def test_the_corrupt_checkpoint_of_a_finished_run_is_trained_again(
    place: Path, pretrain: Callable[..., Path]
) -> None:
    def fit(work: dict[str, Any], *others: object) -> bool:
        work_on(work, QUIET, lambda: False)
        return False

    recipe = make_recipe(place / "encoder", name="corrupt", checkpoint_every=6)
    last = pretrain(recipe, fit)
    weights = last / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    assert pretrain(recipe, fit) == last and len(weights.read_bytes()) == len(whole)


def test_a_metric_that_is_not_measured_is_refused_before_training(
    place: Path, pretrain: Callable[..., Path]
) -> None:
    wrong = {"evaluate": [{"corpus": "people", "split": "train"}], "evaluate_every": 4}
    recipe = make_recipe(place / "encoder", name="wrong", **wrong, keep_best="people/train/f1")
    with pytest.raises(UserError, match="people/train/f1 is not measured; expected one of people/train/span_f1, "):
        pretrain(recipe, lambda *_: True)


@pytest.mark.parametrize("stored", [False, True])
def test_a_run_that_paused_goes_on_with_more_workers(
    stored: bool,
    place: Path,
    remote: ObjectPath,
    pretrain: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver and the first worker share a disk, also if the store is elsewhere."""
    monkeypatch.setattr(remote_run, "POLL", 0.01)
    root: StorePath = place / "store"
    if stored:
        for file in (path for path in root.rglob("*") if path.is_file() and "runs" not in path.parts):
            upload(file, remote / file.relative_to(root).as_posix())
        root = remote
    attempts: list[int] = []

    def fit(work: dict[str, Any], driven: DrivenRun, workers: int, *others: object) -> bool:
        attempts.append(workers)
        grows = len(attempts) == 1
        if grows:
            Timer(0.2, driven.request, [run_directory.PAUSE]).start()
        work_on(work, QUIET, lambda: grows and sleep(0.1) is not None)
        driven.withdraw(run_directory.PAUSE)
        return grows

    recipe = make_recipe(place / "encoder", name="paused", steps=40)
    assert pretrain(recipe, fit, workers=2, free=1, root=root).name == "step-000040"
    assert attempts == [1, 1]


def test_metrics_on_the_way_are_those_of_the_checkpoint(place: Path, pretrain: Callable[..., Path]) -> None:
    measured = [
        {"corpus": "people", "split": "train", "limit": 7, "overlap": "nested"},
        {"corpus": "reviews", "split": "train"},
    ]
    recipe = make_recipe(place / "encoder", name="measured", evaluate=measured, evaluate_every=8, initial_bias=30)

    def fit(work: dict[str, Any], *others: object) -> bool:
        work_on(work, QUIET, lambda: False)
        return False

    last = pretrain(recipe, fit)
    rows = log.read(last.parents[1])[0]
    assert [row.step for row in rows if row.metrics] == [8]
    expected = {
        f"{wanted['corpus']}/train/{name}": value
        for wanted in measured
        for name, value in evaluate(last, **wanted, precision="fp32", root=place / "store")["metrics"].items()  # type: ignore[arg-type]
    }
    assert rows[-1].metrics == pytest.approx(expected)


@pytest.mark.parametrize(
    ("error", "died"),
    [
        (DEAD, True),
        (WorkerGroupError("", {0: ValueError("a"), 1: RayActorError()}), True),
        (WorkerGroupError("", {0: RuntimeError("[../gloo/transport/tcp/pair.cc] closed")}), True),
        (WorkerGroupError("", {0: WorkerHealthCheckFailedError("", RayActorError())}), True),
        (ControllerError(WorkerGroupStartupFailedError("a node died")), True),
        (PreemptionError(SimpleNamespace(preempted_ranks=[0])), True),
        (ControllerError(WorkerGroupStartupTimeoutError(2)), False),
    ],
)
def test_a_failure_of_machines_restarts_a_run(error: Exception, died: bool) -> None:
    assert explained(error)[1] == died


@pytest.mark.parametrize(
    "error", [WorkerGroupError("", {0: ValueError("a")}), ControllerError(ValueError("a")), KeyError("a")]
)
def test_a_bug_is_raised_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        explained(error)
    assert raised.value is error


def test_what_a_worker_refuses_goes_before_deaths_of_others() -> None:
    for error in (
        WorkerGroupError("", {0: RayActorError(), 1: UserError("no room")}),
        ControllerError(UserError("no room")),
    ):
        with pytest.raises(UserError, match=r"^no room$"):
            explained(error)
    with pytest.raises(UserError, match="Ray Train's controller died"):
        explained(RayActorError())
