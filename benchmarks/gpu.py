"""A training step on a GPU: tokens per second against the roofline, MFU, the head's share, and peak memory.

The models are MiniLM and BERT-base with random weights, on sequences of 128 and 512 tokens with eight categories:
joint (one sequence per text) and stacked (eight). Ours is the step of `ubert pretrain` (`run_step`): bfloat16, no
padding, kernels for the tables, fused AdamW. While steps are timed, a synchronisation with the device is an
error, and with `--compile` so is a recompilation.

    roofline     tokens per second if all operations ran at the peak of the GPU's data sheet and the optimizer
                 moved its bytes at full bandwidth (`flops.py`); the ratio is ours as a share of that
    MFU          operations per second as a share of the peak, attention included; theirs is 1
    head share   the device's time for tables and loss as a share of the step; theirs is their share of the
                 operations
    memory       the step's peak memory
    head memory  peak memory of tables and loss alone, at 512, 1024 and 2048 tokens, against dense tables and BCE
                 in torch

    python benchmarks/gpu.py [--quick] [--compile]
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import cast

import numpy as np
import torch
from flops import GPUS, Encoder, Gpu, Table, least_seconds, of_step
from loss import dense_loss, one_text
from measure import report
from transformers import BertConfig, BertModel

from ubert.loader.loader import Step
from ubert.loader.shards import Shards
from ubert.model.ubert import Shape, UbertModel
from ubert.schema.specs.recipe import Layout, Recipe
from ubert.structure import cells
from ubert.structure.batch import Batch, Example, Piece, Region, Special, collate, pieces
from ubert.structure.structure_table import StructureTable
from ubert.training import parallel
from ubert.training.optimizer import adamw
from ubert.training.step import SummedLoss, Training, Worker, run_step

CATEGORIES, TOKENS_A_STEP, WARM_UP, STEPS, HEADS = 8, 65_536, 10, 30, 4
WAIT = 400_000_000  # cycles of the device, about a fifth of a second
SPECIAL = Special(cls=1, sep=2, pad=0, marker=3, types=True)
ENCODERS = {"MiniLM": Encoder(6, 384, 1536), "BERT-base": Encoder(12, 768, 3072)}
RECIPE = Recipe(name="gpu", mixture="none", steps=1)
CUDA = torch.device("cuda")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="MiniLM alone: within a minute")
    parser.add_argument("--compile", action="store_true", help="the encoder's layers by torch.compile")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("gpu.py needs a CUDA device, and torch sees none; run it on a machine with one")
    name = torch.cuda.get_device_name()
    gpu = next((gpu for part, gpu in GPUS.items() if re.search(rf"\b{re.escape(part)}\b", name)), None)
    if gpu is None:
        sys.exit(f"no data sheet of {name}; add it to GPUS of benchmarks/flops.py, which has {', '.join(GPUS)}")
    layouts: tuple[Layout, ...] = ("joint", "stacked")
    for encoder, length, layout in product(ENCODERS, (128, 512), layouts):
        if encoder == "MiniLM" or not given.quick:
            step(encoder, length, layout, gpu, compiled=given.compile)
    for tokens in (512, 1024, 2048):
        head_memory(tokens)


def step(name: str, length: int, layout: Layout, gpu: Gpu, *, compiled: bool) -> None:
    """Measure whole steps, and the head's share of them."""
    encoder = ENCODERS[name]
    model = new_model(encoder, layout)
    optimizer = adamw(model, RECIPE)
    if compiled:
        for layer in parallel.layers(model.encoder):
            layer.compile(dynamic=True)
    sequences = max(CATEGORIES, TOKENS_A_STEP // length // CATEGORIES * CATEGORIES)
    texts = sequences if layout == "joint" else sequences // CATEGORIES
    batch = random_batch(texts, length, layout).pinned()
    hidden = torch.randn(*batch.ids_BL.shape, encoder.width, device=CUDA, requires_grad=True)

    training = of_run(model, optimizer)
    global_batch = Step("structure", [batch], batch.examples, rows=[], shards=cast(Shards, None), epoch=0)

    def whole() -> None:
        run_step(training, 0, global_batch)

    there, table = batch.to(CUDA), model.table
    assert table is not None

    def head() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            cells.loss(table(hidden, there), there)[0].backward()

    graphs = warmed_up(whole)
    torch.cuda.reset_peak_memory_stats()
    seconds = per_call(whole)
    memory = torch.cuda.max_memory_allocated() / 2**20
    if compiled and graphs != compiled_graphs():
        sys.exit(f"{name}, {length}, {layout}: something was compiled after {WARM_UP} steps")
    warmed_up(head)
    of_head = per_call(head, steps=HEADS, queued=True)
    lengths = batch.mask_BL.sum(1).tolist()
    tables = torch.bincount(batch.piece_T, minlength=len(lengths)).tolist()
    flops = of_step(encoder, Table(128, layout == "joint"), lengths, batch.text_length_B.tolist(), tables)
    weights = sum(p.numel() for p in model.parameters())
    tokens, least, case = sum(lengths), least_seconds(flops, weights, gpu), f"{name}, {length} tokens, {layout}"
    report("gpu", f"{case}, roofline", tokens / seconds, tokens / least, "tokens/s", STEPS, more=True)
    report("gpu", f"{case}, MFU", flops.total / seconds / gpu.flops, 1.0, "of peak", STEPS, more=True)
    report("gpu", f"{case}, head share", of_head / seconds, flops.head / flops.total, "of the step", STEPS)
    report("gpu", f"{case}, memory", memory, memory, "MiB", 1)


def head_memory(tokens: int) -> None:
    """Compare the peak memory of tables and loss, for one text with sixteen categories, with dense tables."""
    peaks = []
    for dense in (False, True):
        batch = one_text(tokens, 16, Region.TRIANGLE, pieces=16)
        table = StructureTable(384, 128, conditioned=False).to(CUDA)
        hidden = torch.randn(*batch.ids_BL.shape, 384, device=CUDA, requires_grad=True)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        with torch.device(CUDA):
            there = batch.to(CUDA)
            loss = dense_loss(table, hidden, there) if dense else cells.loss(table(hidden, there), there)[0]
        loss.backward()
        torch.cuda.synchronize()
        peaks.append((torch.cuda.max_memory_allocated() - before) / 2**20)
        del table, hidden, there, loss
    ours, theirs = peaks
    report("gpu", f"{tokens} tokens, 16 categories, head memory", ours, theirs, "MiB", 1)


def new_model(encoder: Encoder, layout: Layout) -> UbertModel:
    """Make a model around an encoder of these sizes with random weights."""
    config = BertConfig(
        hidden_size=encoder.width,
        num_hidden_layers=encoder.layers,
        num_attention_heads=12,
        intermediate_size=encoder.inner,
    )
    model = UbertModel.around(BertModel(config), Shape(layout))
    model.to(CUDA).train()  # type: ignore[arg-type]
    return model


def of_run(model: UbertModel, optimizer: torch.optim.AdamW) -> Training:
    """Build the parts of a run that a step needs."""
    parts = SimpleNamespace(
        recipe=RECIPE,
        worker=Worker(device=CUDA),
        model=model,
        optimizer=optimizer,
        score=SummedLoss(model, RECIPE),
        loader=SimpleNamespace(total_steps=RECIPE.steps),
        group=None,
        average=None,
    )
    return cast(Training, parts)


def random_batch(texts: int, length: int, layout: Layout) -> Batch:
    """Make sequences of `length` tokens; each text has eight categories of two tokens with one gold span each."""
    draw = np.random.default_rng(0)

    def words(count: int) -> np.ndarray:
        return draw.integers(1000, 30_000, count, dtype=np.int32)

    prompt = 4 + 3 * (CATEGORIES if layout == "joint" else 1)  # [CLS] t [SEP] categories [SEP], t of one token
    text = length - prompt - 1
    spans = [[category, 3 * category, 3 * category + 1] for category in range(CATEGORIES)]
    items: list[Piece] = []
    for index in range(texts):
        example = Example(
            instruction=words(1),
            categories=[words(2) for _ in range(CATEGORIES)],
            text=words(text),
            pair=words(0),
            regions=np.full(CATEGORIES, Region.TRIANGLE, np.int32),
            gold_anchors=np.empty(0, np.int32),
            gold_cells=np.array(spans, np.int32),
        )
        items += pieces(example, index, layout, SPECIAL, most_categories=CATEGORIES, most_tokens=512)
    return collate(items, SPECIAL, texts)


def warmed_up(work: Callable[[], None]) -> int:
    """Warm up; return the number of graphs compiled so far."""
    for _ in range(WARM_UP):
        work()
    torch.cuda.synchronize()
    return compiled_graphs()


def compiled_graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def per_call(work: Callable[[], None], steps: int = STEPS, *, queued: bool = False) -> float:
    """Return the device seconds of a call; a synchronisation with the device is an error.

    `queued`: let the device wait until all calls are queued, so that the time to launch them does not count.
    """
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.set_sync_debug_mode("error")
    if queued:
        torch.cuda._sleep(WAIT)
    start.record()
    for _ in range(steps):
        work()
    end.record()
    torch.cuda.set_sync_debug_mode("default")
    end.synchronize()
    return float(start.elapsed_time(end)) / 1000 / steps


if __name__ == "__main__":
    main()
