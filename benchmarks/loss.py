"""Head and loss, forward and backward: sparse cells in tiles (ours) against dense tables (theirs).

Theirs builds labels and masks [categories, L, L] from the gold spans, and scores all cells by the three-operand
einsum of section 3.1 of the UBERT paper. `reference` follows the public implementation: numpy tables and its three
losses (loss_theirs.py). `dense BCE` builds tables in torch and takes BCE over our cells only; there, both sides
have the same weights and encoder output, and must agree on the loss. Ours takes BCE or ZLPR. `stacked` runs it
over the same pieces as theirs, `joint` over one piece with all categories. `networks` times the feed-forward
networks alone, forward and backward, which all sides share. `memory` is the peak of the bytes of live tensors,
labels and masks included; `memory beyond the networks` subtracts that of the layout's networks.

    python benchmarks/loss.py [--quick] [--threads 1]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import get_args

import loss_theirs
import numpy as np
import torch
import torch.nn.functional as F
from measure import peak_bytes, report, seconds
from torch import Tensor

from ubert.schema.specs.recipe import Loss
from ubert.structure import cells
from ubert.structure.batch import Batch, Region
from ubert.structure.structure_table import StructureTable

WIDTH, SIZE, PROMPT = 384, 128, 8


def one_text(tokens: int, categories: int, region: Region, *, pieces: int) -> Batch:
    """Make a text with a gold span for every second category, as one piece (joint) or several (stacked)."""
    draw = torch.Generator().manual_seed(0)
    text = tokens - PROMPT - 1
    start = torch.randint(text - 4, (categories,), generator=draw)
    gold = torch.stack([torch.arange(categories), start, start + 2], 1)[::2]
    shape = (pieces, tokens)
    piece_T = torch.arange(categories) % pieces
    return Batch(
        ids_BL=torch.zeros(shape, dtype=torch.int64),
        mask_BL=torch.ones(shape, dtype=torch.bool),
        types_BL=torch.zeros(shape, dtype=torch.int64),
        text_start_B=torch.full((pieces,), PROMPT),
        text_length_B=torch.full((pieces,), text),
        example_B=torch.zeros(pieces, dtype=torch.int64),
        piece_T=piece_T,
        anchor_T=torch.zeros(categories, dtype=torch.int64),
        category_T=torch.arange(categories),
        region_T=torch.full((categories,), int(region)),
        gold_anchor_T=(torch.arange(categories) == 0).float(),
        gold_cells_G3=gold if region & Region.TRIANGLE else gold[:0],
        examples=1,
    )


def dense_targets(batch: Batch) -> tuple[Tensor, Tensor]:
    """Build labels and mask [T, L, L]."""
    tables, tokens = batch.ids_BL.shape
    labels = torch.zeros(tables, tokens, tokens)
    mask = torch.zeros(tables, tokens, tokens)
    for table in range(tables):
        first, length = int(batch.text_start_B[table]), int(batch.text_length_B[table])
        if batch.region_T[table] & Region.TRIANGLE:
            mask[table, first : first + length, first : first + length] = torch.ones(length, length).triu()
        if batch.region_T[table] & Region.ANCHOR:
            mask[table, 0, 0] = 1
            labels[table, 0, 0] = batch.gold_anchor_T[table]
    for table, start, end in batch.gold_cells_G3.tolist():
        labels[table, PROMPT + start, PROMPT + end] = 1
    return labels, mask


def dense_scores(head: StructureTable, hidden_BLD: Tensor) -> Tensor:
    query, key = F.gelu(head.start(hidden_BLD)), F.gelu(head.end(hidden_BLD))
    one = torch.ones_like(query[..., :1])
    return torch.einsum("bxi,ij,byj->bxy", torch.cat([query, one], -1), head.U, torch.cat([key, one], -1))


def dense_loss(head: StructureTable, hidden_BLD: Tensor, batch: Batch) -> Tensor:
    labels, mask = dense_targets(batch)
    scores = dense_scores(head, hidden_BLD)
    anchor = torch.zeros_like(scores)
    anchor[:, 0, 0] = head.anchor_bias - head.U[-1, -1]
    return (F.binary_cross_entropy_with_logits(scores + anchor, labels, reduction="none") * mask).sum()


def reference_loss(head: StructureTable, hidden_BLD: Tensor, batch: Batch) -> Tensor:
    """Compute the loss of one text like the public implementation: numpy tables, tensors, three losses."""
    tables, tokens = batch.ids_BL.shape
    gold: list[list[tuple[int, int]]] = [[] for _ in range(tables)]
    for table, start, end in batch.gold_cells_G3.tolist():
        gold[table].append((PROMPT + start, PROMPT + end))
    anchored = batch.region_T[0] == Region.ANCHOR
    built = [
        loss_theirs.classification_table(tokens, bool(batch.gold_anchor_T[table]))
        if anchored
        else loss_theirs.span_table(tokens, PROMPT, gold[table])
        for table in range(tables)
    ]
    labels, mask = (torch.tensor(np.array(side)).float()[None] for side in zip(*built, strict=True))
    return loss_theirs.loss(dense_scores(head, hidden_BLD)[None], labels, mask)


def backward(loss: Callable[[], Tensor], head: StructureTable, hidden: Tensor) -> Callable[[], float]:
    """Make a step of the head: loss, and gradients of the head and of the encoder's output."""

    def step() -> float:
        head.zero_grad(set_to_none=True)
        hidden.grad = None
        value = loss()
        value.backward()
        return value.item()

    return step


def compare(tokens: int, categories: int, region: Region, n: int, clock: Callable[[], float]) -> None:
    kind = "spans" if region & Region.TRIANGLE else "classification"
    sides: dict[str, Callable[[], float]] = {}
    for layout, pieces in (("stacked", categories), ("joint", 1)):
        batch = one_text(tokens, categories, region, pieces=pieces)
        torch.manual_seed(0)
        head = StructureTable(WIDTH, SIZE, conditioned=layout == "joint")
        hidden = torch.randn(*batch.ids_BL.shape, WIDTH, requires_grad=True)
        for loss in get_args(Loss):
            sides[f"{layout}, {loss}"] = backward(partial(ours, head, hidden, batch, loss), head, hidden)
        sides[f"{layout}, networks"] = backward(partial(networks, head, hidden), head, hidden)
        if layout == "stacked":
            sides["dense BCE"] = backward(partial(dense_loss, head, hidden, batch), head, hidden)
            sides["reference"] = backward(partial(reference_loss, head, hidden, batch), head, hidden)
    mine, theirs = sides["stacked, bce"](), sides["dense BCE"]()
    if abs(mine - theirs) > 1e-3 * abs(theirs):
        raise SystemExit(f"the two sides disagree: {mine} and {theirs}")
    cases = [(side, "reference") for side in sides if "," in side]
    cases += [("stacked, bce", "dense BCE"), ("joint, bce", "dense BCE")]
    unit = "CPU s" if clock is time.process_time else "s"
    case = f"{kind}, L={tokens}, {categories} categories"
    for side, other in cases:
        report("loss", f"{case}, {side} / {other}", *seconds(sides[side], sides[other], n, clock), unit, n)
    compare_memory(case, sides, cases)


def compare_memory(case: str, sides: dict[str, Callable[[], float]], cases: list[tuple[str, str]]) -> None:
    peak = {side: peak_bytes(work) / 2**20 for side, work in sides.items()}

    def beyond(side: str) -> float:
        return peak[side] - peak["joint, networks" if side.startswith("joint") else "stacked, networks"]

    for side, other in cases:
        report("loss", f"{case}, {side} / {other}, memory", peak[side], peak[other], "MiB", 1)
        if beyond(side) > 0:  # no ratio if the networks alone take more memory than all of ours
            named = f"{case}, {side} / {other}, memory beyond the networks"
            report("loss", named, beyond(side), beyond(other), "MiB", 1)


def ours(head: StructureTable, hidden_BLD: Tensor, batch: Batch, loss: Loss) -> Tensor:
    return cells.loss(head(hidden_BLD, batch), batch, kind=loss)[0]


def networks(head: StructureTable, hidden_BLD: Tensor) -> Tensor:
    return (F.gelu(head.start(hidden_BLD)) + F.gelu(head.end(hidden_BLD))).sum()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few runs, the middle size only")
    parser.add_argument("--threads", type=int, default=1, help="with 1, CPU seconds are counted")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    clock = time.process_time if arguments.threads == 1 else time.perf_counter
    n = 3 if arguments.quick else 9
    for tokens, categories in [(512, 16)] if arguments.quick else [(64, 10), (128, 16), (256, 16), (512, 16)]:
        compare(tokens, categories, Region.TRIANGLE, n, clock)
    for tokens in (512,) if arguments.quick else (64, 128, 512):
        compare(tokens, 10, Region.ANCHOR, n, clock)


if __name__ == "__main__":
    main()
