"""Training batches from shards: any step of any rank at once, with no state to save.

The order is a function of the shards, the seed, the epoch and the step (see `plan.py`), and the global batches
are the same whatever the number of ranks: rank r of w takes packs r, r + w, ... of each, or rows r, r + w, ...
where the packs don't share out evenly.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ubert.model.batch import Batch, Example, Ids, Piece, Prompt, Special, collate, pieces, prompt
from ubert.schema.errors import UserError
from ubert.schema.recipe import Recipe
from ubert.training.permutation import Longs, keys
from ubert.training.plan import CATEGORIES, Plan
from ubert.training.shards import Shards

PROMPTS_KEPT = 4096
AHEAD = 4  # steps that are prepared in advance


@dataclass(slots=True, frozen=True)
class Step:
    """One rank's part of a global batch: micro-batches of at most `tokens_per_step` padded tokens, the number of
    texts of the whole global batch, and the rows of the shards that this rank's texts are."""

    batches: list[Batch]
    examples: int
    rows: list[int]
    shards: Shards

    @property
    def records(self) -> list[str]:
        """The records that this rank's texts are of."""
        return [self.shards.record_id(row) for row in self.rows]


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
        self._every = np.arange(recipe.categories_per_piece, dtype=np.int32)
        self._joint = lru_cache(PROMPTS_KEPT)(self._joint_prompt)
        self._stacked = lru_cache(PROMPTS_KEPT)(self._stacked_prompts)

    def step(self, i: int) -> Step:
        """This rank's part of step `i` (from 0)."""
        epoch = i // self.steps_per_epoch
        packs = self.plan.packs(i)
        batches: list[Batch] = []
        rows: list[int] = []
        for copies in self.share(packs):
            of_pack = self.plan.row_M[copies].tolist()
            batches += self._batches(of_pack, copies, epoch)
            rows += of_pack
        return Step(batches, sum(map(len, packs)), rows, self.shards)

    def share(self, packs: list[Longs]) -> list[Longs]:
        """This rank's part of the packs of a global batch: whole packs where each rank gets as many, else rows."""
        if len(packs) % self.world == 0:
            return packs[self.rank :: self.world]
        firsts = np.cumsum([0, *map(len, packs)]).tolist()
        mine = [
            copies[(self.rank - first) % self.world :: self.world]
            for first, copies in zip(firsts, packs, strict=False)
        ]
        return [copies for copies in mine if len(copies)]

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
            parts = self._pieces(row, copy, epoch)
            length = max(map(len, parts))
            if waiting and max(longest, length) * (count + len(parts)) > self.recipe.tokens_per_step:
                yield self._collate(waiting)
                waiting, longest, count = [], 0, 0
            waiting.append(parts)
            longest, count = max(longest, length), count + len(parts)
        yield self._collate(waiting)

    def _collate(self, examples: list[list[Piece]]) -> Batch:
        for i, parts in enumerate(examples):
            for piece in parts:
                piece.example = i
        return collate([piece for parts in examples for piece in parts], self.special, len(examples))

    def _pieces(self, row: int, copy: int, epoch: int) -> list[Piece]:
        number, example = self.shards.numbered(row)
        if self.recipe.layout == "stacked":  # each category fits beside the text: the plan has checked it
            prompts = self._stacked(number)
            return [Piece(0, example, prompts[i]) for i in self.categories(example, row, copy, epoch).tolist()]
        most = self.recipe.categories_per_piece
        if len(example.categories) <= most:
            whole = Piece(0, example, self._joint(number))
            if len(whole) <= self.most_tokens:
                return [whole]
        chosen = self.categories(example, row, copy, epoch)
        limits = {"most_categories": most, "most_tokens": self.most_tokens}
        return list(pieces(example, 0, "joint", self.special, **limits, only=chosen))

    def _joint_prompt(self, number: int) -> Prompt:
        """The prompt of all candidate categories."""
        words = self.shards.prompt(number)
        every = np.arange(len(words.categories), dtype=np.int32)
        return prompt(words.instruction, words.categories, every, "joint", self.special)

    def _stacked_prompts(self, number: int) -> list[Prompt]:
        """The prompt of each candidate category."""
        words = self.shards.prompt(number)
        every = np.arange(len(words.categories), dtype=np.int32).reshape(-1, 1)
        return [prompt(words.instruction, words.categories, one, "stacked", self.special) for one in every]

    def categories(self, example: Example, row: int, copy: int, epoch: int) -> Ids:
        """All candidate categories of a row, or the gold ones and a draw of the others: a function of the row, of
        which of its copies this is, and of the epoch."""
        count, most = len(example.categories), self.recipe.categories_per_piece
        if count <= most:
            return self._every[:count]
        gold = np.union1d(example.gold_anchors, example.gold_cells[:, 0])
        first = copy
        while first and self.plan.row_M[first - 1] == row:
            first -= 1
        draw = keys(np.arange(count), *self.plan.key, epoch, CATEGORIES, row, copy - first)
        draw[gold] = 0
        most = max(most, len(gold))
        return np.sort(np.argpartition(draw, most - 1)[:most]).astype(np.int32)
