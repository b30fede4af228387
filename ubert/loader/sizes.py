"""Which rows an objective trains on, and the sizes of their pieces, by which they are batched.

Shapes: R rows of a part of a file, P prompts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ubert.encoder.ragged import Longs
from ubert.loader.shards import Columns, Shards
from ubert.objectives.spexbert import DECODE
from ubert.schema.errors import UserError
from ubert.schema.record import TASKS, Task
from ubert.schema.specs.recipe import Recipe, Trained
from ubert.spexbert.pointer import Phrases

UNLABELLED: Task = "text"
WRITTEN: Task = "seq2seq"
SizesOf = Callable[[Columns, Longs], tuple[Longs, Longs]]
"""Takes rows [R] of a file; returns the length and the number of sequences of each. Raises `UserError` if a row is
larger than the encoder takes."""


def tasks_of(recipe: Recipe, objective: Trained) -> set[Task]:
    """Return the tasks whose rows an objective trains on."""
    if objective == "structure":
        return {*TASKS} - {UNLABELLED, WRITTEN}
    if objective == "spexbert":
        return {*TASKS} & DECODE.keys()
    if objective == "seq2seq":
        return {WRITTEN}
    return {*TASKS} if recipe.masking.texts == "all" else {UNLABELLED}


class Wanted:
    """Selects the rows that an objective trains on, by their tasks.

    Objectives that read only the text (spanbert, unilm) skip the follow-up questions on its events, so that
    they read each text once.
    """

    def __init__(self, shards: Shards, objective: Trained, tasks: set[Task]) -> None:
        self.tasks = tasks
        self.asks_roles_P = shards.asks_roles_P if objective in ("spanbert", "unilm") else None

    def __call__(self, file: Columns, row_R: Longs) -> Longs:
        """Return the rows to train on, of these rows of a file."""
        wanted_R = np.array([task in self.tasks for task in file.tasks], np.bool_)[file.task[row_R]]
        if self.asks_roles_P is not None:
            wanted_R &= ~self.asks_roles_P[file.prompt[row_R]]
        return row_R[wanted_R]


def sizes_of(
    shards: Shards, recipe: Recipe, most_tokens: int, objective: Trained, phrases: Phrases | None
) -> SizesOf:
    if objective == "structure":
        return Sizes(shards, recipe, most_tokens)
    if objective == "spexbert":
        assert phrases is not None
        return PointerSizes(shards, recipe, most_tokens - len(phrases.no_answer), len(phrases.no_answer))
    return TextSizes(shards, recipe, most_tokens, objective)


class TextSizes:
    """Computes the length of each row's single sequence.

    A sequence is [CLS] text [SEP] for spanbert; unilm adds at most the pair and one more [SEP]. For seq2seq
    it is [CLS] instruction [SEP] (pair [SEP]) text [SEP] target [SEP], and pseudo masks, which share the
    positions of the target's words.
    """

    def __init__(self, shards: Shards, recipe: Recipe, most_tokens: int, objective: Trained) -> None:
        self.shards, self.most_tokens, self.objective = shards, most_tokens, objective
        self.pseudo_masks = objective == "seq2seq" and recipe.pseudo_masks
        self.instruction_P = np.diff(shards.words.offsets)[shards.instruction_P].astype(np.int64)

    def __call__(self, file: Columns, row_R: Longs) -> tuple[Longs, Longs]:
        text_R = file.text.lengths(row_R).astype(np.int64)
        beside_R = self._beside(file, row_R)
        if (over := np.flatnonzero(text_R + beside_R > self.most_tokens)).size:
            text, others = int(text_R[over[0]]), int(beside_R[over[0]])
            record_id = self.shards.record_id(file.first + int(row_R[over[0]]))
            raise UserError(
                f"record {record_id}: a text of {text} tokens and {others} others don't fit into the encoder's "
                f"{self.most_tokens} positions; shard with max_tokens lower by {text + others - self.most_tokens}"
            )
        masks_R = file.target.lengths(row_R).astype(np.int64) if self.pseudo_masks else 0
        return text_R + beside_R + masks_R, np.ones_like(text_R)

    def _beside(self, file: Columns, row_R: Longs) -> Longs:
        """Count the sequence's tokens outside the text."""
        if self.objective == "spanbert":
            return np.full(len(row_R), 2)
        pair_R = file.pair.lengths(row_R).astype(np.int64)
        if self.objective == "unilm":
            return pair_R + 3
        return self.instruction_P[file.prompt[row_R]] + pair_R + (pair_R > 0) + file.target.lengths(row_R) + 4


class Sizes:
    """Computes upper bounds of the length and the number of each row's pieces. In the joint
    layout, they are exact if all candidate categories of a row fit into one piece."""

    def __init__(self, shards: Shards, recipe: Recipe, most_tokens: int) -> None:
        self.shards, self.recipe, self.most_tokens = shards, recipe, most_tokens
        self.count_P, self.total_P, self.widest_P = _prompts(shards, recipe.categories_per_piece)
        self.instruction_P = np.diff(shards.words.offsets)[shards.instruction_P].astype(np.int64)
        self.categories_P = np.diff(shards.categories.offsets).astype(np.int64)

    def __call__(self, file: Columns, row_R: Longs) -> tuple[Longs, Longs]:
        prompt_R = file.prompt[row_R]
        # [CLS] t [SEP] ... [SEP] text [SEP]
        base_R = self.instruction_P[prompt_R] + file.lengths(row_R) + 4
        room_R, widest_R = self.most_tokens - base_R, self.widest_P[prompt_R]
        if (over := np.flatnonzero(widest_R > room_R)).size:
            self._too_long(file.first + int(row_R[over[0]]), int(widest_R[over[0]]), int(room_R[over[0]]))
        gold_R = np.minimum(file.gold(row_R), self.categories_P[prompt_R])
        count_R = np.maximum(self.count_P[prompt_R], gold_R)
        if self.recipe.layout == "stacked":
            length_R, pieces_R = base_R + widest_R, np.maximum(count_R, 1)
        else:
            total_R, by_count_R = self.total_P[prompt_R], (count_R - 1) // self.recipe.categories_per_piece
            many_R = np.where(by_count_R > 0, count_R * widest_R, total_R)
            by_room_R = np.where(total_R > room_R, many_R // (room_R - widest_R + 1), 0)
            length_R, pieces_R = base_R + np.minimum(total_R, room_R), 1 + by_count_R + by_room_R
        return length_R, pieces_R

    def _too_long(self, row: int, widest: int, room: int) -> None:
        file, i = self.shards.find(row)
        length = int(file.lengths(np.array([i]))[0])
        raise UserError(
            f"record {self.shards.record_id(row)}: a text of {length} tokens and a category of {widest - 1} don't "
            f"fit into the encoder's {self.most_tokens} positions; shard with max_tokens at most "
            f"{length + room - widest}"
        )


class PointerSizes:
    """Computes upper bounds of the sizes of each row's sequences for SpEx-BERT.

    All choices form one sequence, which is a token shorter than a joint piece. Each question is a sequence of
    its own, with `no_answer` more tokens.
    """

    def __init__(self, shards: Shards, recipe: Recipe, most_tokens: int, no_answer: int) -> None:
        self.joint, self.no_answer = Sizes(shards, recipe, most_tokens), no_answer

    def __call__(self, file: Columns, row_R: Longs) -> tuple[Longs, Longs]:
        length_R, _ = self.joint(file, row_R)
        questions_R = file.task[row_R] == file.tasks.index("qa")
        asked_R = np.where(questions_R, self.joint.categories_P[file.prompt[row_R]], 1)
        return length_R + self.no_answer * questions_R, asked_R


def _prompts(shards: Shards, most: int) -> tuple[Longs, Longs, Longs]:
    """For each prompt, return three numbers: its categories, at most `most`; the tokens of that many of its
    longest categories, with their markers; and the tokens of the longest."""
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
