"""Head and loss, forward and backward: from sparse cells in tiles (ours) against dense tables (theirs).

Theirs builds labels and a mask of [categories, L, L] from the gold spans, scores all cells by the three-operand
einsum of section 3.1 of the UBERT paper, and takes BCE over the masked table; the case `reference` has the public
implementation's three losses. Both sides get the same encoder output and the same weights, and must agree on the
loss (BCE). `stacked` runs ours over the same pieces as theirs, `joint` over one piece that holds all categories.
`memory` counts the bytes of tensors alive beyond those of the feed-forward networks alone (run by themselves,
forward and backward).

    python benchmarks/loss.py [--quick] [--threads 1]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from measure import peak_bytes, report, seconds
from torch import Tensor

from ubert.model import cells
from ubert.model.batch import Batch, Region
from ubert.model.structure_table import StructureTable

WIDTH, SIZE, PROMPT = 384, 128, 8


def one_text(tokens: int, categories: int, region: Region, *, pieces: int) -> Batch:
    """A text with a gold span each second category, as one piece (joint) or a piece a category (stacked)."""
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
    """Labels and mask [T, L, L]."""
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
    """BCE, and the multi-label softmax over each flattened table and over the categories at each cell."""
    labels, mask = dense_targets(batch)
    scores = dense_scores(head, hidden_BLD)
    bce = (F.binary_cross_entropy_with_logits(scores, labels, reduction="none") * mask).sum() / mask.sum()
    tables = multilabel_softmax(scores.flatten(1), labels.flatten(1))
    across = multilabel_softmax(scores.flatten(1).T, labels.flatten(1).T)
    return 10 * (100 * bce + tables + across)


def multilabel_softmax(scores: Tensor, labels: Tensor) -> Tensor:
    signed = (1 - 2 * labels) * scores
    zero = torch.zeros_like(scores[..., :1])
    negative = torch.cat([signed - labels * 1e12, zero], -1).logsumexp(-1)
    positive = torch.cat([signed - (1 - labels) * 1e12, zero], -1).logsumexp(-1)
    return (negative + positive).mean()


def backward(loss: Callable[[], Tensor], head: StructureTable, hidden: Tensor) -> Callable[[], float]:
    """A step of the head: loss, gradients of the head and of the encoder's output."""

    def step() -> float:
        head.zero_grad(set_to_none=True)
        hidden.grad = None
        value = loss()
        value.backward()
        return value.item()

    return step


def compare(tokens: int, categories: int, region: Region, n: int) -> None:
    batch = one_text(tokens, categories, region, pieces=categories)
    torch.manual_seed(0)
    head = StructureTable(WIDTH, SIZE, conditioned=False)
    hidden = torch.randn(*batch.ids_BL.shape, WIDTH, requires_grad=True)
    ours = backward(lambda: cells.loss(head(hidden, batch), batch)[0], head, hidden)
    dense = backward(lambda: dense_loss(head, hidden, batch), head, hidden)
    if abs(ours() - dense()) > 1e-3 * abs(dense()):
        raise SystemExit(f"the two sides disagree: {ours()} and {dense()}")
    reference = backward(lambda: reference_loss(head, hidden, batch), head, hidden)
    joint_head = StructureTable(WIDTH, SIZE, conditioned=True)
    joint_batch = one_text(tokens, categories, region, pieces=1)
    joint_hidden = torch.randn(*joint_batch.ids_BL.shape, WIDTH, requires_grad=True)
    joint = backward(
        lambda: cells.loss(joint_head(joint_hidden, joint_batch), joint_batch)[0], joint_head, joint_hidden
    )
    kind = "spans" if region & Region.TRIANGLE else "classification"
    case = f"{kind}, L={tokens}, {categories} categories"
    for name, mine, theirs in (
        ("stacked, BCE", ours, dense),
        ("stacked, reference", ours, reference),
        ("joint, BCE", joint, dense),
        ("joint, reference", joint, reference),
    ):
        report("loss", f"{case}, {name}", *seconds(mine, theirs, n, time.process_time), "CPU s", n)
    networks = backward(lambda: (F.gelu(head.start(hidden)) + F.gelu(head.end(hidden))).sum(), head, hidden)
    floor = peak_bytes(networks)
    # never less than a page: where ours needs nothing beyond the networks, a ratio would mean nothing
    for name, side in (("BCE", dense), ("reference", reference)):
        beyond = [max(peak_bytes(work) - floor, 4096) / 2**20 for work in (ours, side)]
        report("loss", f"{case}, stacked, {name}, memory", *beyond, "MiB", 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few runs, the middle size only")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    n = 3 if arguments.quick else 9
    for tokens, categories in [(512, 16)] if arguments.quick else [(64, 10), (128, 16), (256, 16), (512, 16)]:
        compare(tokens, categories, Region.TRIANGLE, n)
    for tokens in (512,) if arguments.quick else (64, 128, 512):
        compare(tokens, 10, Region.ANCHOR, n)


if __name__ == "__main__":
    main()
