"""The loop: training is the same with or without stops, with one worker or two, in small or large batches."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_run import (
    World,
    losses,
    make_encoder,
    make_recipe,
    make_shards,
    make_world,
    start,
    start_two,
    write_recipe,
)
from waiting import HANGS, wait_for

from ubert.loader.loader import Loader
from ubert.loader.shards import open_shards
from ubert.model.tokenizer import load_tokenizer
from ubert.model.ubert import Shape, UbertModel
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Prompting, Recipe
from ubert.schema.yaml_file import load
from ubert.structure import cells
from ubert.structure.batch import Batch
from ubert.training import loop, run_directory
from ubert.training.__main__ import main
from ubert.training.checkpoints import checkpoint
from ubert.training.logs import log
from ubert.training.optimizer import share_of_peak
from ubert.training.step import accumulate, keyed_seed, update
from ubert.training.validation import validation_loss


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


def test_the_log_has_the_numbers_of_each_step(recipe: Recipe, finished: Path) -> None:
    rows, manifest = log.read(finished)[0], run_directory.finished(finished)
    assert [row.steps for row in rows] == [8] * 8
    rates = [recipe.learning_rate * share_of_peak(step, 8, recipe) for step in range(8)]
    assert [row.learning_rate for row in rows] == pytest.approx(rates)
    assert [row.tokens_per_second for row in rows] == pytest.approx([row.tokens / row.seconds for row in rows])
    assert manifest and manifest.seconds == pytest.approx(sum(row.seconds for row in rows))


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
    events = EventAccumulator(str(run / "logs")).Reload().Scalars("gradient_norm")
    assert [event.step for event in events] == list(range(1, 9))
    manifest, expected = run_directory.finished(run), run_directory.finished(finished)
    assert manifest and expected and manifest.tokens == expected.tokens


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
    there = world._replace(root=tmp_path)
    alone = start(there, plain.model_copy(update={"name": "one"}))
    for process in (alone, *start_two(there, plain.model_copy(update={"name": "two"}))):
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


@pytest.mark.parametrize("shorter", [{"steps": 7}, {"steps": None, "epochs": 0.01}])
def test_a_run_that_has_trained_for_longer_is_not_resumed(
    world: World, recipe: Recipe, finished: Path, tmp_path: Path, shorter: dict[str, object]
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    with pytest.raises(UserError, match=r"run: 8 steps are done, more than the recipe's \d; raise its steps or"):
        loop.train(recipe.model_copy(update=shorter), shards=world.shards, run=run, resume=True)
    for file in ("manifest.json", "recipe.yaml"):
        assert (run / file).read_bytes() == (finished / file).read_bytes()


def test_fewer_steps_than_are_done_are_refused_before_anything_changes(recipe: Recipe, finished: Path) -> None:
    state = checkpoint.read_state(finished / "checkpoints/step-000008")
    shorter = recipe.model_copy(update={"steps": 7})
    with pytest.raises(UserError, match="8 steps are done, more than the recipe's 7"):
        run_directory.check(finished, shorter, state.shards, state.tokenizer, resume=True)


def test_settings_that_change_no_step_may_change(recipe: Recipe, finished: Path) -> None:
    state = checkpoint.read_state(finished / "checkpoints/step-000008")

    def reached(changed: dict[str, object], resume: bool) -> int:
        other = make_recipe(Path(recipe.encoder), **changed)
        found = run_directory.check(finished, other, state.shards, state.tokenizer, resume=resume)
        return found.step if found else -1

    measured = {"evaluate": [{"corpus": "people"}], "evaluate_every": 2, "keep_best": "people/test/span_f1"}
    kept = {"checkpoint_every": 1, "keep_checkpoints": 5, "mlflow": True, "dynamics": True, "description": "again"}
    assert reached({**measured, **kept, "parallel": "fsdp", "compile": True, "seen": "allow"}, False) == 8
    assert reached({"steps": None, "epochs": 3.0}, True) == 8
    for key, value in (
        ("precision", "auto"),
        ("ema", 0.5),
        ("clip", 2.0),
        ("freeze_layers", 1),
        ("name", "other"),
    ):
        with pytest.raises(UserError, match=f"other settings: {key} ") as refused:
            reached({key: value}, True)
        assert "--resume" not in str(refused.value)


def test_the_order_of_objectives_is_a_setting() -> None:
    one, other = (
        {name: 0.5 for name in names} for names in (("structure", "spanbert"), ("spanbert", "structure"))
    )
    recipes = [Recipe(name="a", mixture="a", steps=1, objectives=order) for order in (one, other)]
    assert [change.split()[0] for change in run_directory._differences(*recipes, set())] == ["objectives"]
    assert run_directory._differences(recipes[0], recipes[0], set()) == []


def test_other_shards_and_tokenizers_are_refused(recipe: Recipe, finished: Path) -> None:
    state = checkpoint.read_state(finished / "checkpoints/step-000008")
    run_directory.check(finished, recipe, state.shards, state.tokenizer, resume=True)
    with pytest.raises(
        UserError, match=f"shards {state.shards} -> other; tokenizer {state.tokenizer[:16]} -> new"
    ):
        run_directory.check(finished, recipe, "other", "new", resume=True)


def test_a_run_that_starts_is_unfinished_and_keeps_its_recipe(
    world: World, finished: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    recipe = make_recipe(world.encoder, description="für später", steps=None, epochs=2.5, **{"from": "other"})
    run_directory.start(run, recipe)
    assert run_directory.finished(run) is None
    assert load(Recipe, run / "recipe.yaml") == recipe


def test_each_checkpoint_and_the_end_are_reported_once_they_are_on_the_disk(
    world: World, recipe: Recipe, tmp_path: Path
) -> None:
    told: list[tuple[str, bool]] = []

    def written() -> None:
        latest = checkpoint.latest(tmp_path)
        told.append((latest.name if latest else "none", run_directory.finished(tmp_path) is not None))

    quiet = loop.Worker(progress=False)
    loop.train(recipe, shards=world.shards, run=tmp_path, worker=quiet, written=written)
    steps = (0, 3, 6, 8, 8)
    assert told == [(f"step-{step:06}", number == 4) for number, step in enumerate(steps)]


def test_other_shards_are_no_longer_run(recipe: Recipe, finished: Path) -> None:
    state = checkpoint.read_state(finished / "checkpoints/step-000008")
    for changed in ({}, {"steps": 9, "seed": 1}):
        other = recipe.model_copy(update={"keep_checkpoints": 9, **changed})
        with pytest.raises(UserError, match="shards") as refused:
            run_directory.check(finished, other, "other", state.tokenizer, resume=False)
        assert "--resume" not in str(refused.value)


def test_resuming_nothing_is_refused(world: World, recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no checkpoint to resume from"):
        loop.train(recipe, shards=world.shards, run=tmp_path / "new", resume=True)


def test_a_finished_run_does_nothing_more(world: World, recipe: Recipe, finished: Path) -> None:
    before = weights(finished), losses(finished)
    said = start(world, recipe, name="uninterrupted").communicate(timeout=HANGS)
    assert said[0].startswith("uninterrupted was already finished: "), said[1]
    assert before[1] == losses(finished)
    assert all(torch.equal(tensor, weights(finished)[name]) for name, tensor in before[0].items())


def test_the_command_takes_a_recipe_by_name_and_tells_a_finished_run(
    world: World,
    recipe: Recipe,
    finished: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (world.root / "specs/recipes").mkdir(parents=True)
    write_recipe(recipe, world.root / "specs/recipes/tiny.yaml")
    shutil.copytree(finished, world.run("copied"))

    def command(*more: str) -> tuple[int, str]:
        where = ["--specs", str(world.root / "specs"), "--root", str(world.root), "--name", "copied"]
        monkeypatch.setattr(sys, "argv", ["ubert.training", *more, *where])
        code = main()
        return code, capsys.readouterr().out

    last = world.run("copied") / "checkpoints/step-000008"
    assert command("tiny") == (0, f"copied was already finished: {last}\n")
    assert command("tiny", "--resume") == (0, f"{last}\n")
    assert command("absent") == (1, "")


def test_the_newest_shards_that_fit_are_taken(world: World, recipe: Recipe, tmp_path: Path) -> None:
    made = json.loads((world.shards / "manifest.json").read_text(encoding="utf-8"))
    changes: dict[str, dict[str, object]] = {
        "a": {"created": "2026-01-01"},
        "b": {"created": "2026-01-03"},
        "c": {"created": "2026-01-02"},
        "d": {"created": "2026-01-04", "tokenizer": "other"},
        "e": {"created": "2026-01-05", "max_tokens": 64},
        "f": {"created": "2026-01-06", "schema_version": 1},
    }
    for name, changed in changes.items():
        (tmp_path / "shards/tiny" / name).mkdir(parents=True)
        (tmp_path / "shards/tiny" / name / "manifest.json").write_text(
            json.dumps(made | changed), encoding="utf-8"
        )
    assert run_directory.find_shards(tmp_path, recipe, made["tokenizer"]).name == "b"
    with pytest.raises(UserError, match="the 5 there are"):
        run_directory.find_shards(tmp_path, recipe.model_copy(update={"max_tokens": 16}), made["tokenizer"])


def test_missing_shards_name_the_command(world: World, recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"no shards .*`ubert shard tiny .* --max-tokens {recipe.max_tokens}`$"):
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


def test_half_a_line_of_a_log_is_left_for_the_next_call(tmp_path: Path) -> None:
    assert log.read(tmp_path) == ([], 0)
    rows = [log.Row(step, 9, "structure", 0.5, 0.1, 1.0, 10, 10.0, 1.0) for step in (1, 2)]
    one, two = (json.dumps(row._asdict()) + "\n" for row in rows)
    path = tmp_path / log.JSONL
    path.parent.mkdir()
    path.write_text(two[:9], encoding="utf-8")
    assert log.read(tmp_path) == ([], 0)
    path.write_text(one + two[:9], encoding="utf-8")
    assert log.read(tmp_path) == (rows[:1], len(one))
    path.write_text(one + two, encoding="utf-8")
    assert log.read(tmp_path, len(one)) == (rows[1:], len(one + two))


def test_without_a_terminal_a_line_is_shown_every_ten_seconds_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each step takes two seconds of training. The first of them is the fifth of a run that was resumed."""
    clock, shown = [0.0], StringIO()
    monkeypatch.setattr(log, "monotonic", lambda: clock[0])
    numbers = [(1.0, 100, 0.0), (3.0, 300, 9.9), (5.0, 100, 10.0), (7.0, 2468, 11.0)]
    with log.progress(Console(file=shown)) as show:
        for step, (loss, tokens, now) in enumerate(numbers, 5):
            clock[0] = now
            show(log.Row(step, 8, "structure", loss, 0.1, 1.0, tokens, tokens / 2, 2.0))
    assert shown.getvalue().splitlines() == [
        "step 5/8  loss 1.0000  50 tokens/s  0:00:06 left",
        "step 7/8  loss 4.0000  100 tokens/s  0:00:02 left",
        "step 8/8  loss 7.0000  1,234 tokens/s  0:00:00 left",
    ]


def test_a_validation_loss_is_the_mean_of_all_rows_however_they_are_batched(world: World, recipe: Recipe) -> None:
    tokenizer, shards = load_tokenizer(str(world.encoder)), open_shards(world.shards)
    shape = Shape(table_size=8, max_tokens=32)
    model = UbertModel.new(str(world.encoder), shape, vocabulary=tokenizer.vocabulary, seed=0)
    small = {"tokens_per_batch": 64, "tokens_per_step": 64, "packs_per_batch": 1}
    other = {"steps": 1, "batches": "cycle", "prompts": Prompting(shuffle=True, drop=0.9)}
    found = [
        validation_loss(model, tokenizer, recipe.model_copy(update=changed), world.shards)
        for changed in ({}, small, other)
    ]
    once = recipe.model_copy(update={"steps": None, "epochs": 1.0})
    loader = Loader(shards, once, tokenizer.special, model.most_tokens)
    with torch.no_grad():
        parts = [
            float(cells.loss(model(batch), batch, recipe.loss_scale, recipe.loss)[0])
            for i in range(loader.total_steps)
            for batch in loader.step(i).batches
            if isinstance(batch, Batch)
        ]
    assert found == pytest.approx([sum(parts) / len(shards)] * 3, rel=1e-4)


def test_weights_of_a_resumed_run_are_aligned_as_those_of_a_new_one(
    world: World, recipe: Recipe, finished: Path, tmp_path: Path
) -> None:
    """Products of unaligned weights round differently."""
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    for directory, longer in ((run, {"steps": 9}), (tmp_path / "new", {})):
        training = loop.set_up(
            recipe.model_copy(update=longer), world.shards, directory, loop.ALONE, resume=directory == run
        )
        training.writer.close()
        assert not any(parameter.data_ptr() % 64 for parameter in training.model.parameters())


def test_another_seed_begins_with_other_heads(world: World, recipe: Recipe, tmp_path: Path) -> None:
    first = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        seeded = recipe.model_copy(update={"seed": seed})
        training = loop.set_up(seeded, world.shards, tmp_path / name, loop.ALONE, resume=False)
        training.writer.close()
        assert training.model.table is not None
        first.append(training.model.table.U.detach())
    assert torch.equal(first[0], first[1]) and not torch.equal(first[0], first[2])


@pytest.mark.parametrize("clip", [0.01, 1000.0])
def test_a_gradient_is_shortened_to_the_recipes_norm(
    world: World, recipe: Recipe, tmp_path: Path, clip: float
) -> None:
    """The optimizer's first average of gradients is a tenth of them."""
    clipped = recipe.model_copy(update={"clip": clip})
    training = loop.set_up(clipped, world.shards, tmp_path / "run", loop.ALONE, resume=False)
    training.writer.close()
    accumulate(training, 0, training.loader.step(0))
    norm = float(update(training, 0)[0])
    averages = [state["exp_avg"] for state in training.optimizer.state.values()]
    found = torch.stack([average.norm() for average in averages]).norm()
    assert 0.01 < norm < 1000 and float(found) == pytest.approx(0.1 * min(norm, clip), rel=1e-3)


def test_the_command_takes_no_address_of_an_object_store(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ubert.training", "tiny", "--root", "s3://bucket/store"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and "s3://bucket/store: expected a folder" in capsys.readouterr().err
