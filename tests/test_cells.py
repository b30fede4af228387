"""The loss and decode over tiles against the dense tables that they never build."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ubert.model import cells
from ubert.model.batch import Batch, Region
from ubert.model.structure_table import StructureTable
from ubert.schema.recipe import LossScale

REGIONS = [
    Region.ANCHOR,
    Region.TRIANGLE,
    Region.ANCHOR | Region.TRIANGLE,
    Region.RECTANGLE,
]


Pieces = list[tuple[int, list[Region]]]


def random_batch(seed: int, pieces: Pieces) -> Batch:
    """Pieces of (text tokens, region of each table) with random gold cells."""
    draw = torch.Generator().manual_seed(seed)
    prompt = 5
    longest = prompt + max(tokens for tokens, _ in pieces) + 1
    piece_T, region_T, gold = [], [], []
    for row, (tokens, regions) in enumerate(pieces):
        for region in regions:
            if region & (Region.TRIANGLE | Region.RECTANGLE):
                start, end = torch.randint(tokens, (2,), generator=draw).tolist()
                if region & Region.TRIANGLE:
                    start, end = min(start, end), max(start, end)
                gold.append((len(piece_T), start, end))
            piece_T.append(row)
            region_T.append(int(region))
    count = len(pieces)
    return Batch(
        ids_BL=torch.zeros(count, longest, dtype=torch.int64),
        mask_BL=torch.ones(count, longest, dtype=torch.bool),
        types_BL=torch.zeros(count, longest, dtype=torch.int64),
        text_start_B=torch.full((count,), prompt),
        text_length_B=torch.tensor([tokens for tokens, _ in pieces]),
        example_B=torch.arange(count),
        piece_T=torch.tensor(piece_T),
        anchor_T=torch.randint(prompt, (len(piece_T),), generator=draw),
        category_T=torch.zeros(len(piece_T), dtype=torch.int64),
        region_T=torch.tensor(region_T),
        gold_anchor_T=torch.randint(2, (len(piece_T),), generator=draw).float(),
        gold_cells_G3=torch.tensor(gold, dtype=torch.int64).reshape(-1, 3),
        examples=count,
    )


def dense_table(head: StructureTable, hidden_BLD: Tensor, batch: Batch, table: int) -> tuple[Tensor, Tensor]:
    """The formula as the paper writes it, with our conditioning: scores [n, n] of a text, and the anchor's."""
    piece = int(batch.piece_T[table])
    start, length = int(batch.text_start_B[piece]), int(batch.text_length_B[piece])
    marker = int(batch.anchor_T[table])
    h_LD = hidden_BLD[piece]
    one = torch.ones(len(h_LD), 1, dtype=h_LD.dtype)
    query, key = F.gelu(head.start(h_LD)), F.gelu(head.end(h_LD))
    plain = torch.cat([query, one], 1) @ head.U @ torch.cat([key, one], 1).T
    if head.condition is not None:
        scale, shift, weight = head.condition(h_LD[marker]).chunk(3)
        plain = plain + (query @ head.U[:-1, :-1] * scale) @ key.T + key @ shift + (query @ weight)[:, None]
    text = slice(start, start + length)
    return plain[text, text], plain[marker, marker] - head.U[-1, -1] + head.anchor_bias


def valid(region: int, length: int) -> Tensor:
    ones = torch.ones(length, length, dtype=torch.bool)
    return ones.triu() if region & Region.TRIANGLE else ones & bool(region & Region.RECTANGLE)


def dense_loss(head: StructureTable, hidden_BLD: Tensor, batch: Batch, scale: LossScale) -> Tensor:
    total = [torch.zeros((), dtype=hidden_BLD.dtype) for _ in range(batch.examples)]
    count = [0] * batch.examples
    for table in range(len(batch.piece_T)):
        scores, anchor = dense_table(head, hidden_BLD, batch, table)
        gold = torch.zeros_like(scores)
        for _, start, end in batch.gold_cells_G3[batch.gold_cells_G3[:, 0] == table].tolist():
            gold[start, end] = 1
        region = int(batch.region_T[table])
        cell_loss = F.binary_cross_entropy_with_logits(scores, gold, reduction="none")
        example = int(batch.example_B[batch.piece_T[table]])
        total[example] = total[example] + cell_loss[valid(region, len(scores))].sum()
        count[example] += int(valid(region, len(scores)).sum())
        if region & Region.ANCHOR:
            target = batch.gold_anchor_T[table].to(anchor.dtype)
            total[example] = total[example] + F.binary_cross_entropy_with_logits(anchor, target)
            count[example] += 1
    weights = [1 / math.log(1 + n) if scale == "log" else 1.0 for n in count]
    return torch.stack([weight * part for weight, part in zip(weights, total, strict=True)]).sum()


def make(seed: int, batch: Batch, conditioned: bool, dtype: torch.dtype) -> tuple[StructureTable, Tensor]:
    torch.manual_seed(seed)
    head = StructureTable(12, 8, conditioned=conditioned).to(dtype)
    torch.nn.init.normal_(head.U, std=0.3)
    torch.nn.init.normal_(head.anchor_bias)
    hidden = torch.randn(*batch.ids_BL.shape, 12, dtype=dtype, requires_grad=True)
    return head, hidden


pieces_strategy = st.lists(
    st.tuples(st.integers(1, 40), st.lists(st.sampled_from(REGIONS), min_size=1, max_size=4)),
    min_size=1,
    max_size=5,
)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    pieces_strategy,
    st.booleans(),
    st.sampled_from([1, 300, 1 << 18]),
    st.sampled_from(["sum", "log"]),
)
def test_loss_and_gradients_equal_the_dense_form(
    seed: int, pieces: Pieces, conditioned: bool, tile: int, scale: LossScale
) -> None:
    batch = random_batch(seed, pieces)
    head, hidden = make(seed, batch, conditioned, torch.float64)
    inputs = [hidden, *head.parameters()]
    expected = dense_loss(head, hidden, batch, scale)
    expected_grads = torch.autograd.grad(expected, inputs, allow_unused=True)
    normal, cells.TILE_CELLS = cells.TILE_CELLS, tile
    try:
        total, count = cells.loss(head(hidden, batch), batch, scale)
        grads = torch.autograd.grad(total, inputs, allow_unused=True)
    finally:
        cells.TILE_CELLS = normal
    assert count == len(pieces)
    torch.testing.assert_close(total, expected, rtol=1e-12, atol=1e-12)
    for grad, wanted in zip(grads, expected_grads, strict=True):
        wanted = torch.zeros(()) if wanted is None else wanted
        grad = torch.zeros_like(wanted) if grad is None else grad
        scale = max(float(wanted.abs().max()), 1.0)
        assert float((grad - wanted).abs().max()) / scale < 1e-10


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), pieces_strategy, st.booleans(), st.sampled_from([1, 300, 1 << 18]))
def test_decode_finds_the_cells_of_the_dense_form(seed: int, pieces: Pieces, conditioned: bool, tile: int) -> None:
    batch = random_batch(seed, pieces)
    head, hidden = make(seed, batch, conditioned, torch.float32)
    normal, cells.TILE_CELLS = cells.TILE_CELLS, tile
    try:
        scores = head(hidden, batch)
        found, top = cells.above(scores, 0.3), cells.best(scores)
    finally:
        cells.TILE_CELLS = normal
    expected, edge = set(), set()
    for table in range(len(batch.piece_T)):
        dense, anchor = dense_table(head, hidden, batch, table)
        torch.testing.assert_close(scores.anchor_T[table], anchor, rtol=1e-4, atol=1e-4)
        allowed = valid(int(batch.region_T[table]), len(dense))
        expected |= {(table, *cell) for cell in torch.nonzero((dense > 0.3) & allowed).tolist()}
        edge |= {(table, *cell) for cell in torch.nonzero(((dense - 0.3).abs() < 1e-4) & allowed).tolist()}
        if allowed.any():
            at = int(torch.searchsorted(top.table, table))
            assert int(top.table[at]) == table
            best = dense.masked_fill(~allowed, float("-inf")).max()
            torch.testing.assert_close(top.score[at], best, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(dense[top.start[at], top.end[at]], best, rtol=1e-4, atol=1e-4)
    got = {tuple(cell) for cell in torch.stack(found[:3], 1).tolist()}
    assert got ^ expected <= edge
    assert found.table.tolist() == sorted(found.table.tolist())


def test_huge_scores_don_t_overflow() -> None:
    batch = random_batch(0, [(9, [Region.TRIANGLE] * 2)])
    head, hidden = make(0, batch, True, torch.float32)
    total, _ = cells.loss(head(hidden * 1e3, batch), batch)
    assert torch.isfinite(total)
    total.backward()
    assert all(torch.isfinite(p.grad).all() for p in head.parameters() if p.grad is not None)


def test_no_table_is_kept_for_the_backward_pass() -> None:
    tokens, tables = 256, 4
    batch = random_batch(1, [(tokens, [Region.TRIANGLE] * tables)])
    head, hidden = make(1, batch, True, torch.float32)
    kept: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        cells.loss(head(hidden, batch), batch)
    assert max(kept) < tokens * tokens


@pytest.mark.parametrize("region", [Region.ANCHOR, Region.TRIANGLE])
def test_every_parameter_gets_a_gradient_whatever_the_tasks_of_a_batch(region: Region) -> None:
    batch = random_batch(2, [(6, [region] * 3)])
    head, hidden = make(2, batch, True, torch.float32)
    total, _ = cells.loss(head(hidden, batch), batch)
    total.backward()
    assert [name for name, p in head.named_parameters() if p.grad is None] == []
