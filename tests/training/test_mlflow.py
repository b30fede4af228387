"""`mlflow: true`: the numbers of TensorBoard in a database of the store, each step once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny_run import World, make_recipe, make_world

from ubert.schema.errors import UserError
from ubert.training import loop
from ubert.training.logs import log, mlflow_log

mlflow = pytest.importorskip("mlflow", reason="needs the extra `mlflow`")
QUIET = loop.Worker(progress=False)

NAMES = ("loss/structure", "learning_rate", "gradient_norm")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("store"))


def known(world: World, run: Path) -> Any:
    """What MLflow knows of a run."""
    client = mlflow.MlflowClient(f"sqlite:///{world.root / 'runs/mlflow.db'}")
    number = (run / mlflow_log.RUN).read_text(encoding="utf-8").strip()
    curves = {name: client.get_metric_history(number, name) for name in NAMES}
    return client.get_run(number), {name: [(m.step, m.value) for m in curve] for name, curve in curves.items()}


def test_curves_are_those_of_the_log_also_of_a_run_that_is_resumed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    recipe = make_recipe(world.encoder, name="told", mlflow=True)
    run = world.run("told")
    loop.train(recipe, shards=world.shards, run=run, worker=QUIET)
    (run / "manifest.json").unlink()
    shutil.rmtree(run / "checkpoints/step-000008")
    loop.train(recipe, shards=world.shards, run=run, worker=QUIET)

    found, curves = known(world, run)
    rows = log.read(run)[0]
    for name in NAMES:
        assert [step for step, _ in curves[name]] == list(range(1, 9))
        assert [value for _, value in curves[name]] == pytest.approx([log.curves(row)[name] for row in rows])
    assert (found.info.run_name, found.info.status) == ("told", "FINISHED")
    assert found.data.params["seed"] == "0" and found.data.params["encoder"] == str(world.encoder)


def test_a_store_without_the_run_gets_all_its_steps(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is on the disk of the machine that began the run, which another machine may continue."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    recipe, run, steps = make_recipe(world.encoder, name="moved", mlflow=True), world.run("moved"), iter(range(9))
    with pytest.raises(KeyboardInterrupt):
        loop.train(recipe, shards=world.shards, run=run, worker=QUIET, leaving=lambda: next(steps) == 2)
    other = f"sqlite:///{world.root / 'other.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", other)
    loop.train(recipe, shards=world.shards, run=run, worker=QUIET)
    client, number = mlflow.MlflowClient(other), (run / mlflow_log.RUN).read_text(encoding="utf-8").strip()
    assert [one.step for one in client.get_metric_history(number, "learning_rate")] == list(range(1, 9))


def test_a_run_that_fails_is_marked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    wild = make_recipe(world.encoder, name="wild", mlflow=True, learning_rate=1e30, head_learning_rate=1e30)
    with pytest.raises(UserError, match="the loss is"):
        loop.train(wild, shards=world.shards, run=world.run("wild"), worker=QUIET)
    found, curves = known(world, world.run("wild"))
    assert found.info.status == "FAILED" and len(curves["loss/structure"]) == 1


def test_without_mlflow_it_says_what_to_install(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_log, "find_spec", lambda name: None)
    recipe = make_recipe(world.encoder, name="absent", mlflow=True)
    with pytest.raises(UserError, match=r"pip install 'ubert\[mlflow\]'"):
        loop.train(recipe, shards=world.shards, run=world.run("absent"), worker=QUIET)


def test_a_run_that_is_stopped_is_marked_and_resumes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    recipe, run, steps = (
        make_recipe(world.encoder, name="halted", mlflow=True),
        world.run("halted"),
        iter(range(9)),
    )
    with pytest.raises(KeyboardInterrupt):
        loop.train(recipe, shards=world.shards, run=run, worker=QUIET, leaving=lambda: next(steps) == 1)
    found, curves = known(world, run)
    assert found.info.status == "KILLED" and [step for step, _ in curves["loss/structure"]] == [1, 2]
    loop.train(recipe, shards=world.shards, run=run, worker=QUIET)
    found, curves = known(world, run)
    assert found.info.status == "FINISHED" and [step for step, _ in curves["loss/structure"]] == list(range(1, 9))
