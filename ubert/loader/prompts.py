"""The prompts of shard rows. A prompt with all candidate categories is built once and cached. If there are
more categories than a piece may have, each epoch draws some of them.

Shapes: R rows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ubert.encoder.ragged import Ids, Longs
from ubert.loader.plan import CATEGORIES, SHARES, VARIATION, Plan
from ubert.loader.shards import Rows, Shards
from ubert.loader.variation import vary
from ubert.schema.keys import keys, uniform
from ubert.schema.specs.recipe import Recipe
from ubert.structure.batch import Prompt, Special, groups, prompt

KEPT = 4096  # prompts in the cache


class RowPrompts(NamedTuple):
    """The prompts of a row's sequences, and the length of the longest."""

    prompts: list[Prompt]
    tokens: int


class Prompts:
    """Prompts for rows of an objective's plan, in sequences of at most `most_tokens`."""

    def __init__(self, shards: Shards, recipe: Recipe, special: Special, most_tokens: int, plan: Plan) -> None:
        self.shards, self.recipe, self.special = shards, recipe, special
        self.most_tokens, self.plan = most_tokens, plan
        self._every = np.arange(recipe.categories_per_piece, dtype=np.int32)
        self._joint = lru_cache(KEPT)(self._joint_prompt)
        self._stacked = lru_cache(KEPT)(self._stacked_prompts)

    def of_rows(self, rows: Rows, row_R: Longs, copy_R: Longs, own_step: int) -> list[RowPrompts]:
        """Return the prompts of each row of a pack, at step `own_step` of its objective.

        A row has one prompt with all its categories if they fit, or else several; `prompts` of the recipe may
        vary them.
        """
        numbers, room_R = rows.prompt.tolist(), (self.most_tokens - rows.behind).tolist()
        epoch, places = self.plan.epoch(own_step), (row_R.tolist(), copy_R.tolist())
        if self.recipe.prompts.varies:
            share = float(uniform([own_step], *self.plan.key, SHARES, self.plan.bucket(int(copy_R[0])))[0])
            columns = zip(numbers, room_R, *places, strict=True)
            return [self._varied(*of_row, epoch, share) for of_row in columns]
        every = map(self._joint, numbers) if self.recipe.layout == "joint" else [None] * len(numbers)
        return [
            whole if whole and whole.tokens <= room else self._chosen(number, room, row, copy, epoch)
            for whole, number, room, row, copy in zip(every, numbers, room_R, *places, strict=True)
        ]

    def _chosen(self, number: int, room: int, row: int, copy: int, epoch: int) -> RowPrompts:
        """Return the prompts for a row's drawn categories, each of at most `room` tokens."""
        chosen = self.categories(row, copy, epoch)
        if self.recipe.layout == "stacked":  # the index has checked that each category fits
            every = self._stacked(number)
            return _row_prompts([every[category] for category in chosen.tolist()])
        instruction, categories, regions, *_ = self.shards.prompt(number)
        found = groups(instruction, categories, chosen, self.recipe.categories_per_piece, room)
        return _row_prompts(
            [prompt(instruction, categories, regions, group, "joint", self.special) for group in found]
        )

    def _varied(self, number: int, room: int, row: int, copy: int, epoch: int, share: float) -> RowPrompts:
        """Return varied prompts of a row. If its paraphrases don't fit, it has the original words."""
        original, example = self.shards.prompt(number), self.shards.example(row)
        gold = np.union1d(example.gold_anchors, example.gold_cells[:, 0])
        most, layout = self.recipe.categories_per_piece, self.recipe.layout
        key = *self.plan.key, VARIATION, epoch, row, self.plan.occurrence(copy)
        instruction, categories, chosen = vary(
            original, gold, most, self.recipe.prompts, self.shards.words, self.shards.others, share, *key
        )
        most = 1 if layout == "stacked" else most
        try:
            found = list(groups(instruction, categories, chosen, most, room))
        except ValueError:  # the index has checked that the original words fit, and others may be longer
            instruction, categories = original.instruction, original.categories
            found = list(groups(instruction, categories, chosen, most, room))
        return _row_prompts(
            [prompt(instruction, categories, original.regions, group, layout, self.special) for group in found]
        )

    def _joint_prompt(self, number: int) -> RowPrompts | None:
        """Return the prompt with all candidate categories, or None if a sequence can't have that many."""
        instruction, categories, regions, *_ = self.shards.prompt(number)
        if len(categories) > self.recipe.categories_per_piece:
            return None
        every = self._every[: len(categories)]
        return _row_prompts([prompt(instruction, categories, regions, every, "joint", self.special)])

    def _stacked_prompts(self, number: int) -> list[Prompt]:
        """Return one prompt for each candidate category."""
        instruction, categories, regions, *_ = self.shards.prompt(number)
        every = np.arange(len(categories), dtype=np.int32).reshape(-1, 1)
        return [prompt(instruction, categories, regions, one, "stacked", self.special) for one in every]

    def categories(self, row: int, copy: int, epoch: int) -> Ids:
        """Return a row's candidate categories; if there are too many, the gold ones and a draw of the others.

        The draw is a function of the row, of which of its copies this is, and of the epoch.
        """
        example = self.shards.example(row)
        count, most = len(example.categories), self.recipe.categories_per_piece
        if count <= most:
            return self._every[:count]
        gold = np.union1d(example.gold_anchors, example.gold_cells[:, 0])
        draw = keys(np.arange(count), *self.plan.key, epoch, CATEGORIES, row, self.plan.occurrence(copy))
        draw[gold] = 0
        most = max(most, len(gold))
        return np.sort(np.argpartition(draw, most - 1)[:most]).astype(np.int32)


def _row_prompts(prompts: list[Prompt]) -> RowPrompts:
    return RowPrompts(prompts, max(len(prompt.ids) for prompt in prompts))
