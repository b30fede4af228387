"""The error message for a loss or gradient that is not finite: it names the step and the records."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from ubert.loader.loader import Step
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Recipe
from ubert.spexbert.pointer import PointerBatch
from ubert.structure.batch import Batch

NAMED = 5  # most records named in the message


def error(
    recipe: Recipe, index: int, step: Step, device: torch.device, what: str, losses: Sequence[Tensor] = ()
) -> UserError:
    """Return the error for step `index` (from 0). It is the same on all workers, and all of them must call this.

    Args:
        what: what is not finite, and its value.
        losses: the loss of each of this worker's micro-batches. Records of finite ones aren't named.
    """
    rows = _rows(step, losses)
    named = rows[:NAMED]
    mine = torch.tensor([len(rows), *named, *[-1] * (NAMED - len(named))], device=device)
    every = [mine]
    if dist.is_initialized():
        every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(every, mine)
    named = [row for of_rank in every for row in of_rank[1:].tolist() if row >= 0][:NAMED]
    more = sum(int(of_rank[0]) for of_rank in every) - len(named)
    records = ", ".join(map(step.shards.record_id, named)) + (f" and {more} more" if more else "")
    return UserError(
        f"step {index + 1}: {what}, on the records {records}; earlier checkpoints are kept; lower "
        f"learning_rate ({recipe.learning_rate}) and head_learning_rate ({recipe.head_learning_rate}) or set "
        "precision: fp32, and train under another name"
    )


def _rows(step: Step, losses: Sequence[Tensor]) -> list[int]:
    """Return the rows of micro-batches whose loss isn't finite, or all rows if `losses` is empty."""
    if not losses:
        return step.rows
    rows, start = [], 0
    for batch, loss in zip(step.batches, losses, strict=True):
        texts = batch.examples if isinstance(batch, Batch | PointerBatch) else len(batch.ids_BL)
        if not bool(loss.isfinite().all()):
            rows += step.rows[start : start + texts]
        start += texts
    return rows
