"""Training batches from shards, with random access to any step of any rank, and no state to save.

The order is a function of the shards, the seed, the epoch and the step (see `plan.py`). The global batches
are the same for any number of ranks: rank r of w takes packs r, r + w, ... of each, or, if the packs don't
divide evenly, rows r, r + w, ...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import chain

import numpy as np

from ubert.encoder.ragged import Longs, Ragged
from ubert.loader.masked_texts import masked_texts
from ubert.loader.objective_schedule import ObjectiveSchedule
from ubert.loader.plan import CLOZES, MASKS, Plan
from ubert.loader.prefetch import by_processes, by_thread
from ubert.loader.prompts import Prompts
from ubert.loader.shards import Shards
from ubert.loader.window import Window
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Recipe, Trained
from ubert.spanbert.masked_lm import MaskedBatch, masked_batch
from ubert.spanbert.masking import Words
from ubert.spexbert import pointer
from ubert.spexbert.pointer import NOWHERE, Phrases, Pointed, PointerBatch
from ubert.structure.batch import Batch, Sequences, Special, padded
from ubert.unilm import cloze
from ubert.unilm.cloze import Cloze, ClozeBatch
from ubert.unilm.sequences import SMOOTHING, Symbols, generation, pretraining, pseudo_masked, source_of

AnyBatch = Batch | PointerBatch | MaskedBatch | ClozeBatch


@dataclass(slots=True, frozen=True)
class Step:
    """One rank's part of a global batch, which has a single objective.

    `batches`: micro-batches of at most `tokens_per_step` padded tokens. `examples`: the number of texts in
    the whole global batch. `rows`: the shard rows of this rank's texts. `epoch`: how often these texts have
    been shown before.
    """

    objective: Trained
    batches: list[AnyBatch]
    examples: int
    rows: list[int]
    shards: Shards
    epoch: int

    @property
    def records(self) -> list[str]:
        """The record ids of this rank's texts."""
        return [self.shards.record_id(row) for row in self.rows]

    def pin_memory(self) -> Step:
        """Return the step with its batches in pinned memory, from which copies to a GPU wait for nothing."""
        return replace(self, batches=[batch.pinned() for batch in self.batches])


class Loader:
    """Batches of one rank. `total_steps` counts the whole run; `steps_per_epoch` is the same in every epoch.

    Args:
        most_tokens: the encoder's number of positions.
        words: the tokenizer's properties for masking, if an objective masks.
        phrases: the tokens for SpEx-BERT's sources, if it is an objective.
        pin: pin the batches' memory, so that no step waits for the copy to a GPU.
        processes: how many processes prepare steps in advance, of shards on this disk; with 0, a thread does.

    Raises:
        UserError: a row or the number of ranks doesn't fit the recipe's numbers; an objective has no rows, or rows
            have no objective.
    """

    def __init__(
        self,
        shards: Shards,
        recipe: Recipe,
        special: Special,
        most_tokens: int,
        rank: int = 0,
        world: int = 1,
        words: Words | None = None,
        phrases: Phrases | None = None,
        pin: bool = False,
        processes: int = 0,
    ) -> None:
        self.shards, self.recipe, self.special, self.most_tokens = shards, recipe, special, most_tokens
        self.rank, self.world, self.words, self.phrases = rank, world, words, phrases
        self.pin, self.processes = pin, processes
        self.schedule = ObjectiveSchedule(recipe.objectives)
        self.plans = {name: Plan(shards, recipe, most_tokens, name, phrases) for name in recipe.objectives}
        labelled: Trained = "spexbert" if recipe.points else "structure"
        leading = labelled if labelled in self.plans else next(iter(self.plans))
        self.prompts = Prompts(shards, recipe, special, most_tokens, self.plans[leading])
        self.steps_per_epoch = self.schedule.until(leading, self.plans[leading].steps)
        _check_workers(self.plans.values(), recipe, world)
        epochs = Fraction(str(recipe.epochs or 0))  # as written: as a float, 1.1 times 50 steps is above 55
        self.total_steps = recipe.steps or max(1, math.ceil(epochs * self.steps_per_epoch))

    def step(self, i: int) -> Step:
        """Return this rank's part of step `i` (from 0)."""
        objective, own_step = self.schedule(i)
        plan = self.plans[objective]
        packs = plan.packs(own_step)
        make: dict[Trained, Callable[..., Iterator[AnyBatch]]] = {
            "structure": self._batches,
            "spexbert": self._pointed,
            "spanbert": self._masked,
            "unilm": partial(self._clozes, "unilm"),
            "seq2seq": partial(self._clozes, "seq2seq"),
        }
        batches: list[AnyBatch] = []
        rows: list[int] = []
        for copies in self.share(packs):
            row_R = plan.row_M[copies]
            order = np.argsort(row_R, kind="stable")  # read the rows of a shard together
            mine = row_R[order].astype(np.int64), copies[order], own_step
            batches += make[objective](*mine)
            rows += row_R[order].tolist()
        return Step(objective, batches, sum(map(len, packs)), rows, self.shards, plan.epoch(own_step))

    def share(self, packs: list[Longs]) -> list[Longs]:
        """Return this rank's part of the packs of a global batch: whole packs if they divide evenly among
        ranks, else rows."""
        if len(packs) % self.world == 0:
            return packs[self.rank :: self.world]
        firsts = np.cumsum([0, *map(len, packs)]).tolist()
        mine = [
            copies[(self.rank - first) % self.world :: self.world]
            for first, copies in zip(firsts, packs, strict=False)
        ]
        return [copies for copies in mine if len(copies)]

    def iterate(self, start: int = 0) -> Iterator[Step]:
        """Yield the steps from `start` to the end of the run. A thread or processes prepare them ahead."""
        steps = range(start, self.total_steps)
        window = Window(self.shards, self.plans, self.schedule, self.share, steps, self.steps_per_epoch)

        def made(i: int) -> Step:
            window.enter(i)
            return self.step(i).pin_memory() if self.pin else self.step(i)

        ahead = by_processes(self, steps, self.processes) if self.processes else by_thread(made, steps)
        with closing(window), closing(ahead):
            yield from ahead

    def _batches(self, row_R: Longs, copy_R: Longs, own_step: int) -> Iterator[Batch]:
        """Yield micro-batches of this rank's rows of a pack, in order."""
        rows = self.shards.rows(row_R)
        row_prompts = self.prompts.of_rows(rows, row_R, copy_R, own_step)
        count_R = np.array([len(of_row.prompts) for of_row in row_prompts])
        lengths = (rows.behind + [of_row.tokens for of_row in row_prompts]).tolist()
        for start, stop in cuts(lengths, count_R.tolist(), self.recipe.tokens_per_step):
            times, examples = count_R[start:stop], np.arange(stop - start)
            columns = Sequences(
                prompt=list(chain.from_iterable(of_row.prompts for of_row in row_prompts[start:stop])),
                text=_repeated(rows.text.part(start, stop), times),
                pair=_repeated(rows.pair.part(start, stop), times),
                example=np.repeat(examples, times),
                examples=examples,
                gold_anchors=rows.anchors.part(start, stop),
                gold_cells=rows.cells.part(start, stop),
            )
            yield padded(columns, self.special, stop - start)

    def _pointed(self, row_R: Longs, copy_R: Longs, own_step: int) -> Iterator[PointerBatch]:
        """Yield micro-batches of this rank's rows of a pack, as sources to point into."""
        epoch = self.plans["spexbert"].epoch(own_step)
        found = [
            self._sources(row, copy, epoch) for row, copy in zip(row_R.tolist(), copy_R.tolist(), strict=True)
        ]
        lengths = [max(len(one.ids) for one in of_row) for of_row in found]
        for start, stop in cuts(lengths, list(map(len, found)), self.recipe.tokens_per_step):
            yield pointer.padded(list(chain.from_iterable(found[start:stop])), self.special, stop - start)

    def _sources(self, row: int, copy: int, epoch: int) -> list[Pointed]:
        """Return the sequences of a row. Sequences without a right choice teach nothing and are dropped, but
        each row keeps at least one sequence, so that no batch is empty."""
        assert self.phrases is not None
        found = list(
            pointer.sequences(
                self.shards.example(row),
                self.prompts.categories(row, copy, epoch),
                self.phrases,
                self.special,
                most_categories=self.recipe.categories_per_piece,
                most_tokens=self.most_tokens,
            )
        )
        return [one for one in found if one.gold[0] != NOWHERE] or found[:1]

    def _masked(self, row_R: Longs, copy_R: Longs, own_step: int) -> Iterator[MaskedBatch]:
        """Yield micro-batches of this rank's rows of a pack, masked."""
        assert self.words is not None
        plan, masking = self.plans["spanbert"], self.recipe.masking
        texts = list(
            masked_texts(self.shards, row_R, copy_R, self.words, masking, *plan.key, plan.epoch(own_step), MASKS)
        )
        for start, stop in cuts(
            [len(text.ids) + 2 for text in texts], [1] * len(texts), self.recipe.tokens_per_step
        ):
            yield masked_batch(texts[start:stop], self.special)

    def _clozes(self, objective: Trained, row_R: Longs, copy_R: Longs, own_step: int) -> Iterator[ClozeBatch]:
        """Yield micro-batches of this rank's rows of a pack, as clozes."""
        assert self.words is not None
        key = *self.plans[objective].key, self.plans[objective].epoch(own_step), CLOZES
        symbols = Symbols(self.special.cls, self.special.sep, self.words.mask, len(self.words.starts_V))
        items = list(self._hidden(objective, row_R, copy_R, symbols, *key))
        smoothing = SMOOTHING if objective == "seq2seq" else 0.0
        for start, stop in cuts([len(item.ids) for item in items], [1] * len(items), self.recipe.tokens_per_step):
            yield cloze.padded(items[start:stop], self.special.pad, smoothing)

    def _hidden(
        self, objective: Trained, row_R: Longs, copy_R: Longs, symbols: Symbols, *key: int
    ) -> Iterator[Cloze]:
        """Hide words of rows, in ascending order: of the target for seq2seq, of the text for unilm."""
        rows = self.shards.rows(row_R)
        columns = zip(rows.prompt.tolist(), rows.text, rows.pair, rows.target, copy_R.tolist(), strict=True)
        for prompt, text, pair, target, copy in columns:
            if objective == "unilm":
                yield pretraining(text, pair, symbols, *key, copy)
                continue
            source = source_of(self.shards.prompt(prompt).instruction, pair, text, self.special)
            if self.recipe.pseudo_masks:
                yield pseudo_masked(source, target, symbols)
            else:
                yield generation(source, target, symbols, *key, copy)


def cuts(lengths: Sequence[int], counts: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of micro-batches: each has as many rows as fit into `most` padded tokens, and at least one.

    Args:
        lengths: length of the longest sequence of each row.
        counts: number of sequences of each row.
    """
    start = longest = total = 0
    for i, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        if i > start and max(longest, length) * (total + count) > most:
            yield start, i
            start, longest, total = i, 0, 0
        longest, total = max(longest, length), total + count
    yield start, len(lengths)


def _check_workers(plans: Collection[Plan], recipe: Recipe, world: int) -> None:
    """Refuse more workers than a global batch has texts."""
    if (fewest := min(plan.fewest for plan in plans)) < world:
        raise UserError(
            f"recipe {recipe.name}: the smallest phase of mixture {recipe.mixture} (with batches: by_task, the "
            f"smallest task of one; with cycle, the smallest corpus; with shuffle_blocks, of a block) has "
            f"{fewest} texts, fewer than the {world} workers; use fewer workers, or give it more draws"
        )
    if (smallest := min(plan.smallest for plan in plans)) < world:
        raise UserError(
            f"recipe {recipe.name}: a global batch may have only {smallest} texts, fewer than the {world} "
            f"workers; raise packs_per_batch ({recipe.packs_per_batch}) or tokens_per_batch "
            f"({recipe.tokens_per_batch}), or use fewer workers"
        )


def _repeated(column: Ragged, times: Longs) -> Ragged:
    return column if (times == 1).all() else column.repeated(times)
