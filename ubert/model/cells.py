"""Loss and decode over the valid cells of the structure tables, without the tables.

Scores are made from their factors (`structure_table.Scores`) in tiles of rows that fit the processor's cache,
used, and dropped: memory is O(tokens * d + tables * d), whatever the text's length squared. As the loss is a sum,
its gradient is known while a tile's scores are: it is taken in the same pass, so that no tile is made twice.

Shapes: N tokens, d table width, S span tables; of one group: M tables, R rows and C columns of a tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ubert.model.batch import Batch, Region
from ubert.model.structure_table import Scores, SpanGroup, at_least_float32
from ubert.schema.recipe import LossScale

TILE_CELLS = 1 << 18  # scores of one tile: 1 MiB, a core's second-level cache
TILE_ROWS = 64  # of a triangle's tile, half of a square of them is masked


class Cells(NamedTuple):
    """Scored cells, in order of table and row: table (of the batch), start and end token (inclusive), score."""

    table: Tensor
    start: Tensor
    end: Tensor
    score: Tensor


def loss(scores: Scores, batch: Batch, scale: LossScale = "sum") -> tuple[Tensor, int]:
    """Binary cross-entropy summed over the valid cells (UBERT, equation 2), and the texts to divide it by.

    BCE summed over the valid cells V with gold cells G is sum_V softplus(z) - sum_G z; V is the anchor cell where
    a table's region has it, and the text's triangle or rectangle. Prompt and padding cells are no part of it.

    Args:
        scale: `log` divides a text's sum by log(1 + its valid cells), so that tasks of a mixture weigh about the
            same (MUPPET, section 3.2); `sum` doesn't.
    """
    weight_T = _weights(batch, scale).to(scores.anchor_T)
    with torch.autocast(scores.anchor_T.device.type, enabled=False):
        anchored_T = (batch.region_T & Region.ANCHOR).bool()
        anchors = F.binary_cross_entropy_with_logits(
            scores.anchor_T[anchored_T],
            batch.gold_anchor_T[anchored_T].to(scores.anchor_T),
            weight_T[anchored_T],
            reduction="sum",
        )
        factors = _factors(scores)
        total = anchors + _SoftplusSum.apply(*factors, weight_T[scores.table_S], scores.groups)  # type: ignore[no-untyped-call]
        gold_G = _gold_scores(factors, scores, batch)
        # every parameter takes part in every step, also where a batch has no span table
        gold = (gold_G * weight_T[batch.gold_cells_G3[:, 0]]).sum()
        return total - gold + 0.0 * scores.bias, batch.examples


def _weights(batch: Batch, scale: LossScale) -> Tensor:
    """Weight [T] of each table's loss: equal for all tables of a text."""
    if scale == "sum":
        return torch.ones_like(batch.gold_anchor_T)
    length_T = batch.text_length_B[batch.piece_T]
    cells_T = (
        (batch.region_T & Region.ANCHOR).bool()
        + (batch.region_T & Region.TRIANGLE).bool() * (length_T * (length_T + 1) // 2)
        + (batch.region_T & Region.RECTANGLE).bool() * length_T**2
    )
    example_T = batch.example_B[batch.piece_T]
    cells_E = cells_T.new_zeros(batch.examples).index_add_(0, example_T, cells_T)
    return 1 / torch.log1p(cells_E[example_T].double())


@torch.no_grad()
def above(scores: Scores, threshold: float = 0.0) -> Cells:
    """The valid cells of the span tables that score above `threshold`."""
    found = []
    for group, tile in _all_tiles(_factors(scores), scores.groups):
        at = torch.nonzero(tile.scores_MRC > threshold)
        found.append(
            Cells(
                scores.table_S[group.table + at[:, 0]],
                at[:, 1] + tile.row,
                at[:, 2] + tile.column,
                tile.scores_MRC[at[:, 0], at[:, 1], at[:, 2]],
            )
        )
    none = scores.table_S.new_empty(0)
    columns = [torch.cat(parts) for parts in zip(*found, strict=True)] or [none, none, none, none.float()]
    order = torch.argsort(columns[0], stable=True)
    return Cells(*(column[order] for column in columns))


@torch.no_grad()
def best(scores: Scores) -> Cells:
    """The best valid cell of each span table."""
    count = len(scores.table_S)
    score_S = torch.full((count,), float("-inf"), device=scores.table_S.device)
    start_S, end_S = torch.zeros_like(scores.table_S), torch.zeros_like(scores.table_S)
    for group, tile in _all_tiles(_factors(scores), scores.groups):
        top_M, at_M = tile.scores_MRC.flatten(1).max(1)
        tables = slice(group.table, group.table + group.tables)
        better_M = top_M > score_S[tables]
        columns = tile.scores_MRC.shape[2]
        start_S[tables] = torch.where(better_M, at_M // columns + tile.row, start_S[tables])
        end_S[tables] = torch.where(better_M, at_M % columns + tile.column, end_S[tables])
        score_S[tables] = torch.where(better_M, top_M, score_S[tables])
    order = torch.argsort(scores.table_S)
    return Cells(*(column[order] for column in (scores.table_S, start_S, end_S, score_S)))


class _Factors(NamedTuple):
    query_Nd: Tensor
    key_Nd: Tensor
    bilinear_dd: Tensor
    scale_Sd: Tensor
    shift_Sd: Tensor
    weight_Sd: Tensor
    bias: Tensor


class _Tile(NamedTuple):
    """Scores of rows `row`... and columns `column`... of all tables of a group; invalid cells are -inf."""

    row: int
    column: int
    bilinear_Rd: Tensor  # q U_11
    mixed_MRd: Tensor  # q U_11 * scale + shift
    scores_MRC: Tensor


def _factors(scores: Scores) -> _Factors:
    return _Factors(*(at_least_float32(getattr(scores, name)) for name in _Factors._fields))


def _gold_scores(factors: _Factors, scores: Scores, batch: Batch) -> Tensor:
    """Scores of the gold cells [G], by gathering their factors."""
    table_G, start_G, end_G = batch.gold_cells_G3.T.contiguous()
    place_T = torch.empty_like(batch.piece_T)
    place_T[scores.table_S] = torch.arange(len(scores.table_S), device=place_T.device)
    span_table_G, piece_G = place_T[table_G], batch.piece_T[table_G]
    offset_G = piece_G * batch.ids_BL.shape[1] + batch.text_start_B[piece_G]
    query_Gd, key_Gd = factors.query_Nd[offset_G + start_G], factors.key_Nd[offset_G + end_G]
    mixed_Gd = torch.addcmul(
        factors.shift_Sd[span_table_G], query_Gd @ factors.bilinear_dd, factors.scale_Sd[span_table_G]
    )
    return (mixed_Gd * key_Gd + query_Gd * factors.weight_Sd[span_table_G]).sum(-1) + factors.bias


def _all_tiles(factors: _Factors, groups: list[SpanGroup]) -> Iterator[tuple[SpanGroup, _Tile]]:
    for group in groups:
        for tile in _tiles(factors, group):
            yield group, tile


def _tiles(factors: _Factors, group: SpanGroup) -> Iterator[_Tile]:
    """Row blocks of a group's tables; a triangle's blocks begin at their first row's column."""
    tables = slice(group.table, group.table + group.tables)
    tokens = slice(group.token, group.token + group.tokens)
    query_nd, key_nd = factors.query_Nd[tokens], factors.key_Nd[tokens]
    scale_Md, shift_Md = factors.scale_Sd[tables, None], factors.shift_Sd[tables, None]
    linear_Mn = factors.weight_Sd[tables] @ query_nd.T + factors.bias
    height = min(TILE_ROWS, max(8, TILE_CELLS // max(1, group.tables * group.tokens)))
    for row in range(0, group.tokens, height):
        rows = slice(row, min(row + height, group.tokens))
        column = row if group.triangle else 0
        bilinear_Rd = query_nd[rows] @ factors.bilinear_dd
        mixed_MRd = torch.addcmul(shift_Md, bilinear_Rd, scale_Md)
        flat = mixed_MRd.flatten(0, 1) @ key_nd[column:].T
        scores_MRC = flat.view(group.tables, rows.stop - row, -1).add_(linear_Mn[:, rows, None])
        if group.triangle:
            side = rows.stop - row
            below_RR = torch.ones(side, side, dtype=torch.bool, device=flat.device).tril_(-1)
            scores_MRC[:, :, :side].masked_fill_(below_RR, float("-inf"))
        yield _Tile(row, column, bilinear_Rd, mixed_MRd, scores_MRC)


class _SoftplusSum(torch.autograd.Function):
    """sum over the valid cells of weight * softplus(z), with its gradient taken in the same pass over tiles."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *tensors, weight_S, groups = inputs
        factors = _Factors(*tensors)
        wanted = any(ctx.needs_input_grad)
        grads = _Factors(*(torch.zeros_like(tensor) for tensor in factors)) if wanted else None
        total = torch.zeros((), dtype=torch.float64, device=factors.bias.device)
        for group, tile in _all_tiles(factors, groups):
            weight = weight_S[group.table]
            total += weight * F.softplus(tile.scores_MRC).sum()
            if grads is not None:
                _add_gradient(grads, factors, group, tile, weight)
        if grads is not None:
            ctx.save_for_backward(*grads)
        return total.to(factors.bias.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (*(grad * grads[0] for grad in ctx.saved_tensors), None, None)


def _add_gradient(grads: _Factors, factors: _Factors, group: SpanGroup, tile: _Tile, weight: Tensor) -> None:
    """Add a tile's part of the gradient: dz = weight * sigmoid(z), 0 at invalid cells."""
    tables = slice(group.table, group.table + group.tables)
    height = tile.scores_MRC.shape[1]
    rows = slice(group.token + tile.row, group.token + tile.row + height)
    columns = slice(group.token + tile.column, group.token + group.tokens)
    slope_MRC = tile.scores_MRC.sigmoid_().mul_(weight)
    slope_XC = slope_MRC.flatten(0, 1)
    grads.key_Nd[columns].addmm_(slope_XC.T, tile.mixed_MRd.flatten(0, 1))
    mixed_MRd = (slope_XC @ factors.key_Nd[columns]).view_as(tile.mixed_MRd)
    grads.scale_Sd[tables].add_((mixed_MRd * tile.bilinear_Rd).sum(1))
    grads.shift_Sd[tables].add_(mixed_MRd.sum(1))
    bilinear_Rd = (mixed_MRd * factors.scale_Sd[tables, None]).sum(0)
    grads.bilinear_dd.addmm_(factors.query_Nd[rows].T, bilinear_Rd)
    slope_MR = slope_MRC.sum(2)
    grads.query_Nd[rows].addmm_(bilinear_Rd, factors.bilinear_dd.T).addmm_(slope_MR.T, factors.weight_Sd[tables])
    grads.weight_Sd[tables].addmm_(slope_MR, factors.query_Nd[rows])
    grads.bias.add_(slope_MR.sum())
