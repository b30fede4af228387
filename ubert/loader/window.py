"""The shards that a loader needs now and next. They are prefetched in the order in which steps need them.

Without blocks (`blocks.py`), a step may need any shard: all are prefetched once and stay. With blocks, the shards
of a block are released when it ends, and no more than the next block is prefetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from ubert.encoder.ragged import Longs
from ubert.loader.objective_schedule import CYCLE, ObjectiveSchedule
from ubert.loader.plan import Plan
from ubert.loader.shards import Shards
from ubert.schema.specs.recipe import Trained


class Window:
    """The shards of the current and the next block of each objective.

    Args:
        share: returns a rank's part of the packs of a global batch.
        steps: the steps of this process.
        epoch: the number of steps in which each shard is needed once.
    """

    def __init__(
        self,
        shards: Shards,
        plans: Mapping[Trained, Plan],
        schedule: ObjectiveSchedule,
        share: Callable[[list[Longs]], list[Longs]],
        steps: range,
        epoch: int,
    ) -> None:
        self._shards, self._plans, self._schedule, self._share = shards, plans, schedule, share
        self._steps, self._epoch = steps, epoch
        self._blocks = any(plan.blocks.count > 1 for plan in plans.values())
        self._visits: dict[Trained, int] = {}
        for i in reversed(range(steps.start, steps.start + CYCLE)):
            objective, own_step = schedule(i)
            self._visits[objective] = plans[objective].visit(own_step)
        self._move(steps.start)

    def enter(self, step: int) -> None:
        """Move the window if a new block begins with this step."""
        objective, own_step = self._schedule(step)
        if (visit := self._plans[objective].visit(own_step)) != self._visits[objective]:
            self._visits[objective] = visit
            self._move(step)

    def close(self) -> None:
        """Stop prefetching, and release the shards of blocks."""
        self._shards.ahead(())
        if self._blocks:
            self._shards.keep(())

    def _move(self, step: int) -> None:
        if self._blocks:
            self._shards.keep(
                shard
                for objective, visit in self._visits.items()
                for one in (visit, visit + 1)
                for shard in self._plans[objective].shards_of(one)
            )
        self._shards.ahead(self._needed(step, dict(self._visits)))

    def _needed(self, step: int, visits: Mapping[Trained, int]) -> Iterator[int]:
        """Yield the numbers of shards in the order in which the steps from `step` on first need them, to the end
        of each objective's next block."""
        seen: set[int] = set()
        for i in range(step, min(step + self._epoch, self._steps.stop)):
            objective, own_step = self._schedule(i)
            plan = self._plans[objective]
            if plan.visit(own_step) > visits[objective] + 1:
                continue
            for copies in self._share(plan.packs(own_step)):
                new = set(self._shards.shards_of(plan.row_M[copies].astype(np.int64)).tolist()) - seen
                yield from sorted(new)
                seen |= new
