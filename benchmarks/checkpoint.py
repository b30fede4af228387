"""How long training waits for a checkpoint: ours, written by a thread, against a synchronous write.

The model is a pretrained MiniLM with its structure table and the state of AdamW, about 270 MB. Both sides write
the same files, hash them and flush them to the disk. Ours waits only for the copy in memory; the interval between
saves is long enough to write, as in training. `a step, while one is written` times matrix products on a thread,
with and without a checkpoint being written.

    python benchmarks/checkpoint.py [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from measure import ENCODER, report

from ubert.model.tokenizer import encoder_path, load_tokenizer
from ubert.model.ubert import Shape, UbertModel
from ubert.schema.specs.recipe import Recipe
from ubert.training.checkpoints import checkpoint
from ubert.training.checkpoints.checkpoint import State
from ubert.training.checkpoints.saving import Writer
from ubert.training.optimizer import adamw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three saves of each side: within a minute")
    torch.set_num_threads(1)
    runs = 3 if parser.parse_args().quick else 9
    recipe = Recipe(name="saved", mixture="none", steps=1)
    tokenizer = load_tokenizer(ENCODER)
    model = UbertModel.new(encoder_path(ENCODER), Shape(), vocabulary=tokenizer.vocabulary, seed=0)
    optimizer = adamw(model, recipe)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    state = State(step=1, tokens=0, seconds=0.0, loss=0.0, recipe=recipe, shards="", tokenizer=tokenizer.hash)
    blocked: tuple[list[float], list[float]] = ([], [])
    slowed: tuple[list[float], list[float]] = ([], [])
    with tempfile.TemporaryDirectory() as folder:
        writer = Writer(Path(folder) / "ours", keep=2)
        for run in range(runs + 1):
            tensors = checkpoint.tensors(model, optimizer)
            at = state.model_copy(update={"step": run})
            taken = seconds(lambda: writer.save(model, tokenizer, tensors, at))  # noqa: B023
            beside = seconds(multiply)
            writer.wait()
            alone = seconds(multiply)
            at_once = seconds(lambda: checkpoint.save(Path(folder) / "theirs", model, tokenizer, tensors, at))  # noqa: B023
            checkpoint.prune(Path(folder) / "theirs", keep=2)
            if run:  # the first save makes the buffers
                for side, value in zip((*blocked, *slowed), (taken, at_once, beside, alone), strict=True):
                    side.append(value)
        writer.close()
    for case, (ours, theirs) in (("the loop waits", blocked), ("a step, while one is written", slowed)):
        report("checkpoint", case, statistics.median(ours), statistics.median(theirs), "s", runs)


def multiply() -> None:
    """Compute about as much as a small training step."""
    matrix = torch.ones(1024, 1024)
    for _ in range(10):
        matrix @ matrix


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
