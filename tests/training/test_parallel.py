"""A run is the same for any number of workers, with a whole model each (DDP) or a part of it (FSDP2)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_run import SPECIAL, WORDS, World, launch, losses, make_encoder, make_recipe, make_shards, make_world
from transformers import XLNetConfig, XLNetModel
from waiting import HANGS

from ubert.schema.specs.recipe import Recipe
from ubert.training import loop
from ubert.training.checkpoints import checkpoint
from ubert.training.logs import log

pytestmark = pytest.mark.slow
STEPS = 50
QUIET = loop.Worker(progress=False)
WORKER = """
import sys, time
from datetime import timedelta
from pathlib import Path
import torch.distributed as dist
from ubert.schema.specs.recipe import Recipe
from ubert.training import loop

dist.distributed_c10d.default_pg_timeout = timedelta(seconds={patience})
dist.init_process_group("gloo")

def measure(model, tokenizer):
    time.sleep(2 * {patience})
    return {{"people/train/span_f1": 0.0}}

root, shards, recipe = Path(sys.argv[1]), Path(sys.argv[2]), Recipe.model_validate_json(sys.argv[3])
worker = loop.Worker(rank=dist.get_rank(), world=2, progress=False)
loop.train(recipe, shards=shards, run=root / "runs" / {run}, worker=worker, measure=measure)
dist.destroy_process_group()
"""
SCORE = "people/train/span_f1"
SEEN = WORKER.format(patience=20, run='f"seen-{dist.get_rank()}"')
SLOW = WORKER.format(patience=3, run="recipe.name")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Without dropout, whose masks depend on the micro-batch."""
    return make_world(tmp_path_factory.mktemp("store"), dropout=0.0)


def recipe_of(world: World, name: str, **changed: object) -> Recipe:
    """Micro-batches are small: workers have different numbers of them."""
    few = {"steps": STEPS, "checkpoint_every": 20, "keep_checkpoints": 9, "tokens_per_step": 96, "ema": 0.9}
    return make_recipe(world.encoder, name=name, **{**few, **changed})


@pytest.fixture(scope="module")
def alone(world: World) -> Path:
    run = world.run("alone")
    loop.train(recipe_of(world, "alone"), shards=world.shards, run=run, worker=QUIET)
    return run


def trained(world: World, recipe: Recipe, workers: int) -> Path:
    """By that many processes of torchrun."""
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
    process = launch(world, recipe, *command)
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 0, said
    return world.run(recipe.name)


def assert_same(run: Path, other: Path) -> None:
    assert losses(run) == pytest.approx(losses(other), abs=1e-4) and len(losses(run)) == STEPS
    mine, theirs = checkpoint.latest(run), checkpoint.latest(other)
    assert mine and theirs and mine.name == theirs.name == f"step-{STEPS:06}"
    for file in ("model.safetensors", "optimizer.safetensors"):
        tensors, expected = load_file(mine / file), load_file(theirs / file)
        assert tensors.keys() == expected.keys()
        for name, tensor in tensors.items():
            torch.testing.assert_close(tensor, expected[name], atol=1e-3, rtol=0)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_loss_curves_are_one(world: World, alone: Path, parallel: str, workers: int) -> None:
    recipe = recipe_of(world, f"{parallel}-{workers}", parallel=parallel)
    assert_same(trained(world, recipe, workers), alone)


@pytest.mark.parametrize(("before", "after"), [("ddp", "fsdp"), ("fsdp", "ddp")])
def test_either_resumes_with_the_other_and_with_other_workers(
    world: World, alone: Path, before: str, after: str
) -> None:
    """Checkpoints say nothing of how a model was spread. The run is as a process that died has left it."""
    name = f"{before}-then-{after}"
    run = trained(world, recipe_of(world, name, parallel=before), 2)
    (run / "manifest.json").unlink()
    for lost in ("step-000040", f"step-{STEPS:06}"):
        shutil.rmtree(run / "checkpoints" / lost)
    assert_same(trained(world, recipe_of(world, name, parallel=after), 3), alone)


def test_objectives_that_alternate_train_in_parts(world: World) -> None:
    """Each leaves the other's head without a gradient."""
    mixed = {"objectives": {"structure": 0.5, "spanbert": 0.5}, "masking": {"texts": "all"}, "steps": 12}
    one = trained(world, recipe_of(world, "mixed-1", **mixed), 1)
    two = trained(world, recipe_of(world, "mixed-2", parallel="fsdp", **mixed), 2)
    assert losses(two) == pytest.approx(losses(one), abs=1e-4)


def test_weights_that_no_text_reaches_do_not_stop_two_workers(tmp_path: Path) -> None:
    """XLNet's `mask_emb` gets no gradient, which only its own objective would give."""
    encoder = make_encoder(tmp_path / "encoder")
    small = XLNetConfig(vocab_size=len(SPECIAL + WORDS), d_model=32, n_layer=2, n_head=2, d_inner=64, dropout=0.0)
    XLNetModel(small).save_pretrained(encoder)
    world = World(tmp_path, encoder, make_shards(tmp_path, encoder))
    alone = loop.train(recipe_of(world, "one", steps=3), shards=world.shards, run=world.run("one"), worker=QUIET)
    two = trained(world, recipe_of(world, "two", steps=3), 2)
    assert losses(two) == pytest.approx(losses(alone.parents[1]), abs=1e-4)


def test_all_workers_resume_from_the_checkpoint_that_the_first_one_sees(world: World, alone: Path) -> None:
    """A network disk may list fewer to it. Here each worker has a directory of its own, a copy of what it sees."""
    for rank, newest in enumerate((20, 40)):
        copied = shutil.copytree(alone, world.run(f"seen-{rank}"))
        (copied / "manifest.json").unlink()
        for directory in (copied / "checkpoints").iterdir():
            if int(directory.name.removeprefix("step-")) > newest:
                shutil.rmtree(directory)
    launched(world, SEEN, recipe_of(world, "alone"))
    assert_same(world.run("seen-0"), alone)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_workers_wait_for_a_measurement_that_takes_long(world: World, alone: Path, parallel: str) -> None:
    """Longer than torch waits for a collective by default, here three seconds; after the last step, too."""
    evaluated = {"evaluate": [{"corpus": "people", "split": "train"}], "evaluate_every": 25, "keep_best": SCORE}
    recipe = recipe_of(world, f"slow-{parallel}", parallel=parallel, **evaluated)
    launched(world, SLOW, recipe)
    assert_same(world.run(recipe.name), alone)
    assert [row.step for row in log.read(world.run(recipe.name))[0] if row.metrics] == [25, STEPS]


def launched(world: World, script: str, recipe: Recipe) -> None:
    """A script on two workers, which has `world` and `recipe` as its arguments."""
    path = world.root / f"{recipe.name}.py"
    path.write_text(script, encoding="utf-8")
    arguments = [str(world.root), str(world.shards), recipe.model_dump_json()]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run([*torchrun, str(path), *arguments], capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0, done.stderr
