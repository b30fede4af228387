"""`compile: true`: the same losses, and no more graphs after the first steps, for any lengths."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_run import losses, make_encoder, make_recipe, make_shards

from ubert.training import loop
from ubert.training.step import run_step

pytestmark = pytest.mark.slow
QUIET = loop.Worker(progress=False)
WARM_UP, STEPS = 5, 40


def test_graphs_are_bounded_and_losses_are_those_of_the_plain_layers(tmp_path: Path) -> None:
    encoder = make_encoder(tmp_path / "encoder", dropout=0.0)
    shards = make_shards(tmp_path, encoder)
    recipe = make_recipe(encoder, steps=STEPS, tokens_per_step=96, checkpoint_every=1000)
    loop.train(recipe, shards=shards, run=tmp_path / "plain", worker=QUIET)

    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    compiled = recipe.model_copy(update={"compile": True})
    training = loop.set_up(compiled, shards, tmp_path / "steps", loop.ALONE, resume=False)
    graphs, sizes, found = [], set(), []
    for index in range(STEPS):
        step = training.loader.step(index)
        sizes |= {tuple(batch.mask_BL.shape) for batch in step.batches}
        found.append(run_step(training, index, step).numbers(compiled, loop.ALONE.device)[0])
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    training.writer.close()
    assert len(sizes) > 5
    assert 0 < graphs[WARM_UP - 1] <= 4 and graphs[-1] == graphs[WARM_UP - 1], graphs
    assert found == pytest.approx(losses(tmp_path / "plain"), abs=1e-4)
