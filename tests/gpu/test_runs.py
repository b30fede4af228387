"""On a GPU: a run learns as on a CPU, resumes where it stopped, and is the same if wrapped for several workers."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from tiny_run import World, losses, make_recipe, make_world
from waiting import HANGS

from ubert.training import loop
from ubert.training.step import Worker

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
GPU = Worker(device=torch.device("cuda"), progress=False)
STEPS = 8


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("store"), dropout=0.0)


def trained(
    world: World, name: str, worker: Worker = GPU, *, resume: bool = False, **changed: object
) -> list[float]:
    recipe = make_recipe(world.encoder, name=name, **{"steps": STEPS, **changed})
    loop.train(recipe, shards=world.shards, run=world.run(name), worker=worker, resume=resume)
    return losses(world.run(name))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_gpu_learns_as_a_processor_does(world: World, precision: str) -> None:
    found = trained(world, f"gpu-{precision}", precision=precision)
    expected = trained(world, f"cpu-{precision}", Worker(progress=False), precision="fp32")
    assert found == pytest.approx(expected, rel=1e-3 if precision == "fp32" else 0.05)


def test_a_resumed_run_is_the_uninterrupted_one(world: World) -> None:
    whole = trained(world, "whole", precision="bf16")
    steps = iter(range(STEPS))
    recipe = make_recipe(world.encoder, name="parts", steps=STEPS, precision="bf16")
    with pytest.raises(KeyboardInterrupt):
        loop.train(
            recipe,
            shards=world.shards,
            run=world.run("parts"),
            worker=GPU,
            leaving=lambda: next(steps) == STEPS // 2,
        )
    assert 0 < len(losses(world.run("parts"))) < STEPS
    assert trained(world, "parts", precision="bf16") == pytest.approx(whole, rel=1e-3)


WRAPPED = """
import sys
from pathlib import Path
import torch, torch.distributed as dist
from ubert.schema.specs.recipe import Recipe
from ubert.training import loop, parallel
from ubert.training.step import Worker

dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
parallel.distribute = parallel.wrapped
recipe = Recipe.model_validate_json(sys.argv[3])
worker = Worker(device=torch.device("cuda"), progress=False)
loop.train(recipe, shards=Path(sys.argv[1]), run=Path(sys.argv[2]), worker=worker)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_wrapped_model_takes_the_same_steps(world: World, kind: str) -> None:
    expected = trained(world, f"alone-{kind}", precision="bf16")
    recipe = make_recipe(world.encoder, name=f"wrapped-{kind}", steps=STEPS, precision="bf16", parallel=kind)
    run = world.run(recipe.name)
    ran = subprocess.run(
        [sys.executable, "-c", WRAPPED, str(world.shards), str(run), recipe.model_dump_json()],
        capture_output=True, text=True, check=False, timeout=HANGS,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert losses(run) == pytest.approx(expected, rel=0.01)
