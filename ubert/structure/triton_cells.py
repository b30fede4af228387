"""Triton kernels for the two sums of `tiles` over the cells of span tables. Scores stay in registers.

As in attention, a block of scores is a matrix product of its factors, summed in float32. Forward and backward
pass each compute it. Where the model computes in bfloat16, so do these products; otherwise they are exact to
float32. The kernels add in a fixed order, so the same input gives the same bytes:

    _table_sums        a program for each table and block of rows    -> the block's part of the table's sum
    _row_gradients     a program for each text and block of rows     -> gradients of the rows, parts of the tables'
    _column_gradients  a program for each text and block of columns  -> gradients of the columns

Without a GPU the kernels run in Triton's interpreter (TRITON_INTERPRET=1).

Shapes: N tokens, d table width, S span tables, P texts, G gold cells, R blocks of rows of the longest text, X rows
of these blocks.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from ubert.structure import tiles
from ubert.structure.structure_table import Scores
from ubert.structure.tiles import Factors, Gold

STAGES = 2  # of loads in advance
VARYING = ["blocks"]  # else Triton compiles special kernels for 1 and multiples of 16 during a run


def cross_entropy(scores: Scores, gold: Gold, weight_S: Tensor) -> tuple[Tensor, Tensor]:
    """Sum weight_s * (log(1 + e^z) - gold * z) over all valid cells; also return each table's part [S].

    Neither the parts nor the weights get a gradient.
    """
    factors = tiles.factors(scores)
    value_S: Tensor = _TableSums.apply(_layout(scores, Gold(*(column[:0] for column in gold))), True, *factors)
    gold_G = _gold_scores(factors, gold) * weight_S.detach()[gold.table_G]
    of_cells_S = weight_S.detach() * value_S
    part_S = of_cells_S.detach().index_add(0, gold.table_G, gold_G.detach(), alpha=-1)
    return of_cells_S.sum() - gold_G.sum(), part_S


def log_partition(scores: Scores, gold: Gold) -> tuple[Tensor, Tensor]:
    """Return log(1 + sum of e^z over valid non-gold cells) of each span table [S], and the gold scores [G]."""
    factors = tiles.factors(scores)
    value_S: Tensor = _TableSums.apply(_layout(scores, gold), False, *factors)
    return value_S, _gold_scores(factors, gold)


def _gold_scores(factors: Factors, gold: Gold) -> Tensor:
    """Compute the scores of the gold cells [G] from their gathered factors."""
    table_G, row_G, column_G = gold.table_G, gold.token_G + gold.start_G, gold.token_G + gold.end_G
    mixed_Gd = torch.addcmul(factors.shift_Sd[table_G], factors.bilinear_Nd[row_G], factors.scale_Sd[table_G])
    linear_Gd = factors.query_Nd[row_G] * factors.weight_Sd[table_G]
    return (mixed_Gd * factors.key_Nd[column_G] + linear_Gd).sum(-1) + factors.bias


class Blocks(NamedTuple):
    """Sizes of a block of cells: its rows, its columns, its columns in _column_gradients, and the warps that
    compute it."""

    rows: int
    columns: int
    few_columns: int
    warps: int


def blocks_of(width: int, *, half: bool) -> Blocks:
    """Return the sizes of blocks that leave registers for the gradients of a table's width.

    Of fifteen sizes in bfloat16, an H200 took the least time with these at a width of 128 and 512 tokens.
    """
    if half:
        return Blocks(64, 64, 64, 4) if width <= 128 else Blocks(32, 64, 32, 8)
    return Blocks(16, 64, 32 if width <= 128 else 16, 8)


class _Layout(NamedTuple):
    """Positions of tables, texts and gold cells, for the kernels."""

    half: bool  # multiply in bfloat16
    size: Blocks
    table_S4: Tensor  # int32: first token, tokens, triangle, text
    text_P4: Tensor  # int32: first token, tokens, first table, tables
    gold_G2: Tensor  # int32: start and end, sorted by table and start
    first_gold: Tensor  # int32 [S * R + 1]: index of the first gold cell of each table's block of rows
    blocks: int  # R


def _layout(scores: Scores, gold: Gold) -> _Layout:
    groups, device, half = scores.groups, scores.bias.device, scores.key_Nd.dtype == torch.bfloat16
    size = blocks_of(scores.key_Nd.shape[1], half=half)
    # a text's triangles and rectangles follow each other
    first_of = [not index or groups[index - 1].token != group.token for index, group in enumerate(groups)]
    group_P4 = np.array([(group.token, group.tokens, group.table, group.tables) for group in groups], np.int32)
    text_P = np.cumsum(first_of, dtype=np.int32) - 1
    place = np.column_stack([group_P4[:, :2], [group.triangle for group in groups], text_P])
    starts = np.flatnonzero(first_of)
    texts = np.column_stack([group_P4[starts, :3], np.add.reduceat(group_P4[:, 3], starts)])
    blocks = triton.cdiv(int(group_P4[:, 1].max()), size.rows)
    order = torch.argsort(gold.table_G * (blocks * size.rows) + gold.start_G)
    block_G = (gold.table_G * blocks + gold.start_G // size.rows)[order]
    bounds = torch.arange(len(scores.table_S) * blocks + 1, device=device)
    return _Layout(
        half,
        size,
        _moved(place.repeat(group_P4[:, 3], axis=0), device),
        _moved(texts, device),
        torch.stack([gold.start_G, gold.end_G], 1)[order].to(torch.int32),
        torch.searchsorted(block_G, bounds).to(torch.int32),
        blocks,
    )


def _moved(rows: np.ndarray, device: torch.device) -> Tensor:
    """Copy rows to the device without waiting for it."""
    there = torch.from_numpy(rows.astype(np.int32))
    return (there.pin_memory() if device.type == "cuda" else there).to(device, non_blocking=True)


class _TableSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layout: _Layout, softplus: bool, *tensors: Tensor) -> Tensor:
        factors = Factors(*(tensor.contiguous() for tensor in tensors))
        if layout.half:
            factors = factors._replace(key_Nd=factors.key_Nd.bfloat16())  # what the kernels multiply with
        part_SR = factors.bias.new_empty(len(layout.table_S4), layout.blocks)
        linear_SX = factors.bias.new_empty(len(layout.table_S4), layout.blocks * layout.size.rows)
        width = factors.query_Nd.shape[1]
        _table_sums[part_SR.shape](
            *factors, layout.table_S4, layout.gold_G2, layout.first_gold, part_SR, linear_SX,
            layout.blocks, width, _power_of_2(width), softplus, layout.size.rows, layout.size.columns,
            num_warps=layout.size.warps, num_stages=STAGES,
        )  # fmt: skip
        if softplus:
            value_S = part_SR.sum(1)
        else:
            value_S = torch.logaddexp(part_SR.logsumexp(1), torch.zeros_like(part_SR[:, 0]))
        ctx.layout, ctx.softplus = layout, softplus
        ctx.save_for_backward(value_S, linear_SX, *factors)
        return value_S

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        value_S, linear_SX, *tensors = ctx.saved_tensors
        factors, layout, upstream_S = Factors(*tensors), ctx.layout, grads[0].contiguous()
        texts, rows, width = len(layout.text_P4), layout.size.rows, factors.query_Nd.shape[1]
        query_Nd, bilinear_Nd, key_Nd = (torch.zeros_like(t, dtype=torch.float32) for t in factors[:3])
        part_SR3d = torch.zeros(len(value_S), layout.blocks, 3, width, dtype=torch.float32, device=value_S.device)
        bias_SR = torch.zeros_like(part_SR3d[:, :, 0, 0])
        of_cells = (
            *factors[1:5], linear_SX, layout.table_S4, layout.text_P4, layout.gold_G2, layout.first_gold,
            value_S, upstream_S,
        )  # fmt: skip
        sizes = (layout.blocks, width, _power_of_2(width), ctx.softplus, rows)
        _row_gradients[texts, layout.blocks](
            *of_cells, factors.query_Nd, factors.weight_Sd, query_Nd, bilinear_Nd, part_SR3d, bias_SR,
            *sizes, layout.size.columns, num_warps=layout.size.warps, num_stages=STAGES,
        )  # fmt: skip
        few = layout.size.few_columns
        _column_gradients[texts, triton.cdiv(layout.blocks * rows, few)](
            *of_cells, key_Nd, *sizes, few, num_warps=layout.size.warps, num_stages=STAGES
        )
        scale_Sd, shift_Sd, weight_Sd = part_SR3d.sum(1).unbind(1)
        return (None, None, query_Nd, bilinear_Nd, key_Nd, scale_Sd, shift_Sd, weight_Sd, bias_SR.sum())


def _power_of_2(width: int) -> int:
    return max(16, int(triton.next_power_of_2(width)))


@triton.jit
def _rows(pointer, first, row, inside, width, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Load rows first + row... of a matrix of `width` columns; 0 outside it."""
    r = row + tl.arange(0, HEIGHT)
    c = tl.arange(0, WIDTH)
    mask = (r < inside)[:, None] & (c < width)[None, :]
    return tl.load(pointer + (first + r)[:, None] * width + c[None, :], mask=mask, other=0.0)


@triton.jit
def _vector(pointer, row, width, WIDTH: tl.constexpr):
    c = tl.arange(0, WIDTH)
    return tl.load(pointer + row * width + c, mask=c < width, other=0.0)


@triton.jit
def _scores(
    mixed, linear, key, row, column, tokens, triangle, gold, first_gold, last_gold,
    HEIGHT: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute a block of scores; invalid cells and gold cells are -inf."""
    r = row + tl.arange(0, HEIGHT)
    c = column + tl.arange(0, COLUMNS)
    z = tl.dot(mixed.to(key.dtype), tl.trans(key), input_precision="tf32x3") + linear[:, None]
    valid = (r < tokens)[:, None] & (c < tokens)[None, :] & ((r[:, None] <= c[None, :]) | (triangle == 0))
    z = tl.where(valid, z, float("-inf"))
    for g in range(first_gold, last_gold):
        start = tl.load(gold + 2 * g)
        end = tl.load(gold + 2 * g + 1)
        z = tl.where((r == start)[:, None] & (c == end)[None, :], float("-inf"), z)
    return z


@triton.jit
def _slope(z, value, upstream, SOFTPLUS: tl.constexpr):
    """Return the derivative of a table's sum with respect to its scores, times the upstream gradient."""
    if SOFTPLUS:
        return upstream * tl.sigmoid(z)
    return upstream * tl.exp(z - value)


@triton.jit(do_not_specialize=VARYING)
def _table_sums(
    query, bilinear, key, scale, shift, weight, bias, tables, gold, first_gold, out, linears,
    blocks, width, WIDTH: tl.constexpr, SOFTPLUS: tl.constexpr, HEIGHT: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Sum log(1 + e^z) over a table's block of rows, or take the log of the sum of e^z."""
    table = tl.program_id(0)
    block = tl.program_id(1)
    token = tl.load(tables + 4 * table)
    tokens = tl.load(tables + 4 * table + 1)
    triangle = tl.load(tables + 4 * table + 2)
    row = block * HEIGHT
    q = _rows(query, token, row, tokens, width, HEIGHT, WIDTH)
    b = _rows(bilinear, token, row, tokens, width, HEIGHT, WIDTH)
    mixed = b * _vector(scale, table, width, WIDTH)[None, :] + _vector(shift, table, width, WIDTH)[None, :]
    linear = tl.sum(q * _vector(weight, table, width, WIDTH)[None, :], 1) + tl.load(bias)
    tl.store(linears + (table * blocks + block) * HEIGHT + tl.arange(0, HEIGHT), linear)
    first = tl.load(first_gold + table * blocks + block)
    last = tl.load(first_gold + table * blocks + block + 1)
    begin = tl.where(triangle != 0, row, 0)
    total = tl.zeros([HEIGHT], tl.float32)
    most = tl.zeros([HEIGHT], tl.float32)  # running maximum, at least 0, the threshold's score
    for column in range(begin, tl.where(row < tokens, tokens, begin), COLUMNS):
        k = _rows(key, token, column, tokens, width, COLUMNS, WIDTH)
        z = _scores(mixed, linear, k, row, column, tokens, triangle, gold, first, last, HEIGHT, COLUMNS)
        if SOFTPLUS:
            small = tl.exp(-tl.abs(z))
            # log(1 + small): its series where the sum's rounding would matter
            series = small * (1.0 - small * (0.5 - small * (1.0 / 3.0)))
            log1p = tl.where(small < 0.01, series, tl.log(1.0 + small))
            total += tl.sum(tl.maximum(z, 0.0) + log1p, 1)
        else:
            new = tl.maximum(most, tl.max(z, 1))
            total = total * tl.exp(most - new) + tl.sum(tl.exp(z - new[:, None]), 1)
            most = new
    if SOFTPLUS:
        tl.store(out + table * blocks + block, tl.sum(total, 0))
    else:
        best = tl.max(most, 0)
        tl.store(out + table * blocks + block, best + tl.log(tl.sum(total * tl.exp(most - best), 0)))


@triton.jit(do_not_specialize=VARYING)
def _row_gradients(
    bilinear, key, scale, shift, linears, tables, texts, gold, first_gold, values, upstreams,
    query, weight, d_query, d_bilinear, d_tables, d_bias,
    blocks, width, WIDTH: tl.constexpr, SOFTPLUS: tl.constexpr, HEIGHT: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    text = tl.program_id(0)
    block = tl.program_id(1)
    token = tl.load(texts + 4 * text)
    tokens = tl.load(texts + 4 * text + 1)
    first_table = tl.load(texts + 4 * text + 2)
    last_table = first_table + tl.load(texts + 4 * text + 3)
    row = block * HEIGHT
    sum_b = tl.zeros([HEIGHT, WIDTH], tl.float32)
    sum_q = tl.zeros([HEIGHT, WIDTH], tl.float32)
    c = tl.arange(0, WIDTH)
    for table in range(first_table, tl.where(row < tokens, last_table, first_table)):
        triangle = tl.load(tables + 4 * table + 2)
        value = tl.load(values + table)
        upstream = tl.load(upstreams + table)
        a = _vector(scale, table, width, WIDTH)
        b = _rows(bilinear, token, row, tokens, width, HEIGHT, WIDTH)
        mixed = b * a[None, :] + _vector(shift, table, width, WIDTH)[None, :]
        linear = tl.load(linears + (table * blocks + block) * HEIGHT + tl.arange(0, HEIGHT))
        first = tl.load(first_gold + table * blocks + block)
        last = tl.load(first_gold + table * blocks + block + 1)
        d_mixed = tl.zeros([HEIGHT, WIDTH], tl.float32)
        d_linear = tl.zeros([HEIGHT], tl.float32)
        begin = tl.where(triangle != 0, row, 0)
        for column in range(begin, tokens, COLUMNS):
            k = _rows(key, token, column, tokens, width, COLUMNS, WIDTH)
            z = _scores(mixed, linear, k, row, column, tokens, triangle, gold, first, last, HEIGHT, COLUMNS)
            slope = _slope(z, value, upstream, SOFTPLUS)
            d_mixed = tl.dot(slope.to(k.dtype), k, d_mixed, input_precision="tf32x3")
            d_linear += tl.sum(slope, 1)
        sum_b += d_mixed * a[None, :]
        sum_q += d_linear[:, None] * _vector(weight, table, width, WIDTH)[None, :]
        # load again, to free the registers during the loop
        b = _rows(bilinear, token, row, tokens, width, HEIGHT, WIDTH)
        q = _rows(query, token, row, tokens, width, HEIGHT, WIDTH)
        part = d_tables + (table * blocks + block) * 3 * width
        tl.store(part + c, tl.sum(d_mixed * b, 0), mask=c < width)
        tl.store(part + width + c, tl.sum(d_mixed, 0), mask=c < width)
        tl.store(part + 2 * width + c, tl.sum(d_linear[:, None] * q, 0), mask=c < width)
        tl.store(d_bias + table * blocks + block, tl.sum(d_linear, 0))
    r = row + tl.arange(0, HEIGHT)
    at = (token + r)[:, None] * width + c[None, :]
    mask = (r < tokens)[:, None] & (c < width)[None, :]
    tl.store(d_bilinear + at, sum_b, mask=mask)
    tl.store(d_query + at, sum_q, mask=mask)


@triton.jit(do_not_specialize=VARYING)
def _column_gradients(
    bilinear, key, scale, shift, linears, tables, texts, gold, first_gold, values, upstreams, d_key,
    blocks, width, WIDTH: tl.constexpr, SOFTPLUS: tl.constexpr, HEIGHT: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    text = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS
    token = tl.load(texts + 4 * text)
    tokens = tl.load(texts + 4 * text + 1)
    first_table = tl.load(texts + 4 * text + 2)
    last_table = first_table + tl.load(texts + 4 * text + 3)
    k = _rows(key, token, column, tokens, width, COLUMNS, WIDTH)
    total = tl.zeros([COLUMNS, WIDTH], tl.float32)
    for table in range(first_table, tl.where(column < tokens, last_table, first_table)):
        triangle = tl.load(tables + 4 * table + 2)
        value = tl.load(values + table)
        upstream = tl.load(upstreams + table)
        a = _vector(scale, table, width, WIDTH)
        s = _vector(shift, table, width, WIDTH)
        end = tl.where(triangle != 0, tl.minimum(column + COLUMNS, tokens), tokens)
        for row in range(0, end, HEIGHT):
            mixed = _rows(bilinear, token, row, tokens, width, HEIGHT, WIDTH) * a[None, :] + s[None, :]
            linear = tl.load(linears + table * blocks * HEIGHT + row + tl.arange(0, HEIGHT))
            first = tl.load(first_gold + table * blocks + row // HEIGHT)
            last = tl.load(first_gold + table * blocks + row // HEIGHT + 1)
            z = _scores(mixed, linear, k, row, column, tokens, triangle, gold, first, last, HEIGHT, COLUMNS)
            slope = _slope(z, value, upstream, SOFTPLUS)
            total = tl.dot(tl.trans(slope).to(k.dtype), mixed.to(k.dtype), total, input_precision="tf32x3")
    c = tl.arange(0, WIDTH)
    r = column + tl.arange(0, COLUMNS)
    mask = (r < tokens)[:, None] & (c < width)[None, :]
    tl.store(d_key + (token + r)[:, None] * width + c[None, :], total, mask=mask)
