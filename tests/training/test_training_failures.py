"""Failures in training end in one clear error, and lose at most the steps since the last checkpoint."""

from __future__ import annotations

import re
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_run import World, full_disk, launch, losses, make_recipe, make_world, start, write_recipe
from waiting import HANGS, wait_for

from ubert.schema.errors import UserError
from ubert.schema.manifest import MANIFEST
from ubert.schema.specs.recipe import Recipe
from ubert.training import __main__, loop, nan_guard, run_directory
from ubert.training.checkpoints import checkpoint
from ubert.training.logs import log
from ubert.training.step import StepResult, accumulate, run_step, update

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def recipe(world: World) -> Recipe:
    return make_recipe(world.encoder)


@pytest.fixture(scope="module")
def finished(world: World, recipe: Recipe) -> Path:
    run = world.run("uninterrupted")
    loop.train(recipe, shards=world.shards, run=run, worker=loop.Worker(progress=False))
    return run


def test_a_loss_that_is_not_finite_names_step_and_records(world: World, recipe: Recipe) -> None:
    wild = recipe.model_copy(update={"learning_rate": 1e30, "head_learning_rate": 1e30, "checkpoint_every": 1})
    run = world.run("wild")
    said = r"step 2: the loss is (nan|inf), on the records \S+, .* and \d+ more; .*lower learning_rate \(1e\+30\)"
    with pytest.raises(UserError, match=said):
        loop.train(wild, shards=world.shards, run=run)
    assert checkpoint.latest(run) == run / "checkpoints/step-000001"


@pytest.mark.slow
def test_two_workers_name_the_records_of_the_batch_that_broke(world: World, recipe: Recipe) -> None:
    wild = recipe.model_copy(
        update={"name": "wild-two", "learning_rate": 1e30, "head_learning_rate": 1e30, "checkpoint_every": 1}
    )
    _, said = launch(world, wild, *TORCHRUN).communicate(timeout=HANGS)
    sentences = {line for line in said.splitlines() if line.startswith("error: step 2: the loss is")}
    assert len(sentences) == 1, said


def test_only_records_of_micro_batches_that_broke_are_named(world: World, recipe: Recipe, tmp_path: Path) -> None:
    """A weight that one text alone uses, an embedding, is broken."""
    small = recipe.model_copy(update={"tokens_per_step": 64, "packs_per_batch": 1})
    training = loop.set_up(small, world.shards, tmp_path / "run", loop.ALONE, resume=False)
    step = training.loader.step(0)
    used = [set(batch.ids_BL.flatten().tolist()) for batch in step.batches]
    broken, token = next(
        (number, min(mine - set().union(*used[:number], *used[number + 1 :])))
        for number, mine in enumerate(used)
        if mine - set().union(*used[:number], *used[number + 1 :])
    )
    with torch.no_grad():
        training.model.word_vectors[token] = float("nan")
    with pytest.raises(UserError, match="the loss is nan") as caught:
        run_step(training, 0, step).numbers(small, training.worker.device)
    named = re.findall(r"records (.*?);", str(caught.value))[0].split(" and ")[0].split(", ")
    texts = [batch.examples for batch in step.batches]
    first = sum(texts[:broken])
    assert set(named) <= set(step.records[first : first + texts[broken]])


@pytest.mark.parametrize(("count", "more"), [(1, ""), (5, ""), (6, " and 1 more"), (8, " and 3 more")])
def test_five_records_are_named_and_the_others_counted(
    world: World, recipe: Recipe, tmp_path: Path, count: int, more: str
) -> None:
    training = loop.set_up(recipe, world.shards, tmp_path / "run", loop.ALONE, resume=False)
    training.writer.close()
    step = replace(training.loader.step(0), rows=list(range(count)))
    said = str(nan_guard.error(recipe, 6, step, torch.device("cpu"), "the loss is nan"))
    assert said.startswith(f"step 7: the loss is nan, on the records {', '.join(step.records[:5])}{more}; ")


def test_a_gradient_that_is_not_finite_changes_no_weight(world: World, recipe: Recipe, tmp_path: Path) -> None:
    training = loop.set_up(recipe, world.shards, tmp_path / "run", loop.ALONE, resume=False)
    step = training.loader.step(0)
    totals = accumulate(training, 0, step)
    before = [parameter.clone() for parameter in training.model.parameters()]
    gradient = training.model.word_vectors.grad
    assert gradient is not None
    gradient[0, 0] = float("inf")
    with pytest.raises(UserError, match=f"step 1: the gradient's norm is inf, on the records {step.records[0]}, "):
        StepResult(0, step, totals, *update(training, 0)).numbers(recipe, training.worker.device)
    assert all(torch.equal(a, b) for a, b in zip(before, training.model.parameters(), strict=True))


def test_a_disk_without_space_for_a_whole_line_of_the_log_ends_the_run(tmp_path: Path) -> None:
    """Otherwise the next line would follow the part of it, and no row could be read again."""
    rows = [log.Row(step, 9, "structure", 0.5, 0.1, 1.0, 10, 10.0, 1.0) for step in range(1, 10)]
    with pytest.raises(UserError, match="the log cannot be written"), log.logging_to(tmp_path, 0) as log_row:
        log_row(rows[0])
        size = (tmp_path / log.JSONL).stat().st_size
        with full_disk(2 * size - 9):
            log_row(rows[1])
    assert (tmp_path / log.JSONL).stat().st_size == 2 * size - 9
    with log.logging_to(tmp_path, 1) as log_row:
        log_row(rows[1])
    assert log.read(tmp_path)[0] == rows[:2]


def test_a_share_of_replayed_records_needs_the_command_that_draws_it(
    world: World, recipe: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shards of another share have the same name."""
    replaying = Recipe(**recipe.model_dump() | {"replay": {"mixture": "old", "share": 0.5}})
    path = write_recipe(replaying, world.root / "replaying.yaml")
    monkeypatch.setattr(sys, "argv", ["training", str(path), "--root", str(world.root)])
    assert __main__.main() == 1
    assert "replay: only `ubert pretrain` draws its share; train with it" in capsys.readouterr().err


def test_memory_of_a_device_that_runs_out_gives_one_clear_error(
    world: World, recipe: Recipe, tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 0 bytes free.")

    training = loop.set_up(recipe, world.shards, tmp_path / "run", loop.ALONE, resume=False)
    training.model.encoder.register_forward_pre_hook(full)
    said = r"^step 3: CUDA out of memory\. Tried to allocate 2\.00 GiB; lower tokens_per_step \(8192\)"
    with pytest.raises(UserError, match=said):
        run_step(training, 2, training.loader.step(2))


def test_a_damaged_checkpoint_costs_its_steps_alone(
    world: World, recipe: Recipe, finished: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = world.run("damaged")
    shutil.copytree(finished, run)
    (run / "checkpoints/step-000008/optimizer.safetensors").write_bytes(b"")
    loop.train(recipe, shards=world.shards, run=run, worker=loop.Worker(progress=False))
    assert "step-000008 is damaged (optimizer.safetensors has changed)" in caplog.text
    assert_same(run, finished)


def test_a_disk_that_gets_full_costs_the_steps_since_the_last_checkpoint(
    world: World, recipe: Recipe, finished: Path
) -> None:
    """Step 0 has no optimizer state: its files are smaller than those of step 3."""
    run = world.run("full")
    largest = (finished / "checkpoints/step-000000/model.safetensors").stat().st_size + 1000
    assert (finished / "checkpoints/step-000006/optimizer.safetensors").stat().st_size > largest
    process = start(world, recipe, name="full", largest_file=largest)
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 1
    *_, last = said.splitlines()
    assert "checkpoints/step-000003: the checkpoint cannot be written (" in last and "free some disk space" in last
    assert "Traceback" not in said
    assert checkpoint.latest(run) == run / "checkpoints/step-000000"
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-000000"]
    _, said = start(world, recipe, name="full").communicate(timeout=HANGS)
    assert_same(run, finished)


def test_a_log_that_finds_no_room_gives_one_clear_error(world: World, recipe: Recipe, finished: Path) -> None:
    run = world.run("no-log")
    shutil.copytree(finished, run)
    shutil.rmtree(run / "checkpoints/step-000008")
    before = (run / log.JSONL).read_bytes()
    _, said = start(world, recipe, name="no-log", largest_file=len(before) // 2).communicate(timeout=HANGS)
    assert "the log cannot be written (File too large); free some disk space" in said and "Traceback" not in said
    assert (run / log.JSONL).read_bytes() == before


def test_a_recipe_or_a_manifest_that_finds_no_room_gives_one_clear_error(
    recipe: Recipe, finished: Path, tmp_path: Path
) -> None:
    said = r"{}: cannot be written \(File too large\); free some disk space, then run the same command again"
    with full_disk(100), pytest.raises(UserError, match=said.format(r"recipe\.yaml")):
        run_directory.start(tmp_path, recipe)
    last = checkpoint.latest(finished)
    assert last
    run = shutil.copytree(finished, tmp_path / "run")
    (run / MANIFEST).unlink()
    with full_disk(100), pytest.raises(UserError, match=said.format(r"manifest\.json")):
        run_directory.finish(run, checkpoint.read_state(last), run / last.relative_to(finished))
    assert run_directory.finished(run) is None


def test_a_second_run_of_the_name_is_refused(world: World, recipe: Recipe) -> None:
    longer = recipe.model_copy(update={"name": "twice", "steps": 5000})
    first = start(world, longer)
    wait_for(lambda: bool(log.read(world.run("twice"))[0]), first)
    second = start(world, longer)
    _, said = second.communicate(timeout=HANGS)
    assert second.returncode == 1
    assert "another process is training this run; wait for it, or train under another name" in said
    assert first.poll() is None
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=HANGS)
    assert first.returncode == 130


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_writes_a_checkpoint_and_says_how_to_resume(
    world: World, recipe: Recipe, sent: signal.Signals
) -> None:
    longer = recipe.model_copy(update={"name": sent.name.lower(), "steps": 5000, "checkpoint_every": 5000})
    run = world.run(longer.name)
    process = start(world, longer)
    wait_for(lambda: bool(log.read(run)[0]), process)
    process.send_signal(sent)
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 130
    last = len(losses(run))
    assert f"stopped after step {last} of 5000; the same command continues it" in said
    assert checkpoint.latest(run) == run / f"checkpoints/step-{last:06}"


def test_a_signal_to_one_of_two_workers_stops_both_at_one_step(world: World, recipe: Recipe) -> None:
    longer = recipe.model_copy(update={"name": "both", "steps": 5000, "checkpoint_every": 5000})
    run = world.run("both")
    process = launch(world, longer, *TORCHRUN)
    wait_for(lambda: bool(log.read(run)[0]), process)
    process.send_signal(signal.SIGTERM)  # torchrun passes it on
    process.communicate(timeout=HANGS)
    last = len(losses(run))
    assert checkpoint.latest(run) == run / f"checkpoints/step-{last:06}"
    assert run_directory.finished(run) is None


def assert_same(run: Path, other: Path) -> None:
    """Compare losses and last checkpoints. Another number of threads adds in another order."""
    assert losses(run) == pytest.approx(losses(other), abs=1e-5)
    mine, theirs = checkpoint.latest(run), checkpoint.latest(other)
    assert mine and theirs and mine.name == theirs.name == "step-000008"
    for file in ("model.safetensors", "optimizer.safetensors"):
        tensors = load_file(theirs / file)
        for name, tensor in load_file(mine / file).items():
            torch.testing.assert_close(tensor, tensors[name], atol=1e-5, rtol=0)
