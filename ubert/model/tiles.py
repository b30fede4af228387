"""The span tables' scores in tiles, and sums over their valid cells with gradients, without the tables.

Scores are made from their factors in tiles of rows that fit the processor's cache, used, and dropped: memory is
O(tokens * d + tables * d), whatever the text's length squared. This is the form of every device; where there is a
GPU, `triton_cells` has the same two sums as kernels.

Shapes: N tokens, d table width, S span tables, G gold cells; of a group: M tables, n tokens; of a tile: R rows, C
columns.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ubert.model.structure_table import Scores, SpanGroup, at_least_float32

TILE_CELLS = 1 << 18  # scores of one tile: 1 MiB, a core's second-level cache
TILE_ROWS = 64  # of a triangle's tile, half of a square of them is masked


class Factors(NamedTuple):
    """score_s[i, j] = (bilinear_i * scale_s + shift_s) . key_j + query_i . weight_s + bias"""

    query_Nd: Tensor
    bilinear_Nd: Tensor  # q U_11
    key_Nd: Tensor
    scale_Sd: Tensor
    shift_Sd: Tensor
    weight_Sd: Tensor
    bias: Tensor


class Tile(NamedTuple):
    """Scores of rows `row`... and columns `column`... of all tables of a group; invalid cells are -inf."""

    row: int
    column: int
    mixed_MRd: Tensor  # bilinear * scale + shift
    scores_MRC: Tensor


class Gold(NamedTuple):
    """Gold cells: index among the span tables, start and end token."""

    table_G: Tensor
    start_G: Tensor
    end_G: Tensor


Slope = Callable[[int, SpanGroup, Tile], Tensor]


def factors(scores: Scores) -> Factors:
    """The factors in float32 (or float64), as a sum over a million cells needs."""
    query_Nd = at_least_float32(scores.query_Nd)
    return Factors(
        query_Nd,
        query_Nd @ at_least_float32(scores.bilinear_dd),
        at_least_float32(scores.key_Nd),
        at_least_float32(scores.scale_Sd),
        at_least_float32(scores.shift_Sd),
        at_least_float32(scores.weight_Sd),
        at_least_float32(scores.bias),
    )


def tiles(factors: Factors, group: SpanGroup) -> Iterator[Tile]:
    """Row blocks of a group's tables; a triangle's blocks begin at their first row's column."""
    own = of_group(factors, group)
    scale_Md, shift_Md = own.scale_Sd[:, None], own.shift_Sd[:, None]
    linear_Mn = own.weight_Sd @ own.query_Nd.T + own.bias
    height = min(TILE_ROWS, max(8, TILE_CELLS // max(1, group.tables * group.tokens)))
    below_RR = torch.ones(height, height, dtype=torch.bool, device=linear_Mn.device).tril_(-1)
    for row in range(0, group.tokens, height):
        end = min(row + height, group.tokens)
        column = row if group.triangle else 0
        mixed_MRd = torch.addcmul(shift_Md, own.bilinear_Nd[row:end], scale_Md)
        flat = mixed_MRd.flatten(0, 1) @ own.key_Nd[column:].T
        scores_MRC = flat.view(group.tables, end - row, -1).add_(linear_Mn[:, row:end, None])
        if group.triangle:
            side = end - row
            scores_MRC[:, :, :side].masked_fill_(below_RR[:side, :side], float("-inf"))
        yield Tile(row, column, mixed_MRd, scores_MRC)


def of_group(factors: Factors, group: SpanGroup) -> Factors:
    """The rows of the factors that belong to a group."""
    tokens = slice(group.token, group.token + group.tokens)
    tables = slice(group.table, group.table + group.tables)
    return Factors(
        factors.query_Nd[tokens],
        factors.bilinear_Nd[tokens],
        factors.key_Nd[tokens],
        factors.scale_Sd[tables],
        factors.shift_Sd[tables],
        factors.weight_Sd[tables],
        factors.bias,
    )


def softplus_sum(factors: Factors, groups: list[SpanGroup], weight_S: Tensor) -> Tensor:
    """Sum over all valid cells of weight_s * log(1 + e^z). No gradient goes to the weights."""
    return _SoftplusSum.apply(groups, weight_S, *factors)  # type: ignore[no-any-return,no-untyped-call]


def log_partition(factors: Factors, groups: list[SpanGroup], gold: Gold) -> Tensor:
    """log(1 + sum of e^z over the valid cells that are not gold) of each span table [S]."""
    return _LogPartition.apply(groups, gold, *factors)  # type: ignore[no-any-return,no-untyped-call]


class _SoftplusSum(torch.autograd.Function):
    """A sum's gradient is known while a tile's scores are, and taken in the same pass: no tile is made twice."""

    @staticmethod
    def forward(ctx: Any, groups: list[SpanGroup], weight_S: Tensor, *tensors: Tensor) -> Tensor:
        factors = Factors(*tensors)
        total = torch.zeros((), dtype=torch.float64, device=factors.bias.device)
        weights: list[float] = weight_S.tolist()

        def slope(index: int, group: SpanGroup, tile: Tile) -> Tensor:
            weight = weights[group.table]  # equal for all tables of a text
            total.add_(F.softplus(tile.scores_MRC).sum(), alpha=weight)
            slope_MRC = tile.scores_MRC.sigmoid_()
            return slope_MRC if weight == 1 else slope_MRC.mul_(weight)

        if any(ctx.needs_input_grad):
            ctx.save_for_backward(*_gradient(factors, groups, slope))
        else:
            for group in groups:
                for tile in tiles(factors, group):
                    total.add_(F.softplus(tile.scores_MRC).sum(), alpha=weights[group.table])
        return total.to(factors.bias.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, None, *(grad * grads[0] for grad in ctx.saved_tensors))


class _LogPartition(torch.autograd.Function):
    """The gradient is e^(z - value), so the tiles are made again once the value is known."""

    @staticmethod
    def forward(ctx: Any, groups: list[SpanGroup], gold: Gold, *tensors: Tensor) -> Tensor:
        factors = Factors(*tensors)
        without_gold = _masks(groups, gold)
        # from log(1), a running maximum of at least 0
        value_S = torch.zeros(len(factors.scale_Sd), dtype=torch.float64, device=factors.bias.device)
        for index, group in enumerate(groups):
            value_M = value_S[group.table : group.table + group.tables]
            for tile in tiles(factors, group):
                without_gold(index, tile)
                torch.logaddexp(value_M, tile.scores_MRC.flatten(1).logsumexp(1).double(), out=value_M)
        value_S = value_S.to(factors.bias.dtype)
        ctx.groups, ctx.without_gold = groups, without_gold
        ctx.save_for_backward(value_S, *factors)
        return value_S

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        value_S, *tensors = ctx.saved_tensors
        upstream_S = grads[0]

        def slope(index: int, group: SpanGroup, tile: Tile) -> Tensor:
            tables = slice(group.table, group.table + group.tables)
            ctx.without_gold(index, tile)
            return tile.scores_MRC.sub_(value_S[tables, None, None]).exp_().mul_(upstream_S[tables, None, None])

        return (None, None, *_gradient(Factors(*tensors), ctx.groups, slope))


def _masks(groups: list[SpanGroup], gold: Gold) -> Callable[[int, Tile], None]:
    """A function that sets the gold cells in a tile of group number `index` to -inf."""
    first_P = torch.tensor([group.table for group in groups], device=gold.table_G.device)
    group_G = torch.searchsorted(first_P, gold.table_G, right=True) - 1
    span = 1 + max((group.tokens for group in groups), default=0)
    key_G, order = torch.sort(group_G * span + gold.start_G)
    table_G, start_G, end_G = (gold.table_G - first_P[group_G])[order], gold.start_G[order], gold.end_G[order]
    keys: list[int] = key_G.tolist()

    def mask(index: int, tile: Tile) -> None:
        first = bisect_left(keys, index * span + tile.row)
        last = bisect_left(keys, index * span + tile.row + tile.scores_MRC.shape[1])
        if first < last:
            at = slice(first, last)
            tile.scores_MRC[table_G[at], start_G[at] - tile.row, end_G[at] - tile.column] = float("-inf")

    return mask


def _gradient(factors: Factors, groups: list[SpanGroup], slope: Slope) -> Factors:
    """The gradient of a sum over cells, from its slope dz [M, R, C] in each tile (0 at invalid cells)."""
    grads = Factors(*(torch.zeros_like(tensor) for tensor in factors))
    for index, group in enumerate(groups):
        own, out = of_group(factors, group), of_group(grads, group)
        linear_Mn = torch.empty(group.tables, group.tokens, dtype=out.bias.dtype, device=out.bias.device)
        for tile in tiles(factors, group):
            slope_MRC = slope(index, group, tile)
            rows = slice(tile.row, tile.row + slope_MRC.shape[1])
            slope_XC = slope_MRC.flatten(0, 1)
            out.key_Nd[tile.column :].addmm_(slope_XC.T, tile.mixed_MRd.flatten(0, 1))
            mixed_MRd = (slope_XC @ own.key_Nd[tile.column :]).view_as(tile.mixed_MRd)
            out.shift_Sd.add_(mixed_MRd.sum(1))
            out.scale_Sd.add_((mixed_MRd * own.bilinear_Nd[rows]).sum(1))
            out.bilinear_Nd[rows].add_(mixed_MRd.mul_(own.scale_Sd[:, None]).sum(0))
            torch.sum(slope_MRC, 2, out=linear_Mn[:, rows])
        out.query_Nd.addmm_(linear_Mn.T, own.weight_Sd)
        out.weight_Sd.addmm_(linear_Mn, own.query_Nd)
        out.bias.add_(linear_Mn.sum())
    return grads
