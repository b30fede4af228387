"""Loss and decoding over tiles equal those of dense tables."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

import pytest
import torch
import torch.nn.functional as F
from dense_tables import REGIONS, Pieces, dense_loss, dense_table, make, pieces_strategy, random_batch, valid
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from ubert.schema.specs.recipe import Loss, LossScale
from ubert.structure import cells, tiles
from ubert.structure.batch import Batch, Region
from ubert.structure.structure_table import Scores


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    pieces_strategy,
    st.booleans(),
    st.sampled_from([1, 300, 1 << 18]),
    st.sampled_from(["sum", "log", "gold"]),
    st.sampled_from(["bce", "zlpr"]),
)
def test_loss_and_gradients_equal_the_dense_form(
    seed: int, pieces: Pieces, conditioned: bool, tile: int, scale: LossScale, kind: Loss
) -> None:
    batch = random_batch(seed, pieces)
    head, hidden = make(seed, batch, conditioned, torch.float64)
    inputs = [hidden, *head.parameters()]
    expected = dense_loss(head, hidden, batch, scale, kind)
    expected_grads = torch.autograd.grad(expected, inputs, allow_unused=True)
    normal, tiles.TILE_CELLS = tiles.TILE_CELLS, tile
    try:
        total, count = cells.loss(head(hidden, batch), batch, scale, kind)
        grads = torch.autograd.grad(total, inputs, allow_unused=True)
        frozen = head.requires_grad_(False)(hidden.detach(), batch)
        measured, _ = cells.loss(frozen, batch, scale, kind)
    finally:
        tiles.TILE_CELLS = normal
    assert count == len(pieces)
    torch.testing.assert_close(total, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(measured, expected.detach(), rtol=1e-12, atol=1e-12)
    for grad, wanted in zip(grads, expected_grads, strict=True):
        wanted = torch.zeros(()) if wanted is None else wanted
        grad = torch.zeros_like(wanted) if grad is None else grad
        assert float((grad - wanted).norm()) <= 1e-10 * float(wanted.norm())


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), pieces_strategy, st.booleans(), st.sampled_from([1, 300, 1 << 18]))
def test_decode_finds_the_cells_of_the_dense_form(seed: int, pieces: Pieces, conditioned: bool, tile: int) -> None:
    batch = random_batch(seed, pieces)
    head, hidden = make(seed, batch, conditioned, torch.float32)
    normal, tiles.TILE_CELLS = tiles.TILE_CELLS, tile
    try:
        scores = head(hidden, batch)
        found, top = cells.above(scores, 0.3), cells.top(scores)
    finally:
        tiles.TILE_CELLS = normal
    expected, edge = set(), set()
    for table in range(len(batch.piece_T)):
        dense, anchor = dense_table(head, hidden, batch, table)
        if batch.region_T[table] & Region.ANCHOR:
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


Row = tuple[int, int, int, float]


def whole_scores(seed: int, batch: Batch) -> Scores:
    """Scores of whole numbers as factors: many are equal, and exactly."""
    head, hidden = make(seed, batch, True, torch.float64)
    scores: Scores = head(hidden, batch)
    for name in ("query_Nd", "key_Nd", "bilinear_dd", "scale_Sd", "shift_Sd", "weight_Sd", "bias"):
        setattr(scores, name, getattr(scores, name).detach().round())
    return scores


def rows(found: cells.Cells) -> list[Row]:
    return list(zip(*(column.tolist() for column in found), strict=True))


def best(every: list[Row], most: int) -> list[Row]:
    """The best rows of each table, the first of equal ones, in order."""
    tables = [list(of_table) for _, of_table in groupby(every, key=itemgetter(0))]
    return [row for of_table in tables for row in sorted(sorted(of_table, key=lambda row: -row[3])[:most])]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), pieces_strategy, st.integers(1, 50), st.sampled_from([1, 300, 1 << 18]))
def test_the_best_cells_of_each_table_are_those_of_a_stable_sort(
    seed: int, pieces: Pieces, most: int, tile: int
) -> None:
    batch = random_batch(seed, pieces)
    scores = whole_scores(seed, batch)
    normal, tiles.TILE_CELLS = tiles.TILE_CELLS, tile
    try:
        found, every = rows(cells.top(scores, most)), rows(cells.above(scores, -math.inf))
        middle_T2 = torch.tensor([[table % 3, table % 3 + 4] for table in range(len(batch.piece_T))])
        owned = rows(cells.top(scores, most, middle_T2))
    finally:
        tiles.TILE_CELLS = normal
    assert owned == best([row for row in every if row[0] % 3 <= (row[1] + row[2]) // 2 < row[0] % 3 + 4], most)
    assert every == sorted(every)
    sizes = Counter(row[0] for row in every)
    for table in scores.table_S.tolist():
        tokens = pieces[int(batch.piece_T[table])][0]
        assert sizes[table] == int(valid(int(batch.region_T[table]), tokens).sum())
    assert found == best(every, most)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), pieces_strategy, st.integers(1, 50), st.integers(-3, 3))
def test_cells_above_a_threshold_score_more_than_it(seed: int, pieces: Pieces, most: int, threshold: int) -> None:
    scores = whole_scores(seed, random_batch(seed, pieces))
    above = [row for row in rows(cells.above(scores, -math.inf)) if row[3] > threshold]
    assert rows(cells.above(scores, threshold)) == above
    assert rows(cells.above(scores, threshold, most)) == best(above, most)


@pytest.mark.parametrize("kind", ["bce", "zlpr"])
@pytest.mark.parametrize("sign", [1, -1])
def test_scores_of_ten_thousand_don_t_overflow(kind: Loss, sign: int) -> None:
    batch = random_batch(5, [(9, REGIONS), (1, REGIONS)])
    head, hidden = make(0, batch, False, torch.float32)
    with torch.no_grad():
        head.U.mul_(1e4 * sign)
        head.anchor_bias.fill_(1e4 * sign)
    scores = head(hidden, batch)
    assert float(cells.top(scores).score.max()) > 1e4 or sign < 0
    total, _ = cells.loss(scores, batch, kind=kind)
    total.backward()
    double = make(0, batch, False, torch.float64)[0]
    double.load_state_dict(head.state_dict())
    inputs = hidden.detach().double().requires_grad_()
    expected = dense_loss(double, inputs, batch, "sum", kind)
    expected.backward()
    torch.testing.assert_close(total.double(), expected, rtol=1e-4, atol=1e-2)
    scale = float(inputs.grad.abs().max())  # type: ignore[union-attr]
    torch.testing.assert_close(hidden.grad.double() / scale, inputs.grad / scale, rtol=0, atol=1e-3)  # type: ignore[operator,union-attr]


@pytest.mark.parametrize("kind", ["bce", "zlpr"])
def test_no_table_is_made_or_kept_for_the_backward_pass(kind: Loss) -> None:
    """No tensor has as many cells as a table, and no storage is kept that has."""
    tokens, tables = 300, 4
    batch = random_batch(1, [(tokens, [Region.TRIANGLE] * tables)])
    batch = replace(batch, gold_cells_G3=batch.gold_cells_G3[:20])
    head, hidden = make(1, batch, True, torch.float32)
    made: list[int] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = func(*args, **(kwargs or {}))
            made.extend(t.numel() for t in (out if isinstance(out, tuple | list) else [out]) if torch.is_tensor(t))
            return out

    with Watch():
        scores = head(hidden, batch)
        cells.loss(scores, batch, kind=kind)[0].backward()
        cells.above(scores, 2.0)
        cells.top(scores, 5)
    assert 0 < max(made) < tokens * tokens


@pytest.mark.parametrize("kind", ["bce", "zlpr"])
def test_a_loss_without_gradients_multiplies_each_table_once(kind: Loss) -> None:
    tokens, tables = 300, 4
    batch = random_batch(1, [(tokens, [Region.RECTANGLE] * tables)])
    head, hidden = make(1, batch, True, torch.float32)
    with torch.no_grad():
        scores = head(hidden, batch)
        with FlopCounterMode(display=False) as counter:
            cells.loss(scores, batch, kind=kind)
    once = 2 * scores.query_Nd.shape[1] * tables * tokens * tokens
    assert once <= counter.get_total_flops() < 1.5 * once


@pytest.mark.parametrize("kind", ["bce", "zlpr"])
def test_an_anchor_alone_has_one_loss(kind: Loss) -> None:
    batch = random_batch(3, [(4, [Region.ANCHOR] * 6)])
    head, hidden = make(3, batch, True, torch.float64)
    scores = head(hidden, batch)
    expected = F.binary_cross_entropy_with_logits(scores.anchor_T, batch.gold_anchor_T.double(), reduction="sum")
    torch.testing.assert_close(cells.loss(scores, batch, kind=kind)[0], expected)


@pytest.mark.parametrize("region", [Region.ANCHOR, Region.TRIANGLE])
def test_every_parameter_gets_a_gradient_whatever_the_tasks_of_a_batch(region: Region) -> None:
    batch = random_batch(2, [(6, [region] * 3)])
    head, hidden = make(2, batch, True, torch.float32)
    total, _ = cells.loss(head(hidden, batch), batch)
    total.backward()
    assert [name for name, p in head.named_parameters() if p.grad is None] == []
