"""Training batches from shards: any step of any rank at once, with no state to save.

The order is a function of the shards, the seed, the epoch and the step (see `plan.py`), and the global batches
are the same whatever the number of ranks: rank r of w takes packs r, r + w, ... of each, or rows r, r + w, ...
where the packs don't share out evenly.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np

from ubert.encoder.ragged import Longs, Ragged
from ubert.loader.clozes import clozes
from ubert.loader.masked_texts import masked_texts
from ubert.loader.objective_schedule import Turns
from ubert.loader.plan import CLOZES, MASKS, Plan
from ubert.loader.prompts import Prompts
from ubert.loader.shards import Shards
from ubert.schema.errors import UserError
from ubert.schema.recipe import Recipe, Trained
from ubert.spanbert.masked_lm import MaskedBatch, masked_batch
from ubert.spanbert.masking import Words
from ubert.spexbert import pointer
from ubert.spexbert.pointer import NOWHERE, Phrases, Pointed, PointerBatch
from ubert.structure.batch import Batch, Sequences, Special, padded
from ubert.unilm import cloze
from ubert.unilm.cloze import ClozeBatch
from ubert.unilm.sequences import SMOOTHING

AHEAD = 4  # steps that are prepared in advance

AnyBatch = Batch | PointerBatch | MaskedBatch | ClozeBatch


@dataclass(slots=True, frozen=True)
class Step:
    """One rank's part of a global batch, which is of one objective: micro-batches of at most `tokens_per_step`
    padded tokens, the number of texts of the whole global batch, the rows of the shards that this rank's texts
    are, and how often these texts have been shown before."""

    objective: Trained
    batches: list[AnyBatch]
    examples: int
    rows: list[int]
    shards: Shards
    epoch: int

    @property
    def records(self) -> list[str]:
        """The records that this rank's texts are of."""
        return [self.shards.record_id(row) for row in self.rows]


class Loader:
    """Batches of one rank. `total_steps`: of the whole run; `steps_per_epoch`: the same in every epoch.

    Args:
        most_tokens: the encoder's number of positions.
        words: what masking knows of the tokenizer, where the recipe has an objective that masks.
        phrases: what SpEx-BERT's sources are written with, where it is one of the recipe's objectives.
        pin: batches are for a GPU, which copies them from pinned memory: no step waits for that.

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
    ) -> None:
        self.shards, self.recipe, self.special, self.most_tokens = shards, recipe, special, most_tokens
        self.rank, self.world, self.words, self.phrases, self.pin = rank, world, words, phrases, pin
        self.turns = Turns(recipe.objectives)
        self.plans = {name: Plan(shards, recipe, most_tokens, name, phrases) for name in recipe.objectives}
        labelled: Trained = "spexbert" if recipe.points else "structure"
        leading = labelled if labelled in self.plans else next(iter(self.plans))
        self.prompts = Prompts(shards, recipe, special, most_tokens, self.plans[leading])
        self.steps_per_epoch = self.turns.until(leading, self.plans[leading].steps)
        _enough(self.plans.values(), recipe, world)
        epochs = recipe.epochs or 0.0
        self.total_steps = recipe.steps or max(1, math.ceil(epochs * self.steps_per_epoch))

    def step(self, i: int) -> Step:
        """This rank's part of step `i` (from 0)."""
        objective, turn = self.turns(i)
        plan = self.plans[objective]
        packs = plan.packs(turn)
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
            order = np.argsort(row_R, kind="stable")  # rows of one shard are read together
            mine = row_R[order].astype(np.int64), copies[order], turn
            batches += make[objective](*mine)
            rows += row_R[order].tolist()
        if self.pin:
            batches = [batch.pinned() for batch in batches]
        return Step(objective, batches, sum(map(len, packs)), rows, self.shards, plan.epoch(turn))

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
        self.shards.ahead(self._needed(start))
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
            self.shards.ahead(())

    def _needed(self, start: int) -> Iterator[int]:
        """The numbers of shards in the order in which steps from `start` on first need them."""
        seen: set[int] = set()
        for i in range(start, min(start + self.steps_per_epoch, self.total_steps)):
            objective, turn = self.turns(i)
            plan = self.plans[objective]
            for copies in self.share(plan.packs(turn)):
                new = set(self.shards.shards_of(plan.row_M[copies].astype(np.int64)).tolist()) - seen
                yield from sorted(new)
                seen |= new

    def _batches(self, row_R: Longs, copy_R: Longs, turn: int) -> Iterator[Batch]:
        """Micro-batches of this rank's rows of a pack, in order."""
        rows = self.shards.rows(row_R)
        asked = self.prompts.of_rows(rows, row_R, copy_R, turn)
        count_R = np.array([len(of_row.prompts) for of_row in asked])
        lengths = (rows.behind + [of_row.tokens for of_row in asked]).tolist()
        for start, stop in cuts(lengths, count_R.tolist(), self.recipe.tokens_per_step):
            times, examples = count_R[start:stop], np.arange(stop - start)
            columns = Sequences(
                prompt=list(chain.from_iterable(of_row.prompts for of_row in asked[start:stop])),
                text=_repeated(rows.text.part(start, stop), times),
                pair=_repeated(rows.pair.part(start, stop), times),
                example=np.repeat(examples, times),
                examples=examples,
                gold_anchors=rows.anchors.part(start, stop),
                gold_cells=rows.cells.part(start, stop),
            )
            yield padded(columns, self.special, stop - start)

    def _pointed(self, row_R: Longs, copy_R: Longs, turn: int) -> Iterator[PointerBatch]:
        """Micro-batches of this rank's rows of a pack, as sources to point into."""
        epoch = self.plans["spexbert"].epoch(turn)
        found = [
            self._sources(row, copy, epoch) for row, copy in zip(row_R.tolist(), copy_R.tolist(), strict=True)
        ]
        lengths = [max(len(one.ids) for one in of_row) for of_row in found]
        for start, stop in cuts(lengths, list(map(len, found)), self.recipe.tokens_per_step):
            yield pointer.padded(list(chain.from_iterable(found[start:stop])), self.special, stop - start)

    def _sources(self, row: int, copy: int, epoch: int) -> list[Pointed]:
        """The sequences of a row. Choices without the right one among them teach nothing and are left out, but a
        row has a sequence at least, so that no batch is empty."""
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

    def _masked(self, row_R: Longs, copy_R: Longs, turn: int) -> Iterator[MaskedBatch]:
        """Micro-batches of this rank's rows of a pack, masked."""
        assert self.words is not None
        plan, masking = self.plans["spanbert"], self.recipe.masking
        texts = list(
            masked_texts(self.shards, row_R, copy_R, self.words, masking, *plan.key, plan.epoch(turn), MASKS)
        )
        for start, stop in cuts(
            [len(text.ids) + 2 for text in texts], [1] * len(texts), self.recipe.tokens_per_step
        ):
            yield masked_batch(texts[start:stop], self.special)

    def _clozes(self, objective: Trained, row_R: Longs, copy_R: Longs, turn: int) -> Iterator[ClozeBatch]:
        """Micro-batches of this rank's rows of a pack, with words hidden."""
        assert self.words is not None
        key = *self.plans[objective].key, self.plans[objective].epoch(turn), CLOZES
        items = list(clozes(self.shards, row_R, copy_R, self.words, self.special, objective, self.recipe, *key))
        smoothing = SMOOTHING if objective == "seq2seq" else 0.0
        for start, stop in cuts([len(item.ids) for item in items], [1] * len(items), self.recipe.tokens_per_step):
            yield cloze.padded(items[start:stop], self.special.pad, smoothing)


def cuts(lengths: Sequence[int], counts: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Where micro-batches start and stop: each has as many rows as fit into `most` padded tokens, at least one.

    Args:
        lengths: tokens of a row's longest sequence.
        counts: sequences of a row.
    """
    start = longest = total = 0
    for i, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        if i > start and max(longest, length) * (total + count) > most:
            yield start, i
            start, longest, total = i, 0, 0
        longest, total = max(longest, length), total + count
    yield start, len(lengths)


def _enough(plans: Collection[Plan], recipe: Recipe, world: int) -> None:
    """Refuse more workers than a global batch has texts."""
    if (fewest := min(plan.fewest for plan in plans)) < world:
        raise UserError(
            f"recipe {recipe.name}: the smallest phase of mixture {recipe.mixture} (with batches: by_task, the "
            f"smallest task of one; with cycle, the smallest corpus) has {fewest} texts, fewer than the {world} "
            "workers; use fewer, or give it more draws"
        )
    if (smallest := min(plan.smallest for plan in plans)) < world:
        raise UserError(
            f"recipe {recipe.name}: a global batch has {smallest} texts, fewer than the {world} "
            f"workers; raise tokens_per_batch ({recipe.tokens_per_batch}) or use fewer workers"
        )


def _repeated(column: Ragged, times: Longs) -> Ragged:
    return column if (times == 1).all() else column.repeated(times)
