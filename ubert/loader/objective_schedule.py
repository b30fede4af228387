"""The schedule of objectives: which objective trains at each step."""

from __future__ import annotations

from collections.abc import Mapping

from ubert.schema.specs.recipe import SHARE, Trained

CYCLE = round(1 / SHARE)


class ObjectiveSchedule:
    """Assigns steps to objectives, in a cycle of `CYCLE` steps. Each step goes to the objective that is
    furthest behind its share.

    Args:
        shares: each objective's share of the steps; they sum to about 1.
    """

    def __init__(self, shares: Mapping[Trained, float]) -> None:
        self.counts = _counts(shares)  # steps of each objective in a cycle
        done = dict.fromkeys(self.counts, 0)
        self._cycle: list[tuple[Trained, int]] = []  # the objective, and its earlier steps in the cycle
        for step in range(1, CYCLE + 1):
            last = max(done, key=lambda name: self.counts[name] * step - done[name] * CYCLE)
            self._cycle.append((last, done[last]))
            done[last] += 1

    def __call__(self, step: int) -> tuple[Trained, int]:
        """Return the objective of a step (from 0), and the number of its earlier steps."""
        cycle, at = divmod(step, CYCLE)
        name, before = self._cycle[at]
        return name, cycle * self.counts[name] + before

    def until(self, name: Trained, turns: int) -> int:
        """Return the fewest steps in which an objective's share is `turns` steps."""
        return -(-turns * CYCLE // self.counts[name])


def _counts(shares: Mapping[Trained, float]) -> dict[Trained, int]:
    """Return the whole number of steps of each objective in a cycle.

    Each objective gets one step, and each remaining step goes to the one that is furthest behind its share.
    In the end none is a whole step off its share, unless a share is less than one step.
    """
    turns = CYCLE / sum(shares.values())
    counts = dict.fromkeys(shares, 1)
    for _ in range(CYCLE - len(counts)):
        counts[max(counts, key=lambda name: shares[name] * turns - counts[name])] += 1
    return counts
