"""Score span tables in tiles, and sum over their valid cells with gradients, without building the tables.

Each tile is a block of rows that fits the processor's cache. Its scores are computed from the factors, used
and dropped. Memory is O(tokens * d + tables * d), not quadratic in the text's length. This version runs on
every device; for GPUs, `triton_cells` has the same two sums as kernels.

Shapes: N tokens, d table width, S span tables, G gold cells; in a group: M tables, n tokens; in a tile: R
rows, C columns.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ubert.structure.batch import SpanGroup
from ubert.structure.structure_table import Scores, at_least_float32

TILE_CELLS = 1 << 18  # scores of one tile: 1 MiB, the size of a core's L2 cache
TILE_ROWS = 64  # a triangle's tile wastes half of a square of this side


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
    """Scores of a group's tables, for rows from `row` and columns from `column`. Invalid cells are -inf."""

    row: int
    column: int
    mixed_MRd: Tensor  # bilinear * scale + shift
    scores_MRC: Tensor


class Gold(NamedTuple):
    """Gold cells: index among the span tables, first token of the text (among N), start and end in the text."""

    table_G: Tensor
    token_G: Tensor
    start_G: Tensor
    end_G: Tensor


Slope = Callable[[int, SpanGroup, Tile], Tensor]


def factors(scores: Scores) -> Factors:
    """Return the factors in float32 (or float64), as a sum over a million cells needs."""
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
    """Yield blocks of rows of a group's tables. A triangle's block starts at the column of its first row."""
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
    """Select the rows of the factors that belong to a group."""
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


def cross_entropy(scores: Scores, gold: Gold, weight_S: Tensor) -> tuple[Tensor, Tensor]:
    """Sum weight_s * (log(1 + e^z) - gold * z) over all valid cells; also return its parts [S], without gradient.

    A group's whole part is stored at its first table. The weights get no gradient.
    """
    tensors = factors(scores)
    if not torch.is_grad_enabled():  # parameters among the factors would ask for a gradient nonetheless
        tensors = Factors(*(tensor.detach() for tensor in tensors))
    return _CrossEntropy.apply(  # type: ignore[no-any-return,no-untyped-call]
        scores.groups, gold, weight_S, *tensors
    )


def log_partition(scores: Scores, gold: Gold) -> tuple[Tensor, Tensor]:
    """Return log(1 + sum of e^z over valid non-gold cells) of each span table [S], and the gold scores [G]."""
    return _LogPartition.apply(scores.groups, gold, *factors(scores))  # type: ignore[no-any-return,no-untyped-call]


class _CrossEntropy(torch.autograd.Function):
    """Compute the gradient in the forward pass, from the same tiles, so that no tile is computed twice."""

    @staticmethod
    def forward(
        ctx: Any, groups: list[SpanGroup], gold: Gold, weight_S: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, Tensor]:
        factors = Factors(*tensors)
        finder = _Finder(groups, gold)
        weights: list[float] = weight_S.tolist()
        part_S = torch.zeros(len(weights), dtype=torch.float64, device=factors.bias.device)

        def slope(index: int, group: SpanGroup, tile: Tile) -> Tensor:
            weight = weights[group.table]  # equal for all tables of a text
            part = part_S[group.table]
            part.add_(F.softplus(tile.scores_MRC).sum(), alpha=weight)
            found = finder.find(index, tile)
            if found:
                part.sub_(tile.scores_MRC[found.at].sum(), alpha=weight)
            slope_MRC = tile.scores_MRC.sigmoid_()
            if found:
                slope_MRC[found.at] -= 1
            return slope_MRC if weight == 1 else slope_MRC.mul_(weight)

        if any(ctx.needs_input_grad):
            ctx.save_for_backward(*_gradient(factors, groups, slope))
        else:
            for index, group in enumerate(groups):
                for tile in tiles(factors, group):
                    slope(index, group, tile)
        ctx.mark_non_differentiable(part_S)
        return part_S.sum().to(factors.bias.dtype), part_S

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        # in place: copies would be the largest tensors of the loss
        return (None, None, None, *(grad.mul_(grads[0]) for grad in ctx.saved_tensors))


class _LogPartition(torch.autograd.Function):
    """Compute the tiles again in the backward pass: the gradient e^(z - value) needs the value first."""

    @staticmethod
    def forward(ctx: Any, groups: list[SpanGroup], gold: Gold, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        factors = Factors(*tensors)
        finder = _Finder(groups, gold)
        # start at log(1) = 0
        value_S = torch.zeros(len(factors.scale_Sd), dtype=torch.float64, device=factors.bias.device)
        score_G = factors.bias.new_empty(len(gold.table_G))
        for index, group in enumerate(groups):
            value_M = value_S[group.table : group.table + group.tables]
            for tile in tiles(factors, group):
                if found := finder.find(index, tile):
                    score_G[found.numbers] = tile.scores_MRC[found.at]
                    tile.scores_MRC[found.at] = float("-inf")
                torch.logaddexp(value_M, tile.scores_MRC.flatten(1).logsumexp(1).double(), out=value_M)
        value_S = value_S.to(factors.bias.dtype)
        ctx.groups, ctx.finder = groups, finder
        ctx.save_for_backward(value_S, *factors)
        return value_S, score_G

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        value_S, *tensors = ctx.saved_tensors
        upstream_S, upstream_G = grads

        def slope(index: int, group: SpanGroup, tile: Tile) -> Tensor:
            tables = slice(group.table, group.table + group.tables)
            found = ctx.finder.find(index, tile)
            if found:
                tile.scores_MRC[found.at] = float("-inf")  # a gold score far above the others would overflow
            slope_MRC = (
                tile.scores_MRC.sub_(value_S[tables, None, None]).exp_().mul_(upstream_S[tables, None, None])
            )
            if found:
                slope_MRC[found.at] = upstream_G[found.numbers]
            return slope_MRC

        return (None, None, *_gradient(Factors(*tensors), ctx.groups, slope))


class _Found(NamedTuple):
    """Gold cells of one tile: their numbers among G, and their indices in its scores."""

    numbers: Tensor
    at: tuple[Tensor, Tensor, Tensor]


class _Finder:
    """An index of the gold cells by the number of their group and their row."""

    def __init__(self, groups: list[SpanGroup], gold: Gold) -> None:
        first_P = torch.tensor([group.table for group in groups], device=gold.table_G.device)
        group_G = torch.searchsorted(first_P, gold.table_G, right=True) - 1
        self.span = 1 + max((group.tokens for group in groups), default=0)
        key_G, self.order = torch.sort(group_G * self.span + gold.start_G)
        self.table_G = (gold.table_G - first_P[group_G])[self.order]
        self.start_G, self.end_G = gold.start_G[self.order], gold.end_G[self.order]
        self.keys: list[int] = key_G.tolist()

    def find(self, index: int, tile: Tile) -> _Found | None:
        row = index * self.span + tile.row
        here = slice(bisect_left(self.keys, row), bisect_left(self.keys, row + tile.scores_MRC.shape[1]))
        if here.start == here.stop:
            return None
        return _Found(
            self.order[here], (self.table_G[here], self.start_G[here] - tile.row, self.end_G[here] - tile.column)
        )


def _gradient(factors: Factors, groups: list[SpanGroup], slope: Slope) -> Factors:
    """Return the gradient of a sum over cells, given its slope dz [M, R, C] in each tile (0 at invalid cells)."""
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
