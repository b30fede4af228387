"""The loop: stopped or not, on one worker or two, in small batches or large, training is the same."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from tiny_run import World, losses, make_encoder, make_recipe, make_shards, make_world, start
from waiting import HANGS, wait_for

from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Recipe
from ubert.training import loop, run_directory
from ubert.training.checkpoints import checkpoint
from ubert.training.logs import log
from ubert.training.optimizer import share_of_peak
from ubert.training.step import accumulate, keyed_seed


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def recipe(world: World) -> Recipe:
    return make_recipe(world.encoder)


@pytest.fixture(scope="module")
def finished(world: World, recipe: Recipe) -> Path:
    """A run of eight steps, never stopped."""
    run = world.run("uninterrupted")
    keeping = recipe.model_copy(update={"keep_checkpoints": 9})
    loop.train(keeping, shards=world.shards, run=run, worker=loop.Worker(progress=False))
    return run


def weights(run: Path) -> dict[str, torch.Tensor]:
    directory = checkpoint.latest(run)
    assert directory is not None and directory.name == "step-000008"
    return load_file(directory / "model.safetensors") | load_file(directory / "optimizer.safetensors")


def assert_same_run(run: Path, other: Path, tolerance: float = 1e-6) -> None:
    assert losses(run) == pytest.approx(losses(other), abs=tolerance)
    mine, theirs = weights(run), weights(other)
    assert mine.keys() == theirs.keys()
    for name, tensor in mine.items():
        torch.testing.assert_close(tensor, theirs[name], atol=tolerance, rtol=0)


def test_a_run_is_complete(finished: Path) -> None:
    names = {str(path.relative_to(finished)) for path in finished.rglob("*")}
    assert {"recipe.yaml", "manifest.json", "logs/train.jsonl", "checkpoints/step-000000"} <= names
    assert any("events.out.tfevents" in name for name in names)
    assert not any("half" in name for name in names)
    rows, _ = log.read(finished)
    manifest = run_directory.finished(finished)
    assert manifest is not None and manifest.steps == 8 and manifest.tokens == sum(row.tokens for row in rows)
    assert rows[-1].loss == manifest.loss


def test_resumed_equals_uninterrupted(world: World, recipe: Recipe, finished: Path) -> None:
    """With dropout: it is keyed by step. The run is as a process that died after step 5 has left it."""
    run = world.run("resumed")
    shutil.copytree(finished, run)
    (run / "manifest.json").unlink()
    for lost in ("step-000006", "step-000008"):
        shutil.rmtree(run / "checkpoints" / lost)
    lines = (run / log.JSONL).read_text(encoding="utf-8").splitlines(keepends=True)
    (run / log.JSONL).write_text("".join(lines[:5]), encoding="utf-8")
    torch.manual_seed(99)  # the state of the process is of no account
    loop.train(recipe, shards=world.shards, run=run, worker=loop.Worker(progress=False))
    assert_same_run(run, finished)


def test_a_killed_run_completes(world: World, recipe: Recipe, finished: Path) -> None:
    """kill -9 after a step that no checkpoint holds: its log line is written once all the same."""
    longer = recipe.model_copy(update={"name": "killed", "steps": 5000})
    run = world.run("killed")
    process = start(world, longer)
    wait_for(lambda: len(log.read(run)[0]) > 4, process)
    process.kill()
    process.wait()
    steps = [row.step for row in log.read(run)[0]]
    assert run_directory.finished(run) is None
    at = checkpoint.latest(run)
    assert at is not None
    wanted = longer.model_copy(update={"steps": steps[-1] + 5})
    assert loop.train(wanted, shards=world.shards, run=run, resume=True).name == f"step-{steps[-1] + 5:06}"
    assert len(losses(run)) == steps[-1] + 5


def test_two_workers_equal_one(world: World, tmp_path: Path) -> None:
    """Without dropout, whose masks depend on the micro-batch."""
    encoder = make_encoder(tmp_path / "encoder", dropout=0.0)
    make_shards(tmp_path, encoder)
    plain = make_recipe(encoder)
    for name, processes in (("one", 1), ("two", 2)):
        named = plain.model_copy(update={"name": name})
        command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        process = start(world._replace(root=tmp_path), named, *command)
        _, said = process.communicate(timeout=HANGS)
        assert process.returncode == 0, said
    one, two = tmp_path / "runs/one", tmp_path / "runs/two"
    assert_same_run(one, two, tolerance=1e-4)
    assert [row.tokens for row in log.read(one)[0]] == [row.tokens for row in log.read(two)[0]]


def test_micro_batches_add_up_to_the_batch(world: World, tmp_path: Path) -> None:
    encoder = make_encoder(tmp_path / "encoder", dropout=0.0)
    shards = make_shards(tmp_path, encoder)
    gradients = []
    for size in (8192, 64):
        recipe = make_recipe(encoder, tokens_per_step=size, packs_per_batch=1)
        training = loop.set_up(recipe, shards, tmp_path / f"run-{size}", loop.ALONE, resume=False)
        step = training.loader.step(0)
        assert (len(step.batches) > 1) == (size == 64)
        totals = accumulate(training, 0, step)
        gradients.append((totals, [p.grad for p in training.model.parameters()]))
    (whole, expected), (parts, got) = gradients
    assert float(parts.loss) == pytest.approx(float(whole.loss), rel=1e-5) and parts.tokens == whole.tokens
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)


def test_dropout_differs_by_step_worker_and_micro_batch(world: World, recipe: Recipe, tmp_path: Path) -> None:
    training = loop.set_up(recipe, world.shards, tmp_path / "run", loop.ALONE, resume=False)
    step = training.loader.step(0)
    step = replace(step, batches=[step.batches[0]] * 2)  # the same twice

    def losses_of(seed: int, index: int, rank: int) -> list[float]:
        seeded = recipe.model_copy(update={"seed": seed})
        totals = accumulate(replace(training, recipe=seeded, worker=loop.Worker(rank)), index, step)
        return [float(loss) for loss in totals.losses]

    first = losses_of(0, 0, 0)
    assert losses_of(0, 0, 0) == first
    every = [first, losses_of(1, 0, 0), losses_of(0, 1, 0), losses_of(0, 0, 1)]
    assert len({loss for losses in every for loss in losses}) == 8
    training.writer.close()


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"tokens_per_batch": 64}, r"tokens_per_batch 256 -> 64;"),
        ({"seed": 7}, r"seed 0 -> 7;"),
        ({"layout": "stacked"}, r"layout 'joint' -> 'stacked';"),
        ({"steps": 9}, r"steps 8 -> 9; .* \(or --resume, to train for longer\)"),
    ],
)
def test_another_recipe_is_refused(
    world: World, recipe: Recipe, finished: Path, changed: dict[str, object], named: str
) -> None:
    other = recipe.model_copy(update=changed)
    with pytest.raises(UserError, match=f"step 8 was trained with other settings: {named}"):
        loop.train(other, shards=world.shards, run=finished)
    assert run_directory.finished(finished) is not None


def test_other_shards_and_tokenizers_are_refused(recipe: Recipe, finished: Path) -> None:
    state = checkpoint.read_state(finished / "checkpoints/step-000008")
    run_directory.check(finished, recipe, state.shards, state.tokenizer, resume=True)
    with pytest.raises(
        UserError, match=f"shards {state.shards} -> other; tokenizer {state.tokenizer[:16]} -> new"
    ):
        run_directory.check(finished, recipe, "other", "new", resume=True)


def test_resuming_nothing_is_refused(world: World, recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no checkpoint to resume from"):
        loop.train(recipe, shards=world.shards, run=tmp_path / "new", resume=True)


def test_a_finished_run_does_nothing_more(world: World, recipe: Recipe, finished: Path) -> None:
    before = weights(finished), losses(finished)
    said = start(world, recipe, name="uninterrupted").communicate(timeout=HANGS)
    assert said[0].startswith("uninterrupted was finished already: "), said[1]
    assert before[1] == losses(finished)
    assert all(torch.equal(tensor, weights(finished)[name]) for name, tensor in before[0].items())


def test_missing_shards_name_the_command(world: World, recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no shards .*make them with `ubert shard tiny"):
        run_directory.find_shards(tmp_path, recipe, "hash")
    with pytest.raises(UserError, match=r"the 1 there are of another tokenizer or max_tokens; make them"):
        run_directory.find_shards(world.root, recipe, "hash")


@pytest.mark.parametrize("name", ["../up", "", "a/b", ".hidden", "UPPER"])
def test_a_run_stays_in_the_store(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="run name"):
        run_directory.directory(tmp_path, name)


@given(st.integers(1, 500), st.floats(0, 1))
def test_learning_rate_rises_to_its_peak_and_falls(total: int, warmup: float) -> None:
    recipe = make_recipe(Path("unused"), warmup=warmup)
    shares = [share_of_peak(step, total, recipe) for step in range(total)]
    assert max(shares) == 1.0 and min(shares) > 0
    peak = shares.index(1.0)
    assert shares[: peak + 1] == sorted(shares[: peak + 1])
    assert shares[peak:] == sorted(shares[peak:], reverse=True)


def test_learning_rate_falls_by_equal_parts_and_would_reach_zero_at_the_end() -> None:
    recipe = make_recipe(Path("unused"), warmup=0.2)
    shares = [share_of_peak(step, 10, recipe) for step in range(10)]
    assert shares == pytest.approx([1 / 2, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8])


@given(st.lists(st.tuples(*[st.integers(0, 2**40)] * 4), unique=True, max_size=20))
def test_seeds_differ_where_their_parts_do(parts: list[tuple[int, ...]]) -> None:
    seeds = {keyed_seed(*part) for part in parts}
    assert len(seeds) == len(parts) and all(0 <= seed < 2**63 for seed in seeds)


def test_a_log_is_read_from_where_the_last_call_ended_and_anew_if_it_is_rewritten(tmp_path: Path) -> None:
    def write(steps: range, loss: float) -> None:
        rows = [log.Row(step, 9, "structure", loss, 0.1, 1.0, 10, 10.0, 1.0) for step in steps]
        text = "".join(json.dumps(row._asdict()) + "\n" for row in rows)
        (tmp_path / "logs" / "train.jsonl").write_text(text)

    (tmp_path / "logs").mkdir()
    write(range(1, 4), 0.5)
    rows, seen = log.read(tmp_path)
    assert [row.step for row in rows] == [1, 2, 3]
    assert log.read(tmp_path, seen) == ([], seen)
    write(range(1, 5), 0.5)
    rows, seen = log.read(tmp_path, seen)
    assert [row.step for row in rows] == [4]
    write(range(1, 9), 0.123456789)
    assert [row.step for row in log.read(tmp_path, seen)[0]] == list(range(1, 9))
