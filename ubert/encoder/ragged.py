"""Lists of different lengths, stored as two arrays: many of them are read, repeated and padded without a loop.

Shapes: N lists, V values in all lists together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@dataclass(slots=True, frozen=True)
class Ragged:
    """`values` [V, ...] holds the lists one after another; `lengths` [N] holds their lengths."""

    values: Ids
    lengths: Longs

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[Ids]:
        stop_N = np.cumsum(self.lengths)
        for start, stop in zip((stop_N - self.lengths).tolist(), stop_N.tolist(), strict=True):
            yield self.values[start:stop]

    def part(self, start: int, stop: int) -> Ragged:
        """Return the lists in [start, stop)."""
        if (start, stop) == (0, len(self)):
            return self
        first = int(self.lengths[:start].sum())
        lengths = self.lengths[start:stop]
        return Ragged(self.values[first : first + int(lengths.sum())], lengths)

    def repeated(self, times_N: Longs) -> Ragged:
        """Return each list `times_N` times."""
        start_N = np.cumsum(self.lengths) - self.lengths
        return taken(self.values, np.repeat(start_N, times_N), np.repeat(self.lengths, times_N))


def ragged(lists: Sequence[Ids]) -> Ragged:
    """Build from one or more separate arrays."""
    return Ragged(np.concatenate(lists), np.fromiter(map(len, lists), np.int64, len(lists)))


def joined(parts: Sequence[Ragged]) -> Ragged:
    """Concatenate one or more parts."""
    return Ragged(np.concatenate([p.values for p in parts]), np.concatenate([p.lengths for p in parts]))


def taken(values: Ids, start_N: Longs, length_N: Longs) -> Ragged:
    """Select the lists of the given starts and lengths from `values`."""
    return Ragged(values[places(start_N, length_N)], length_N)


def places(start_N: Longs, length_N: Longs) -> Longs:
    """Return the indices start, start + 1, ... of each list, one list after another [V]."""
    stop_N = np.cumsum(length_N)
    shift_N = start_N - (stop_N - length_N)
    found: Longs = np.repeat(shift_N, length_N) + np.arange(stop_N[-1] if len(stop_N) else 0)
    return found
