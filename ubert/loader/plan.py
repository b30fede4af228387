"""Assign rows to global batches, as a function of only the shards, the seed, the epoch and the step.

Each epoch shows each copy of each row once, in the same number of steps. Copies of similar size form packs,
so that there is little padding. A global batch is a few packs drawn at random. It therefore holds texts of
many lengths and, unless the recipe separates tasks, of many tasks. The phases of the mixture follow one
another in each epoch, and each phase is shuffled by itself. There is no remainder: the packs of a bucket
differ by at most one copy, and the batches of a phase by at most one pack. All draws are keyed permutations,
which give random access to any step. With `batches: cycle`, each corpus has its own epochs. With `shuffle_blocks`,
each phase goes through the blocks of shards (see `blocks.py`) in a new order each epoch, and is shuffled by block.

Shapes: K buckets, G groups (sections; tasks or corpora, if they are separated), M copies of rows, P packs, R
rows of a pack, F phases, S sections (a phase's blocks).
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import pairwise

import numpy as np

from ubert.encoder.ragged import Longs
from ubert.loader.blocks import Blocks
from ubert.loader.index import index
from ubert.loader.permutation import permuted
from ubert.loader.shards import Shards
from ubert.schema.specs.recipe import Recipe, Trained
from ubert.spexbert.pointer import Phrases

# Purposes of the keys of random draws.
_COPIES, _PACKS, _STEPS, CATEGORIES, MASKS, CLOZES, VARIATION, SHARES, _BLOCKS = 1, 2, 3, 4, 5, 6, 7, 8, 9


class Plan:
    """The batches of one objective in all epochs.

    `steps`: steps of an epoch; with `batches: cycle`, until the largest corpus has been shown. `smallest`: a
    lower bound of the rows of a batch. `fewest`: the rows of the smallest group. `key`: the key of all draws.

    Raises:
        UserError: a single row is larger than a batch or a forward pass may be, or than the encoder takes.
    """

    def __init__(
        self,
        shards: Shards,
        recipe: Recipe,
        most_tokens: int,
        objective: Trained = "structure",
        phrases: Phrases | None = None,
    ) -> None:
        found = index(shards, recipe, most_tokens, objective, phrases)
        self.key = int(shards.manifest.fingerprint, 16), recipe.seed
        self.row_M = found.row_M
        self._shards, self._phase_K, self._block_K = shards, found.phase_K, found.block_K
        self.blocks = Blocks(shards.manifest, recipe.shuffle_blocks)
        self._starts = found.start_K.tolist()
        size_K = np.diff(found.start_K)
        packs_K = -(-size_K // found.most_K)
        self._first_packs = np.append(0, np.cumsum(packs_K)).tolist()
        section_K = found.phase_K * self.blocks.count + found.block_K
        changes_K = (np.diff(section_K) != 0) | (np.diff(found.group_K) != 0)
        first_K = np.append(0, np.flatnonzero(changes_K) + 1)  # the first bucket of each group
        self._groups = [self._first_packs[k] for k in first_K] + [self._first_packs[-1]]
        packs_G = np.diff(self._groups)
        self.fewest = int(np.add.reduceat(size_K, first_K).min())
        steps_G = -(-packs_G // recipe.packs_per_batch)
        self._first_steps = np.append(0, np.cumsum(steps_G)).tolist()
        self.steps = self._first_steps[-1]
        first_S = np.flatnonzero(np.diff(section_K[first_K], prepend=-1))  # the first group of each section
        self._sections = [self._first_steps[g] for g in first_S] + [self.steps]
        phase_S, self._block_S = np.divmod(section_K[first_K][first_S], self.blocks.count)
        self._phases = [*np.flatnonzero(np.diff(phase_S, prepend=-1)).tolist(), len(first_S)]
        self._order = lru_cache(maxsize=4)(self._order_of)
        self._cycle = recipe.batches == "cycle"
        if self._cycle:
            self._first_groups = [*first_S.tolist(), len(steps_G)]
            groups_F = np.diff(self._first_groups)
            self._sections = np.append(0, np.cumsum(groups_F * np.maximum.reduceat(steps_G, first_S))).tolist()
            self.steps = self._sections[-1]
        self.smallest = int((size_K // packs_K).min()) * int((packs_G // steps_G).min())

    def packs(self, step: int) -> list[Longs]:
        """Return the copies (indices in `row_M`) of each pack of a step, counted from the start of the run."""
        group, at, epoch = self._cycled(step) if self._cycle else self._shuffled(step)
        first, count = self._groups[group], self._groups[group + 1] - self._groups[group]
        steps = self._first_steps[group + 1] - self._first_steps[group]
        places = np.arange(at * count // steps, (at + 1) * count // steps)
        numbers = first + permuted(places, count, *self.key, epoch, _PACKS, group)
        return [self._pack(number, epoch) for number in numbers.tolist()]

    def epoch(self, step: int) -> int:
        """Return how often the texts of a step have been shown before."""
        return self._cycled(step)[2] if self._cycle else step // self.steps

    def _shuffled(self, step: int) -> tuple[int, int, int]:
        """Return the group of a step, the step's number within the group, and its epoch."""
        visit, at = self._visit(step)
        epoch, place = divmod(visit, len(self._block_S))
        section = self._order(epoch)[0][place]
        start, stop = self._sections[section], self._sections[section + 1]
        # A section may have several groups. Mixed tasks are one group, whose packs are shuffled anyway.
        if len(self._first_steps) > len(self._sections):
            at = int(permuted([at], stop - start, *self.key, epoch, _STEPS, section)[0])
        group = bisect_right(self._first_steps, start + at) - 1
        return group, start + at - self._first_steps[group], epoch

    def visit(self, step: int) -> int:
        """Return the number of sections before that of a step. Without blocks it is 0, as a step may need any
        shard."""
        return self._visit(step)[0] if self.blocks.count > 1 else 0

    def shards_of(self, visit: int) -> list[int]:
        """Return the numbers of the shards that the steps of a visit need."""
        epoch, place = divmod(visit, len(self._block_S))
        return self.blocks.shards(int(self._block_S[self._order(epoch)[0][place]]))

    def _visit(self, step: int) -> tuple[int, int]:
        """Return the number of sections before that of a step, and the step's number within it."""
        epoch, at = divmod(step, self.steps)
        _, starts = self._order(epoch)
        place = bisect_right(starts, at) - 1
        return epoch * len(self._block_S) + place, at - starts[place]

    def _order_of(self, epoch: int) -> tuple[list[int], list[int]]:
        """Return the sections in the order of an epoch, and the first step of each. Phases keep their order."""
        order = [
            first + place
            for phase, (first, end) in enumerate(pairwise(self._phases))
            for place in permuted(range(end - first), end - first, *self.key, epoch, _BLOCKS, phase).tolist()
        ]
        steps = np.diff(self._sections)[order]
        return order, (np.cumsum(steps) - steps).tolist()

    def _cycled(self, step: int) -> tuple[int, int, int]:
        """Return the same as `_shuffled`, for `batches: cycle` (SpEx-BERT, section 5: "we cycle through one
        batch for each of the tasks"). Each group has its own epochs, and a phase ends with the epoch of its
        largest group."""
        epoch, at = divmod(step, self.steps)
        phase = bisect_right(self._sections, at) - 1
        first, count = self._first_groups[phase], self._first_groups[phase + 1] - self._first_groups[phase]
        round_, place = divmod(at - self._sections[phase], count)
        round_ += epoch * (self._sections[phase + 1] - self._sections[phase]) // count
        group = first + place
        of_group, at = divmod(round_, self._first_steps[group + 1] - self._first_steps[group])
        return group, at, of_group

    def _pack(self, number: int, epoch: int) -> Longs:
        bucket = bisect_right(self._first_packs, number) - 1
        packs = self._first_packs[bucket + 1] - self._first_packs[bucket]
        start, size = self._starts[bucket], self._starts[bucket + 1] - self._starts[bucket]
        at = number - self._first_packs[bucket]
        places = np.arange(at * size // packs, (at + 1) * size // packs)
        copies_R: Longs = start + permuted(places, size, *self.key, epoch, _COPIES, bucket)
        return copies_R

    def bucket(self, copy: int) -> int:
        """Return the bucket of a copy. All copies of a pack are from one bucket."""
        return bisect_right(self._starts, copy) - 1

    def occurrence(self, copy: int) -> int:
        """Return the number of this copy among its row's copies in an epoch, from 0.

        Earlier phases come first, and within a phase blocks with a lower number.
        """
        bucket = self.bucket(copy)
        row, first = int(self.row_M[copy]), copy
        while first > self._starts[bucket] and self.row_M[first - 1] == row:
            first -= 1
        file, i = self._shards.find(row)
        phase, block = self._phase_K[bucket], self._block_K[bucket]
        before = self.blocks.before(file.shard, row, int(file.copies[i, phase]), block)
        return copy - first + before + int(file.copies[i, :phase].sum())
