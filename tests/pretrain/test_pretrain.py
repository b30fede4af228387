"""A recipe under Ray Train: the same loop, and a worker's failure is one clear error of the command."""

from __future__ import annotations

import json
import threading
from functools import partial
from pathlib import Path

import psutil
import pytest
import yaml
from handmade import write_mixture
from tiny_run import losses, make_corpora, make_encoder, make_recipe
from waiting import wait_for

from pipelines.models.evaluate import evaluate
from pipelines.training.compare import compare
from pipelines.training.pretrain import pretrain
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Recipe
from ubert.training import loop, run_directory
from ubert.training.checkpoints import checkpoint
from ubert.training.logs import log

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]
REVIEWS = "reviews/train/accuracy"
MOST, COMPARED = 3000, 8  # steps


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two corpora, and a mixture of them in the folder of specs."""
    root = tmp_path_factory.mktemp("store")
    corpora = make_corpora()
    write_mixture(root, "unused", corpora)
    (root / "specs/mixtures").mkdir(parents=True)
    mixture = {"name": "tiny", "sources": [{"corpus": name} for name in corpora]}
    (root / "specs/mixtures/tiny.yaml").write_text(yaml.safe_dump(mixture), encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def recipe(root: Path) -> Recipe:
    return make_recipe(
        make_encoder(root / "encoder", dropout=0.0), evaluate=[{"corpus": "people", "split": "train"}]
    )


def pretrained(recipe: Recipe, root: Path, workers: int = 1, resume: str | None = None) -> Path:
    return pretrain(recipe, root=root, specs=root / "specs", workers=workers, resume=resume)


@pytest.fixture(scope="module")
def run(recipe: Recipe, root: Path, local_ray: None) -> Path:
    """A finished run of two workers. The file `stop`, which Ctrl-C makes too, stopped it on the way."""
    directory = root / "runs/tiny"
    threading.Thread(target=touch_when_trained, args=(directory,), daemon=True).start()
    with pytest.raises(KeyboardInterrupt, match="the same command continues from there"):
        pretrained(recipe.model_copy(update={"steps": MOST}), root, workers=2)
    reached = len(losses(directory))
    assert COMPARED <= reached < MOST and run_directory.finished(directory) is None
    longer = recipe.model_copy(update={"steps": reached + 2})
    assert pretrained(longer, root, workers=2, resume="tiny") == directory / f"checkpoints/step-{reached + 2:06}"
    assert len(losses(directory)) == reached + 2
    return directory


@pytest.fixture(scope="module")
def finished(recipe: Recipe, run: Path) -> Recipe:
    """The recipe of the finished run."""
    return recipe.model_copy(update={"steps": len(losses(run))})


def touch_when_trained(directory: Path) -> None:
    wait_for(lambda: len(log.read(directory)[0]) >= COMPARED)
    (directory / run_directory.STOP).touch()


def test_two_workers_of_ray_equal_one_process(recipe: Recipe, root: Path, run: Path) -> None:
    shards = next(root.glob("shards/tiny/*/manifest.json")).parent
    alone, same = root / "runs/alone", recipe.model_copy(update={"steps": MOST})
    leaving = partial(next, iter([False] * (COMPARED - 1) + [True]))
    with pytest.raises(KeyboardInterrupt):
        loop.train(same, shards=shards, run=alone, worker=loop.Worker(progress=False), leaving=leaving)
    assert losses(run)[:COMPARED] == pytest.approx(losses(alone), abs=1e-4)


@pytest.mark.slow
def test_metrics_on_the_way_are_those_of_the_checkpoint(recipe: Recipe, root: Path) -> None:
    """With two workers and an average of the weights. The table starts so high that mentions overlap."""
    reviews, people = {"corpus": "reviews", "split": "train"}, {"corpus": "people", "split": "train"}
    evaluated = {"evaluate": [reviews, {**people, "overlap": "nested"}], "evaluate_every": 4, "ema": 0.5}
    changed = {"name": "measuring", "keep_best": REVIEWS, "initial_bias": 30}
    measuring = Recipe(**recipe.model_dump() | evaluated | changed)
    run = pretrained(measuring, root, workers=2).parents[1]
    found = {row.step: row.metrics for row in log.read(run)[0] if row.metrics}
    assert set(found) == {4, 8}
    comparison = compare(measuring, run, root=root)
    after = {
        f"{each['corpus']}/train/{name}": value
        for each in comparison["after"]
        for name, value in each["metrics"].items()
    }
    assert found[8] == pytest.approx(after)
    flat = evaluate(run / "checkpoints/step-000000", **people, root=root)["metrics"]
    assert comparison["before"][1]["metrics"]["span_recall"] > flat["span_recall"]
    assert found[8][REVIEWS] > 0
    best = max(found, key=lambda step: (found[step][REVIEWS], step))
    assert run_directory.finished(run).best == f"checkpoints/step-{best:06}"  # type: ignore[union-attr]


def test_a_second_run_of_the_name_is_refused(recipe: Recipe, root: Path) -> None:
    with (
        run_directory.locked(root / "runs/twice"),
        pytest.raises(UserError, match="another process is training this run; wait for it"),
    ):
        pretrained(recipe.model_copy(update={"name": "twice"}), root)


def test_a_finished_run_is_left_as_it_is(
    finished: Recipe, root: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (run / "manifest.json").stat()
    assert pretrained(finished, root) == run / f"checkpoints/step-{finished.steps:06}"
    assert (run / "manifest.json").stat() == before
    assert "starting" not in capsys.readouterr().err, "no worker has to start for that"


def test_before_and_after_are_measured_and_kept(finished: Recipe, root: Path, run: Path) -> None:
    comparison = compare(finished, run, root=root)
    assert json.loads((run / "evaluation.json").read_text(encoding="utf-8")) == comparison
    for one in (*comparison["before"], *comparison["after"]):
        assert (one["corpus"], one["split"], one["records"]) == ("people", "train", 40)
        assert 0 <= one["metrics"]["span_f1"] <= 1


def test_what_a_worker_refuses_gives_one_clear_error(recipe: Recipe, root: Path) -> None:
    wild = recipe.model_copy(update={"name": "wild", "learning_rate": 1e30, "head_learning_rate": 1e30})
    with pytest.raises(UserError, match=r"^step 2: the loss is (nan|inf), on the records \S+") as caught:
        pretrained(wild, root, workers=2)
    assert "\n" not in str(caught.value) and "Traceback" not in str(caught.value)


@pytest.mark.slow
def test_a_stop_before_the_first_step_leaves_no_worker_in_a_ray_that_lives_on(
    recipe: Recipe, root: Path, run: Path
) -> None:
    early = recipe.model_copy(update={"name": "early", "steps": 3000})
    directory = root / "runs/early"
    threading.Thread(target=touch_when_started, args=(directory,), daemon=True).start()
    with pytest.raises(KeyboardInterrupt, match="the same command"):
        pretrained(early, root)
    assert len(losses(directory)) < 3000
    with run_directory.locked(directory):
        pass  # no worker holds its lock
    assert pretrained(early.model_copy(update={"steps": 4}), root, resume="early").name == "step-000004"


def touch_when_started(directory: Path) -> None:
    wait_for((directory / "ray").is_dir)
    (directory / run_directory.STOP).touch()


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(recipe: Recipe, root: Path) -> None:
    lasting = recipe.model_copy(update={"name": "lasting", "steps": 400})
    directory = root / "runs/lasting"
    thread = threading.Thread(target=kill_a_worker, args=(directory,), daemon=True)
    thread.start()
    assert pretrained(lasting, root, workers=2).name == "step-000400"
    thread.join()
    assert len(losses(directory)) == 400


def kill_a_worker(directory: Path) -> None:
    wait_for(lambda: len(log.read(directory)[0]) > 3)
    workers = [
        p for p in psutil.process_iter(["cmdline"]) if "RayTrainWorker" in " ".join(p.info["cmdline"] or [])
    ]
    mine = [p for p in workers if psutil.pid_exists(p.pid) and ancestor(p, psutil.Process().pid)]
    mine[0].kill()


def ancestor(process: psutil.Process, pid: int) -> bool:
    return pid in [parent.pid for parent in process.parents()]


def test_more_workers_than_processors_are_refused(recipe: Recipe, root: Path) -> None:
    many = recipe.model_copy(update={"name": "many"})
    with pytest.raises(UserError, match="--workers 999: Ray has 2 CPUs, and a worker needs one; ask for fewer"):
        pretrained(many, root, workers=999)


def test_what_cannot_be_measured_later_is_refused_before_training(recipe: Recipe, root: Path) -> None:
    other = Recipe(**recipe.model_dump() | {"name": "other", "evaluate": [{"corpus": "absent"}]})
    with pytest.raises(UserError, match="make it with `ubert ingest absent`"):
        pretrained(other, root)
    split = Recipe(**recipe.model_dump() | {"name": "other", "evaluate": [{"corpus": "people", "split": "test"}]})
    with pytest.raises(UserError, match="corpus people has no records of split 'test'"):
        pretrained(split, root)
    assert not (root / "runs" / "other" / "checkpoints").exists()


def test_a_run_that_does_not_fit_is_refused_before_ray(finished: Recipe, root: Path, run: Path) -> None:
    with pytest.raises(UserError, match="seed 0 -> 7"):
        pretrained(finished.model_copy(update={"seed": 7}), root)
    with pytest.raises(UserError, match="no checkpoint to resume from"):
        pretrained(finished, root, resume="unheard-of")
    assert not (root / "runs" / "unheard-of").exists()
    assert checkpoint.latest(run) == run / f"checkpoints/step-{finished.steps:06}"
