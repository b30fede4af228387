"""Training batches from shards: any step of any rank at once, with no state to save.

The order is a function of the shards, the seed, the epoch and the step (see `plan.py`), and the global batches are
the same whatever the number of ranks: rank r of w takes rows r, r + w, r + 2w, ... of each.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ubert.model.batch import Batch, Example, Ids, Piece, Prompt, Special, collate, groups, prompt
from ubert.model.batch import piece as piece_of
from ubert.schema.errors import UserError
from ubert.schema.recipe import Recipe
from ubert.training.plan import CATEGORIES, Longs, Plan, keys
from ubert.training.shards import Shards

PROMPTS_KEPT = 4096
AHEAD = 4  # steps that are prepared in advance


class Step(NamedTuple):
    """One rank's part of a global batch: micro-batches of at most `tokens_per_step` padded tokens, the number of
    texts of the whole global batch, and the records that this rank's texts are of."""

    batches: list[Batch]
    examples: int
    records: list[str]


class Loader:
    """Batches of one rank. `total_steps`: of the whole run; `steps_per_epoch`: the same in every epoch.

    Args:
        most_tokens: the encoder's number of positions.

    Raises:
        UserError: a row or the number of ranks doesn't fit the recipe's numbers.
    """

    def __init__(
        self, shards: Shards, recipe: Recipe, special: Special, most_tokens: int, rank: int = 0, world: int = 1
    ) -> None:
        self.shards, self.recipe, self.special, self.most_tokens = shards, recipe, special, most_tokens
        self.rank, self.world = rank, world
        self.plan = Plan(shards, recipe, most_tokens)
        self.steps_per_epoch = self.plan.steps
        if self.plan.smallest < world:
            raise UserError(
                f"recipe {recipe.name}: a global batch has {self.plan.smallest} texts, fewer than the {world} "
                f"workers; raise tokens_per_batch ({recipe.tokens_per_batch}) or use fewer workers"
            )
        epochs = recipe.epochs or 0.0
        self.total_steps = recipe.steps or max(1, math.ceil(epochs * self.steps_per_epoch))
        self._epoch = lru_cache(maxsize=2)(self.plan.epoch)
        self._prompts: dict[tuple[int, int], Prompt] = {}

    def step(self, i: int) -> Step:
        """This rank's part of step `i` (from 0)."""
        epoch, _ = divmod(i, self.steps_per_epoch)
        copies = self.copies(i)
        mine = copies[self.rank :: self.world]
        rows = self.plan.rows_M[mine].tolist()
        batches = list(self._batches(rows, mine, epoch))
        return Step(batches, len(copies), [self.shards.record_id(row) for row in rows])

    def copies(self, i: int) -> Longs:
        """The copies of rows (indices into `plan.rows_M`) of the global batch of step `i`."""
        epoch, at = divmod(i, self.steps_per_epoch)
        copy_M, batches_S = self._epoch(epoch)
        batch = batches_S[at]
        return copy_M[self.plan.starts[batch] : self.plan.starts[batch + 1]]

    def iterate(self, start: int = 0) -> Iterator[Step]:
        """Steps from `start` to the end of the run, prepared ahead by a thread."""
        thread = ThreadPoolExecutor(1, "loader")
        ahead = deque(thread.submit(self.step, i) for i in range(start, min(start + AHEAD, self.total_steps)))
        try:
            for i in range(start + AHEAD, self.total_steps + AHEAD):
                step = ahead.popleft().result()
                if i < self.total_steps:
                    ahead.append(thread.submit(self.step, i))
                yield step
        finally:
            thread.shutdown(cancel_futures=True)

    def _batches(self, rows: list[int], copies: Longs, epoch: int) -> Iterator[Batch]:
        """Micro-batches of this rank's rows, in order."""
        waiting: list[list[Piece]] = []
        longest = count = 0
        for row, copy in zip(rows, copies.tolist(), strict=True):
            pieces = self._pieces(row, copy, epoch)
            length = max(map(len, pieces))
            if waiting and max(longest, length) * (count + len(pieces)) > self.recipe.tokens_per_step:
                yield self._collate(waiting)
                waiting, longest, count = [], 0, 0
            waiting.append(pieces)
            longest, count = max(longest, length), count + len(pieces)
        yield self._collate(waiting)

    def _collate(self, examples: list[list[Piece]]) -> Batch:
        for i, pieces in enumerate(examples):
            for piece in pieces:
                piece.example = i
        return collate([piece for pieces in examples for piece in pieces], self.special, len(examples))

    def _pieces(self, row: int, copy: int, epoch: int) -> list[Piece]:
        example = self.shards.example(row)
        chosen = self.categories(example, copy, epoch)
        most = 1 if self.recipe.layout == "stacked" else self.recipe.categories_per_piece
        room = self.most_tokens - len(example.text) - len(example.pair) - (len(example.pair) > 0) - 1
        number = int(self.shards.prompt_N[row])
        return [
            piece_of(example, 0, self._prompt(example, number, group))
            for group in groups(example.instruction, example.categories, chosen, most, room)
        ]

    def categories(self, example: Example, copy: int, epoch: int) -> Ids:
        """All candidate categories of an example, or the gold ones and a draw of the others."""
        count, most = len(example.categories), self.recipe.categories_per_piece
        if count <= most:
            return np.arange(count, dtype=np.int32)
        gold = np.union1d(example.gold_anchors, example.gold_cells[:, 0])
        draw = keys(np.arange(count), self.plan.seed, epoch, CATEGORIES, copy)
        draw[gold] = 0
        most = max(most, len(gold))
        return np.sort(np.argpartition(draw, most - 1)[:most]).astype(np.int32)

    def _prompt(self, example: Example, number: int, group: Ids) -> Prompt:
        """Prompts that come again are built once: those that take in all categories of their number."""
        if len(group) < len(example.categories) and self.recipe.layout == "joint":
            return prompt(example.instruction, example.categories, group, self.recipe.layout, self.special)
        key = (number, int(group[0]))
        if key not in self._prompts:
            if len(self._prompts) >= PROMPTS_KEPT:
                self._prompts.clear()
            self._prompts[key] = prompt(
                example.instruction, example.categories, group, self.recipe.layout, self.special
            )
        return self._prompts[key]
