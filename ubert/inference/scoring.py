"""Score the categories and cells of examples with the structure table, in batches of similar length.

Shapes: T tables of a batch, N cells of a batch.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from functools import partial
from itertools import pairwise
from math import ceil
from typing import NamedTuple

import numpy as np
import torch

from ubert.encoder.ragged import Ids
from ubert.inference.rescoring import top_categories, with_rescored_mentions
from ubert.model.ubert import UbertModel
from ubert.objectives import Cells, Scored
from ubert.objectives import Scores as Logits
from ubert.structure import cells
from ubert.structure.batch import Batch, Example, Region, Special, collate, pieces
from ubert.structure.structure_table import Scores

MOST_CELLS = 1 << 14  # per table and window; a trained model predicts far fewer
WIDER = 1.5
"""A piece has at most this many times the categories of a training piece. A larger piece saves encoding the text
again, and more scores are comparable. A piece much larger than those in training finds less (docs/results.md)."""
NO_ANSWER = Region.ANCHOR | Region.TRIANGLE
"""Region of a table whose best cell is compared with its anchor, even if both are below the threshold."""

WITHOUT_FINAL = (Region.ANCHOR, NO_ANSWER)
"""Regions of tables that this module does not rescore. Labels are rescored for the whole text; questions are not,
because each has its own answer."""


class Scan(NamedTuple):
    """Scores of examples, in order. `best` [k]: the score of each category's best cell; -inf if it was not
    requested. `full`: number of tables that reached `MOST_CELLS`."""

    scored: list[Scored]
    best: list[Logits]
    full: int


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

    If the mentions of an example have more categories than a piece, those with the best cells are scored
    again in one piece (`ubert.inference.rescoring`).

    Args:
        threshold: logit above which a cell is returned.
        owned: tokens [first, last) of each example in which the best answer to a question has its middle.
        batch_tokens: maximum padded tokens of one forward pass.
        bf16: run under bfloat16 autocast.

    Raises:
        ValueError: an example doesn't fit into a sequence of the encoder.
    """
    owned = owned or [(0, len(example.text)) for example in examples]
    # A category with a piece of its own needs no second score.
    most = 1 if model.shape.layout == "stacked" else _widest(model.shape.categories_per_piece)
    wide = [
        i
        for i, example in enumerate(examples)
        if len(example.categories) > most > 1 and bool((~np.isin(example.regions, WITHOUT_FINAL)).any())
    ]
    scan = partial(_scan, model, special, threshold=threshold, batch_tokens=batch_tokens, bf16=bf16)
    first = scan(examples, owned, best=set(wide))
    chosen = [top_categories(first.best[i], most) for i in wide]
    rescored = scan([examples[i] for i in wide], [owned[i] for i in wide], best=set(range(len(wide))), only=chosen)
    for i, categories, again, best in zip(wide, chosen, rescored.scored, rescored.best, strict=True):
        least = best[categories].min()
        first.scored[i] = with_rescored_mentions(first.scored[i], categories, again, least, threshold)
    return first.scored, first.full + rescored.full


@torch.inference_mode()
def _scan(
    model: UbertModel,
    special: Special,
    examples: Sequence[Example],
    owned: Sequence[tuple[int, int]],
    *,
    threshold: float,
    batch_tokens: int,
    bf16: bool,
    best: Container[int],
    only: Sequence[Ids] | None = None,
) -> Scan:
    """Score the pieces of examples: all categories, or those in `only`. `best`: examples to find best cells of."""
    device = next(model.parameters()).device
    anchors = [np.full(len(example.categories), -np.inf, np.float32) for example in examples]
    highest = [anchor.copy() for anchor in anchors]
    found = [(np.empty((0, 4), np.int32), np.empty(0, np.float32))]
    full = 0
    for batch in batches(model, special, examples, batch_tokens, only):
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            scores = model(batch.to(device))
        example_T, category_T = batch.example_B[batch.piece_T], batch.category_T
        anchor_T = scores.anchor_T.float().cpu()
        for index, category, value in zip(example_T.tolist(), category_T.tolist(), anchor_T.tolist(), strict=True):
            anchors[index][category] = value
        if any(index in best for index in example_T.unique().tolist()):
            top = cells.top(scores)
            for table, value in zip(top.table.tolist(), top.score.tolist(), strict=True):
                highest[int(example_T[table])][int(category_T[table])] = value
        above = cells.above(scores, threshold, MOST_CELLS)
        full += int((torch.bincount(above.table) >= MOST_CELLS).sum())
        found.append(_cells(above, scores, batch, threshold, owned))
    rows_N4 = np.concatenate([rows for rows, _ in found])
    score_N = np.concatenate([values for _, values in found])
    order = np.lexsort(rows_N4.T[::-1])
    rows_N4, score_N = rows_N4[order], score_N[order]
    bounds = np.searchsorted(rows_N4[:, 0], np.arange(len(examples) + 1))
    _, category_N, start_N, end_N = rows_N4.T
    scored = [
        Scored(anchor, Cells(category_N[a:b], start_N[a:b], end_N[a:b], score_N[a:b]))
        for anchor, (a, b) in zip(anchors, pairwise(bounds), strict=True)
    ]
    return Scan(scored, highest, full)


def batches(
    model: UbertModel,
    special: Special,
    examples: Sequence[Example],
    batch_tokens: int,
    only: Sequence[Ids] | None = None,
) -> Iterator[Batch]:
    """Yield the pieces of all examples in batches of at most `batch_tokens` padded tokens.

    The longest come first, so that running out of memory shows at once.

    Args:
        only: the categories to use of each example; None: all.
    """
    chosen = only or [np.arange(len(example.categories), dtype=np.int32) for example in examples]
    every = [
        piece
        for index, example in enumerate(examples)
        for piece in pieces(
            example,
            index,
            model.shape.layout,
            special,
            most_categories=most_categories(model.shape.categories_per_piece, len(chosen[index])),
            most_tokens=model.most_tokens,
            only=chosen[index],
        )
    ]
    every.sort(key=len, reverse=True)
    first = 0
    while first < len(every):
        last = first + max(1, batch_tokens // len(every[first]))
        yield collate(every[first:last], special, examples=len({piece.example for piece in every[first:last]}))
        first = last


def most_categories(trained: int, count: int) -> int:
    """Return how many of an example's `count` categories a piece has.

    They are spread evenly over as few pieces as `WIDER` allows. If training pieces had one category (`trained`),
    each piece has one.
    """
    return ceil(count / max(1, ceil(count / _widest(trained))))


def _widest(trained: int) -> int:
    """Return the maximum number of categories of a piece."""
    return 1 if trained == 1 else int(WIDER * trained)


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
