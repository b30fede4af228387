"""Whose turn a step is, among objectives that share the global batches."""

from __future__ import annotations

from collections.abc import Mapping

from ubert.schema.recipe import SHARE, Trained

CYCLE = round(1 / SHARE)


class Turns:
    """The order of turns repeats after `CYCLE` steps. At each step it is the turn of the objective that lags
    behind its share most.

    Args:
        shares: of the steps, by objective; they sum to about 1.
    """

    def __init__(self, shares: Mapping[Trained, float]) -> None:
        self.counts = _counts(shares)  # of a cycle
        done = dict.fromkeys(self.counts, 0)
        self._turns: list[tuple[Trained, int]] = []  # the objective, and how many turns it had before
        for step in range(1, CYCLE + 1):
            last = max(done, key=lambda name: self.counts[name] * step - done[name] * CYCLE)
            self._turns.append((last, done[last]))
            done[last] += 1

    def __call__(self, step: int) -> tuple[Trained, int]:
        """The objective of a step (from 0), and how many steps it had before."""
        cycle, at = divmod(step, CYCLE)
        name, before = self._turns[at]
        return name, cycle * self.counts[name] + before

    def until(self, name: Trained, turns: int) -> int:
        """The fewest steps in which an objective's share is so many turns."""
        return -(-turns * CYCLE // self.counts[name])


def _counts(shares: Mapping[Trained, float]) -> dict[Trained, int]:
    """Turns of each in a cycle: whole numbers that sum to it. Each has one, and each that is left goes to whoever
    lags behind its share most: none is a turn away from it in the end, unless a share is less than one."""
    turns = CYCLE / sum(shares.values())
    counts = dict.fromkeys(shares, 1)
    for _ in range(CYCLE - len(counts)):
        counts[max(counts, key=lambda name: shares[name] * turns - counts[name])] += 1
    return counts
