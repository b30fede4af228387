"""No training step waits for its device.

On a GPU, torch refuses operations that would. Elsewhere, a profile of the code for GPUs has none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import handmade
import pytest
import torch
from handmade import record
from tiny_run import losses, make_corpora, make_encoder, make_recipe
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

from ubert.encoder import unpadded
from ubert.schema.record import Record
from ubert.schema.specs.recipe import Recipe
from ubert.structure import cells
from ubert.training import loop
from ubert.training.step import Training, Worker, run_step, update

WARM_UP, STEPS = 5, 20
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
# The device's numbers are a result's size, or what Python does next. A mask as an index is a `nonzero`.
ASKS = {
    "aten::_local_scalar_dense",
    "aten::_unique2",
    "aten::bincount",
    "aten::equal",
    "aten::masked_select",
    "aten::nonzero",
    "aten::repeat_interleave",
    "aten::unique_consecutive",
    "aten::unique_dim",
}
LABELLED = ("people", "reviews")
OBJECTIVES: dict[str, tuple[Sequence[str], dict[str, Any]]] = {
    "bce": (LABELLED, {}),
    "zlpr": (LABELLED, {"loss": "zlpr", "loss_scale": "log", "layout": "stacked"}),
    "spexbert": (("reviews",), {"objectives": {"spexbert": 1.0}, "loss_scale": "log"}),
    "spanbert": (("texts",), {"objectives": {"spanbert": 1.0}}),
    "mixed": ((*LABELLED, "texts"), {"objectives": {"structure": 0.75, "spanbert": 0.25}, "ema": 0.9}),
    "unilm": (("texts",), {"objectives": {"unilm": 1.0}}),
    "seq2seq": (("titles",), {"objectives": {"seq2seq": 1.0}, "copies": True, "pseudo_masks": True}),
}


class Run(NamedTuple):
    recipe: Recipe
    shards: Path

    def training(self, folder: Path, device: str = "cpu", **changed: Any) -> Training:
        recipe = self.recipe.model_copy(update=changed)
        return loop.set_up(recipe, self.shards, folder, Worker(device=torch.device(device)), resume=False)


def text(number: int) -> Record:
    return record("texts", number, "text", "Ada slept and went by train to Oslo . " * (1 + number % 5), ())


def title(number: int) -> Record:
    one = record("titles", number, "seq2seq", f"Ada went to Oslo by train{' and slept' * (number % 4)}", ())
    one.target = "Oslo by train"
    return one


def make_run(root: Path, objective: str) -> Run:
    corpora = make_corpora() | {"texts": [text(i) for i in range(40)], "titles": [title(i) for i in range(40)]}
    names, changed = OBJECTIVES[objective]
    encoder = make_encoder(root / "encoder", dropout=0.0)
    chosen = {name: corpora[name] for name in names}
    shards = handmade.make_shards(root, chosen, encoder=str(encoder), max_tokens=32, name="tiny")
    settings: dict[str, Any] = {"steps": STEPS, "tokens_per_step": 256, "checkpoint_every": 100}
    return Run(make_recipe(encoder, **settings | changed), shards)


def within(event: FunctionEvent | None) -> Iterator[str]:
    """What an event is part of, itself first."""
    while event is not None:
        yield event.name
        event = event.cpu_parent


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU's kernels take no tensors of a CPU")
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_nothing_that_a_step_does_asks_its_device(
    objective: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = pytest.importorskip("ubert.structure.triton_cells", exc_type=ImportError)
    monkeypatch.setattr(unpadded, "pays", lambda *_: True)
    monkeypatch.setattr(cells, "_sums", lambda scores: kernels)
    training = make_run(tmp_path, objective).training(tmp_path / "run")
    moved = [batch.moved(torch.clone) for batch in training.loader.step(0).batches]
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as run:
        training.score(moved[0])[0].sum().backward()
        update(training, 0)
    training.writer.close()
    events = run.events()
    assert any(event.name == "aten::_fused_adamw_" for event in events)
    asking = [list(within(event)) for event in events if event.name in ASKS]
    # a processor's optimizer reads `found_inf`, a GPU's kernel does
    assert [chain for chain in asking if "aten::_fused_adamw_" not in chain] == []


@contextmanager
def no_waiting(device: str) -> Iterator[None]:
    """What waits for a GPU is an error."""
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("default")


def check_steps(run: Run, folder: Path, device: str, **changed: Any) -> None:
    """Take the steps of a run as the loop does. The first ones, which compile, may wait; their losses are those of
    a processor in fp32."""
    loop.train(run.recipe, shards=run.shards, run=folder / "reference", worker=Worker(progress=False))
    training = run.training(folder / "steps", device, **changed)
    steps = training.loader.iterate()
    sizes, taken = set(), []
    for index in range(WARM_UP):
        taken.append(run_step(training, index, next(steps)))
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    with no_waiting(device):
        for index, step in enumerate(steps, WARM_UP):
            sizes |= {tuple(batch.mask_BL.shape) for batch in step.batches}
            taken.append(run_step(training, index, step))
    training.writer.close()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs
    assert len(taken) == STEPS and len(sizes) >= 5
    found = [one.numbers(training.recipe, torch.device(device))[0] for one in taken]
    near = 0.05 if device == "cuda" else 1e-5
    assert found[:WARM_UP] == pytest.approx(losses(folder / "reference")[:WARM_UP], rel=near)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
@pytest.mark.parametrize("objective", ["zlpr", "spexbert", "mixed"])
def test_steps_of_all_lengths_wait_for_nothing(objective: str, device: str, tmp_path: Path) -> None:
    precision = "bf16" if device == "cuda" else "fp32"
    check_steps(make_run(tmp_path, objective), tmp_path, device, precision=precision)


@GPU
@pytest.mark.slow
def test_compiled_steps_wait_for_nothing(tmp_path: Path) -> None:
    torch.compiler.reset()
    check_steps(make_run(tmp_path, "bce"), tmp_path, "cuda", precision="bf16", compile=True)
