"""Score the categories and cells of examples with the structure table, in batches of similar length.

Shapes: T tables of a batch, N cells of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil

import numpy as np
import torch

from ubert.encoder.ragged import Ids
from ubert.model.ubert import UbertModel
from ubert.objectives import Cells, Scored
from ubert.objectives import Scores as Logits
from ubert.structure import cells
from ubert.structure.batch import Batch, Example, Region, Special, collate, pieces
from ubert.structure.structure_table import Scores

MOST_CELLS = 1 << 14  # per table and window; a trained model predicts far fewer
WIDER = 1.5
"""A piece has at most this many times the categories of a training piece. A larger piece saves encoding the text
again, and its candidates compare better, but far from what training has seen it finds less (docs/results.md)."""
NO_ANSWER = Region.ANCHOR | Region.TRIANGLE
"""Region of a table whose best cell is compared with its anchor, even if both are below the threshold."""


@torch.inference_mode()
def score(
    model: UbertModel,
    special: Special,
    examples: Sequence[Example],
    *,
    threshold: float,
    owned: Sequence[tuple[int, int]] | None = None,
    batch_tokens: int,
    bf16: bool,
) -> tuple[list[Scored], int]:
    """Score examples, in order; also return the number of tables that reached `MOST_CELLS`.

    Such a table keeps its best cells above the threshold: an untrained model would fill every table.

    Args:
        threshold: logit above which a cell is returned.
        owned: tokens [first, last) of each example in which the best answer to a question has its middle.
        batch_tokens: maximum padded tokens of one forward pass.
        bf16: run under bfloat16 autocast.

    Raises:
        ValueError: an example doesn't fit into a sequence of the encoder.
    """
    device = next(model.parameters()).device
    owned = owned or [(0, len(example.text)) for example in examples]
    anchors = [np.empty(len(example.categories), np.float32) for example in examples]
    found = [(np.empty((0, 4), np.int32), np.empty(0, np.float32))]
    full = 0
    for batch in batches(model, special, examples, batch_tokens):
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            scores = model(batch.to(device))
        example_T, category_T = batch.example_B[batch.piece_T], batch.category_T
        anchor_T = scores.anchor_T.float().cpu()
        for index, category, value in zip(example_T.tolist(), category_T.tolist(), anchor_T.tolist(), strict=True):
            anchors[index][category] = value
        above = cells.above(scores, threshold, MOST_CELLS)
        full += int((torch.bincount(above.table) >= MOST_CELLS).sum())
        found.append(_cells(above, scores, batch, threshold, owned))
    rows_N4 = np.concatenate([rows for rows, _ in found])
    score_N = np.concatenate([values for _, values in found])
    order = np.lexsort(rows_N4.T[::-1])
    rows_N4, score_N = rows_N4[order], score_N[order]
    bounds = np.searchsorted(rows_N4[:, 0], np.arange(len(examples) + 1))
    _, category_N, start_N, end_N = rows_N4.T
    return [
        Scored(anchor, Cells(category_N[a:b], start_N[a:b], end_N[a:b], score_N[a:b]))
        for anchor, (a, b) in zip(anchors, pairwise(bounds), strict=True)
    ], full


def batches(
    model: UbertModel, special: Special, examples: Sequence[Example], batch_tokens: int
) -> Iterator[Batch]:
    """Yield the pieces of all examples in batches of at most `batch_tokens` padded tokens.

    The longest come first, so that running out of memory shows at once.
    """
    every = [
        piece
        for index, example in enumerate(examples)
        for piece in pieces(
            example,
            index,
            model.shape.layout,
            special,
            most_categories=most_categories(model.shape.categories_per_piece, len(example.categories)),
            most_tokens=model.most_tokens,
        )
    ]
    every.sort(key=len, reverse=True)
    first = 0
    while first < len(every):
        last = first + max(1, batch_tokens // len(every[first]))
        yield collate(every[first:last], special, examples=len({piece.example for piece in every[first:last]}))
        first = last


def most_categories(trained: int, count: int) -> int:
    """Return how many of an example's `count` categories a piece has: equally many in as few pieces as `WIDER`
    allows, but one if training pieces had at most one (`trained`)."""
    most = 1 if trained == 1 else int(WIDER * trained)
    return ceil(count / max(1, ceil(count / most)))


def _cells(
    above: cells.Cells, scores: Scores, batch: Batch, threshold: float, owned: Sequence[tuple[int, int]]
) -> tuple[Ids, Logits]:
    """Return (example, category, start, end) [N, 4] and logit [N] of the cells above the threshold.

    A table with region `NO_ANSWER` always returns the best cell with its middle in the example's `owned` part.
    """
    found = [above]
    if bool((batch.region_T == NO_ANSWER).any()):
        middle_T2 = torch.tensor(owned)[batch.example_B[batch.piece_T]].to(scores.anchor_T.device)
        best = cells.top(scores, middle_T2=middle_T2)
        chosen = (best.score <= threshold) & (batch.region_T.to(best.table.device)[best.table] == NO_ANSWER)
        found.append(cells.Cells(*(column[chosen] for column in best)))
    table_N, start_N, end_N, score_N = (torch.cat(columns).cpu() for columns in zip(*found, strict=True))
    example_N, category_N = batch.example_B[batch.piece_T[table_N]], batch.category_T[table_N]
    rows_N4 = torch.stack([example_N, category_N, start_N, end_N], dim=1)
    return rows_N4.numpy().astype(np.int32), score_N.float().numpy()
