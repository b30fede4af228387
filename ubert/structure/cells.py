"""Compute the loss and decode cells without building the structure tables.

`tiles`, or on a GPU the kernels of `triton_cells`, compute the sums over cells. The rest of a loss needs only
the gold cells and one anchor per table.

Shapes: N tokens, d table width, T tables, S span tables, G gold cells; in a group: M tables; in a tile: R
rows, C columns.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ubert.schema.specs.recipe import Loss, LossScale
from ubert.structure import tiles
from ubert.structure.batch import Batch, Region
from ubert.structure.structure_table import Scores
from ubert.structure.tiles import Gold

# Largest table width for the kernels. Compiled for sm_90, they take 96 KiB of shared memory at 256 and 192 KiB at
# 512; many GPUs have 99 KiB.
WIDEST = 256


class Cells(NamedTuple):
    """Scored cells, ordered by table and row: table (of the batch), start and end token (inclusive), score."""

    table: Tensor
    start: Tensor
    end: Tensor
    score: Tensor


def loss(scores: Scores, batch: Batch, scale: LossScale = "sum", kind: Loss = "bce") -> tuple[Tensor, int]:
    """Return the loss summed over a batch's tables, and the number of texts to divide it by.

    A table's valid cells V are its text's triangle or rectangle, and its anchor if its region has one. G are
    the gold cells among them. Prompt and padding cells are excluded. With scores z, a table's loss is

    - bce: sum_V softplus(z) - sum_G z, binary cross-entropy (UBERT, equation 2);
    - zlpr: log(1 + sum_(V - G) e^z) + log(1 + sum_G e^-z), the multi-label softmax with threshold 0 (Su et al.,
      ZLPR, 2022). Each sum covers one table, its anchor included, so the loss doesn't depend on how tables are
      distributed over pieces and batches. For a table with only an anchor it equals bce.

    Args:
        scale: `log` divides a text's sum by log(1 + its valid cells), so that tasks of a mixture weigh about the
            same (MUPPET, section 3.2). `gold` divides it by the text's number of gold cells, if there are several.
            `sum` does not divide it.
    """
    return losses(scores, batch, scale, kind)[0], batch.examples


def losses(scores: Scores, batch: Batch, scale: LossScale = "sum", kind: Loss = "bce") -> tuple[Tensor, Tensor]:
    """Return the same loss, and each table's part of it [T] without gradient.

    The parts are exact only as sums over the tables of a text: one table may hold the part of others of its
    piece.
    """
    weight_T = weights(batch, scale).to(scores.anchor_T)
    with torch.autocast(scores.anchor_T.device.type, enabled=False):
        return _bce(scores, batch, weight_T) if kind == "bce" else _zlpr(scores, batch, weight_T)


def _bce(scores: Scores, batch: Batch, weight_T: Tensor) -> tuple[Tensor, Tensor]:
    loss_T = F.binary_cross_entropy_with_logits(
        scores.anchor_T,
        batch.gold_anchor_T.to(scores.anchor_T),
        weight_T * (batch.region_T & Region.ANCHOR),  # the flag is 1
        reduction="none",
    )
    anchors, part_T = loss_T.sum(), loss_T.detach()
    if not scores.groups:
        return anchors, part_T
    gold, weight_S = _gold(scores, batch), weight_T[scores.table_S]
    cells, part_S = _sums(scores).cross_entropy(scores, gold, weight_S)
    return anchors + cells, part_T.index_add(0, scores.table_S, part_S.to(part_T))


def _zlpr(scores: Scores, batch: Batch, weight_T: Tensor) -> tuple[Tensor, Tensor]:
    anchored_T = (batch.region_T & Region.ANCHOR).bool()
    positive_T = anchored_T & batch.gold_anchor_T.bool()
    none = float("-inf")
    negatives_T = torch.zeros_like(scores.anchor_T)  # log(1 + an empty sum)
    gold_table_G, gold_score_G = batch.gold_cells_G3[:0, 0], scores.anchor_T[:0]
    if scores.groups:
        negatives_S, gold_score_G = _sums(scores).log_partition(scores, _gold(scores, batch))
        negatives_T = negatives_T.index_copy(0, scores.table_S, negatives_S)
        gold_table_G = batch.gold_cells_G3[:, 0]
    negatives_T = torch.logaddexp(negatives_T, scores.anchor_T.masked_fill(positive_T | ~anchored_T, none))
    positives_T = F.softplus((-scores.anchor_T).masked_fill(~positive_T, none))
    loss_T = weight_T * (negatives_T + _log_sum_exp(positives_T, gold_table_G, -gold_score_G))
    return loss_T.sum(), loss_T.detach()


def _log_sum_exp(start_T: Tensor, table_G: Tensor, value_G: Tensor) -> Tensor:
    """Return log(e^start_t + sum of e^value over the values of table t) for each table t."""
    with torch.no_grad():
        most_T = start_T.scatter_reduce(0, table_G, value_G, "amax")
    total_T = (start_T - most_T).exp().index_add(0, table_G, (value_G - most_T[table_G]).exp())
    return most_T + total_T.log()


def _sums(scores: Scores) -> ModuleType:
    """Choose the module for the sums over cells: `triton_cells` on a GPU with Triton, `tiles` elsewhere."""
    fits = scores.query_Nd.shape[1] <= WIDEST
    on_gpu = scores.bias.is_cuda and scores.bias.dtype != torch.float64 and find_spec("triton")
    return import_module("ubert.structure.triton_cells") if on_gpu and fits else tiles


def _gold(scores: Scores, batch: Batch) -> Gold:
    place_T = torch.empty_like(batch.piece_T)
    place_T[scores.table_S] = torch.arange(len(scores.table_S), device=place_T.device)
    table_G, start_G, end_G = batch.gold_cells_G3.unbind(1)
    piece_G = batch.piece_T[table_G]
    return Gold(place_T[table_G], piece_G * batch.ids_BL.shape[1] + batch.text_start_B[piece_G], start_G, end_G)


def weights(batch: Batch, scale: LossScale) -> Tensor:
    """Return the weight [T] of each table's loss, which is equal for all tables of a text."""
    if scale == "sum":
        return torch.ones_like(batch.gold_anchor_T)
    example_T = batch.example_B[batch.piece_T]
    counted_T = _valid_cells(batch) if scale == "log" else _gold_cells(batch)
    counted_E = counted_T.new_zeros(batch.examples).index_add_(0, example_T, counted_T)
    divisor_E = counted_E.double().log1p() if scale == "log" else counted_E.clamp(min=1).double()
    return 1 / divisor_E[example_T]


def _valid_cells(batch: Batch) -> Tensor:
    """Count the valid cells of each table [T]."""
    length_T = batch.text_length_B[batch.piece_T]
    return (
        (batch.region_T & Region.ANCHOR).bool()
        + (batch.region_T & Region.TRIANGLE).bool() * (length_T * (length_T + 1) // 2)
        + (batch.region_T & Region.RECTANGLE).bool() * length_T**2
    )


def _gold_cells(batch: Batch) -> Tensor:
    """Count the gold cells of each table [T], its anchor included."""
    anchors_T = batch.gold_anchor_T.long() * (batch.region_T & Region.ANCHOR)
    table_G = batch.gold_cells_G3[:, 0]
    return anchors_T.index_add(0, table_G, torch.ones_like(table_G))


@torch.no_grad()
def above(
    scores: Scores, threshold: float = 0.0, most: int | None = None, middle_T2: Tensor | None = None
) -> Cells:
    """Find the span tables' valid cells with a score above `threshold`, at most the `most` best of each table.

    With `most`, at most that many cells of each table stay in memory between two tiles.

    Args:
        middle_T2: first and last token (exclusive) of the cells' middles in each table; None: all cells.
    """
    factors = tiles.factors(scores)
    none = scores.table_S.new_empty(0)
    found = [Cells(none, none, none, factors.bias.new_empty(0))]
    for group in scores.groups:
        kept: list[Cells] = []
        for tile in tiles.tiles(factors, group):
            if middle_T2 is not None:
                _leave_out(tile, middle_T2[scores.table_S[group.table : group.table + group.tables]])
            kept.append(_above(tile, threshold, most))
            if most is not None and sum(len(part.table) for part in kept) > most:
                kept = [_best_of_each(_joined(kept), most)]
        found += [part._replace(table=scores.table_S[group.table + part.table]) for part in kept]
    cells = _joined(found)
    return _ordered(cells, (cells.end, cells.start, cells.table))


def top(scores: Scores, most: int = 1, middle_T2: Tensor | None = None) -> Cells:
    """Find the `most` best valid cells of each span table, or all of a smaller one. Ties go to the first cell."""
    return above(scores, float("-inf"), most, middle_T2)


def _leave_out(tile: tiles.Tile, middle_M2: Tensor) -> None:
    """Make the cells of a tile invalid whose middle token is outside of their table's range."""
    rows, columns = tile.scores_MRC.shape[1:]
    row_R = tile.row + torch.arange(rows, device=middle_M2.device)
    column_C = tile.column + torch.arange(columns, device=middle_M2.device)
    middle_RC = (row_R[:, None] + column_C) // 2
    first_M11, last_M11 = middle_M2[:, :, None, None].unbind(1)
    tile.scores_MRC.masked_fill_((middle_RC < first_M11) | (middle_RC >= last_M11), float("-inf"))


def _above(tile: tiles.Tile, threshold: float, most: int | None) -> Cells:
    """Find a tile's cells above the threshold. With `most`, drop those that are not among the best of their
    table in this tile."""
    scores_MRC = tile.scores_MRC
    hit_MRC = scores_MRC > threshold
    if most is not None and int(torch.count_nonzero(hit_MRC)) > most and scores_MRC[0].numel() > most:
        hit_MRC &= scores_MRC >= scores_MRC.flatten(1).topk(most, sorted=False).values.amin(1)[:, None, None]
    at = torch.nonzero(hit_MRC)
    table, row, column = at.unbind(1)
    return Cells(table, row + tile.row, column + tile.column, scores_MRC[table, row, column])


def _best_of_each(cells: Cells, most: int) -> Cells:
    """Keep the `most` best cells of each table. Ties go to the first cell."""
    cells = _ordered(cells, (cells.end, cells.start, -cells.score, cells.table))
    _, count = torch.unique_consecutive(cells.table, return_counts=True)
    first = torch.repeat_interleave(count.cumsum(0) - count, count)
    kept = torch.arange(len(cells.table), device=first.device) - first < most
    return Cells(*(column[kept] for column in cells))


def _ordered(cells: Cells, keys: tuple[Tensor, ...]) -> Cells:
    """Sort by the last key first, then by the one before it, and so on."""
    order = torch.arange(len(cells.table), device=cells.table.device)
    for key in keys:
        order = order[torch.argsort(key[order], stable=True)]
    return Cells(*(column[order] for column in cells))


def _joined(parts: list[Cells]) -> Cells:
    return Cells(*(torch.cat(columns) for columns in zip(*parts, strict=True)))
