"""Two losses that ubert does not have, for `experiments.py`. They replace the loss of the structure table.

- focal: the cross-entropy of each cell times (1 - p)^2, where p is the probability of the right answer (Lin et
  al., Focal Loss for Dense Object Detection, 2017, section 3).
- uncertainty: each kind of text weighs 1 / its mean loss, which is where the learned weights of Kendall et al.
  (Multi-Task Learning Using Uncertainty to Weigh Losses, 2018) have their minimum. A kind is a text with labels,
  mentions or relations.

Shapes: T tables, S span tables, E texts; in a group: M tables, n tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from ubert.schema.specs.recipe import Loss, LossScale
from ubert.structure import cells, tiles
from ubert.structure.batch import Batch, Region
from ubert.structure.structure_table import Scores, at_least_float32

Replaced = Literal["", "focal", "uncertainty"]
SHARPNESS = 2.0  # gamma
MEMORY = 0.98  # of the mean loss of a kind
ordinary, weights_by_scale = cells.losses, cells.weights


def focal(scores: Scores, batch: Batch, scale: LossScale = "sum", kind: Loss = "bce") -> tuple[Tensor, Tensor]:
    weight_T = weights_by_scale(batch, scale).to(scores.anchor_T)
    with torch.autocast(scores.anchor_T.device.type, enabled=False):
        anchored_T = (batch.region_T & Region.ANCHOR).bool()
        part_T = anchored_T * _focal(at_least_float32(scores.anchor_T), batch.gold_anchor_T.bool())
        factors = tiles.factors(scores)
        place_T = torch.full_like(batch.piece_T, -1)
        place_T[scores.table_S] = torch.arange(len(scores.table_S))
        table_G, start_G, end_G = batch.gold_cells_G3.unbind(1)
        for group in scores.groups:
            of_M = slice(group.table, group.table + group.tables)
            gold_Mnn = torch.zeros(group.tables, group.tokens, group.tokens, dtype=torch.bool)
            here_G = (place_T[table_G] >= of_M.start) & (place_T[table_G] < of_M.stop)
            gold_Mnn[place_T[table_G[here_G]] - of_M.start, start_G[here_G], end_G[here_G]] = True
            part_M = part_T.new_zeros(group.tables)
            for tile in tiles.tiles(factors, group):
                rows = slice(tile.row, tile.row + tile.scores_MRC.shape[1])
                part_M = part_M + _focal(tile.scores_MRC, gold_Mnn[:, rows, tile.column :]).sum((1, 2))
            part_T = part_T.index_add(0, scores.table_S[of_M], part_M)
    part_T = part_T * weight_T
    return part_T.sum(), part_T.detach()


def _focal(scores: Tensor, gold: Tensor) -> Tensor:
    wrong = torch.where(gold, -scores, scores).clamp(min=-50)  # cells that don't count have -inf
    return wrong.sigmoid() ** SHARPNESS * F.softplus(wrong)


class Uncertainty:
    """The losses, with each kind of text weighted by the inverse of its mean loss so far."""

    def __init__(self) -> None:
        self.mean: dict[int, float] = {}

    def losses(
        self, scores: Scores, batch: Batch, scale: LossScale = "sum", kind: Loss = "bce"
    ) -> tuple[Tensor, Tensor]:
        example_T = batch.example_B[batch.piece_T]
        kind_E = torch.zeros(batch.examples, dtype=torch.int64).scatter_reduce(
            0, example_T, batch.region_T, "amax"
        )
        with torch.no_grad():
            part_T = ordinary(scores, batch, "sum", kind)[1]
        part_E = torch.zeros(batch.examples).index_add(0, example_T, part_T.float())
        weight_E = torch.zeros(batch.examples, dtype=torch.float64)
        for one in kind_E.unique().tolist():
            now = float(part_E[kind_E == one].mean())
            self.mean[one] = max(1e-3, MEMORY * self.mean.get(one, now) + (1 - MEMORY) * now)
            weight_E[kind_E == one] = 1 / self.mean[one]
        with patch.object(cells, "weights", lambda batch, scale: weight_E[example_T]):
            return ordinary(scores, batch, scale, kind)


@contextmanager
def computed_by(loss: Replaced) -> Iterator[None]:
    """Compute the structure table's loss in another way within the block; an empty string changes nothing."""
    if not loss:
        yield
        return
    replaced = focal if loss == "focal" else Uncertainty().losses
    with patch.object(cells, "losses", replaced):
        yield
