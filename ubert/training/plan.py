"""Which rows make up which global batch: a function of the shards, the seed and the epoch alone.

Every epoch shows each copy of each row once, in the same number of batches. Rows of about one length share a
bucket; an epoch shuffles the rows of each bucket, cuts it into batches, and shuffles the batches.

Shapes: N rows, P prompts, M copies of rows in an epoch, S batches (steps) of an epoch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ubert.schema.errors import UserError
from ubert.schema.recipe import Recipe
from ubert.training.shards import Shards

Longs = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

_MASK = 2**64 - 1
NARROW = 0.9  # rows share a bucket down to this part of its longest ...
_ROWS, _BATCHES, CATEGORIES = 1, 2, 3  # ... what a key is drawn for


def keys(numbers: npt.ArrayLike, *of: int) -> Keys:
    """A uniform 64-bit key for each number, keyed by `of`: the mixer of SplitMix64 (Steele, Lea and Flood, Fast
    Splittable Pseudorandom Number Generators, figure 16), folded over the parts."""
    state = 0
    for part in of:
        state = _mixed(state + part)
    key: Keys = _mixed(_mixed(np.asarray(numbers, np.uint64)) + state)
    return key


def _mixed(x: Any) -> Any:
    """Of a Python integer or of an array of uint64."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


class Plan:
    """The batches of all epochs. `steps` of an epoch; `smallest`: fewest rows of a batch.

    Raises:
        UserError: a row alone is larger than a batch or a forward pass may be, or than the encoder takes.
    """

    def __init__(self, shards: Shards, recipe: Recipe, most_tokens: int) -> None:
        length_N, pieces_N = sizes(shards, recipe, most_tokens)
        _check_sizes(length_N, pieces_N, shards, recipe)
        self.seed = recipe.seed
        rows_M = np.repeat(np.arange(len(shards), dtype=np.int64), shards.copies_N)
        self.rows_M = rows_M[np.argsort(-length_N[rows_M], kind="stable")]
        self.buckets, self.starts = _cut(length_N[self.rows_M], pieces_N[self.rows_M], recipe.tokens_per_batch)
        self.steps = len(self.starts) - 1
        self.smallest = int(np.diff(self.starts).min())

    def epoch(self, epoch: int) -> tuple[Longs, Longs]:
        """The order of one epoch: `copy_M`, indices into `rows_M`, and the order of the batches [S]. Batch b is
        copy_M[starts[b] : starts[b + 1]]."""
        key_M = keys(np.arange(len(self.rows_M)), self.seed, epoch, _ROWS)
        copy_M = np.concatenate(
            [start + np.argsort(key_M[start:stop], kind="stable") for start, stop in self.buckets]
        )
        batches_S = np.argsort(keys(np.arange(self.steps), self.seed, epoch, _BATCHES), kind="stable")
        return copy_M, batches_S


def sizes(shards: Shards, recipe: Recipe, most_tokens: int) -> tuple[Longs, Longs]:
    """Bounds of each row's pieces: tokens of the longest, and their number. Exact where all candidate categories
    of a row fit into one piece.

    Raises:
        UserError: a row's text and one of its categories are more than `most_tokens` together.
    """
    count_P, total_P, widest_P = _prompts(shards, recipe.categories_per_piece)
    instruction_P = np.diff(shards.words.offsets)[shards.instruction_P]
    prompt_N = shards.prompt_N
    base_N = instruction_P[prompt_N].astype(np.int64) + shards.length_N + 4  # [CLS] t [SEP] ... [SEP] text [SEP]
    room_N = most_tokens - base_N
    widest_N = widest_P[prompt_N]
    if (over := np.flatnonzero(widest_N > room_N)).size:
        row = int(over[0])
        raise UserError(
            f"record {shards.record_id(row)}: a text of {shards.length_N[row]} tokens and a category of "
            f"{widest_N[row] - 1} don't fit into the encoder's {most_tokens} positions; shard with max_tokens "
            f"at most {shards.length_N[row] + room_N[row] - widest_N[row]}"
        )
    count_N = np.maximum(
        count_P[prompt_N], np.minimum(shards.gold_N, np.diff(shards.categories.offsets)[prompt_N])
    )
    if recipe.layout == "stacked":
        return base_N + widest_N, np.maximum(count_N, 1)
    total_N, by_count_N = total_P[prompt_N], (count_N - 1) // recipe.categories_per_piece
    by_room_N = np.where(by_count_N > 0, count_N * widest_N, total_N) // (room_N - widest_N + 1)
    pieces_N = 1 + by_count_N + np.where(total_N > room_N, by_room_N, 0)
    return base_N + np.minimum(total_N, room_N), pieces_N


def _prompts(shards: Shards, most: int) -> tuple[Longs, Longs, Longs]:
    """Of each prompt: categories of one example, at most `most`; tokens of that many of its longest, markers
    included; tokens of the longest."""
    size = np.diff(shards.words.offsets)[shards.categories.values].astype(np.int64) + 1
    offsets = shards.categories.offsets
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.lexsort((-size, owner))
    rank = np.arange(len(size)) - offsets[owner]
    size = size[order]
    total_P = np.bincount(owner, weights=size * (rank < most), minlength=len(offsets) - 1).astype(np.int64)
    widest_P = np.zeros(len(offsets) - 1, np.int64)
    widest_P[owner[rank == 0]] = size[rank == 0]
    return np.minimum(np.diff(offsets), most).astype(np.int64), total_P, widest_P


def _cut(length_M: Longs, pieces_M: Longs, tokens: int) -> tuple[list[tuple[int, int]], Longs]:
    """Buckets of copies sorted longest first, and the starts [S + 1] of their batches.

    A bucket has enough copies for a batch, and none that is much shorter than its longest. Its batches have the
    same number of copies, give or take one, and none has more than `tokens` padded tokens.
    """
    shortness_M = -length_M
    buckets: list[tuple[int, int]] = []
    starts: list[Longs] = []
    start, total = 0, len(length_M)

    def most(stop: int) -> int:
        return max(1, int(tokens // (length_M[start] * pieces_M[start:stop].max())))

    while start < total:
        narrow = int(np.searchsorted(shortness_M, NARROW * shortness_M[start], side="right"))
        stop = max(narrow, start + most(narrow))
        if total - stop < most(narrow):
            stop = total
        batches = -(-(stop - start) // most(stop))
        starts.append(start + np.arange(batches) * (stop - start) // batches)
        buckets.append((start, stop))
        start = stop
    return buckets, np.append(np.concatenate(starts), total)


def _check_sizes(length_N: Longs, pieces_N: Longs, shards: Shards, recipe: Recipe) -> None:
    cost_N = length_N * pieces_N
    row = int(cost_N.argmax())
    for name in ("tokens_per_batch", "tokens_per_step"):
        if cost_N[row] > getattr(recipe, name):
            raise UserError(
                f"recipe {recipe.name}: {name} is {getattr(recipe, name)}, but record {shards.record_id(row)} "
                f"alone takes up to {cost_N[row]} ({pieces_N[row]} sequences of {length_N[row]} tokens); raise it "
                "to that, or lower categories_per_piece or max_tokens"
            )
