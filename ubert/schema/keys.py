"""Stateless random numbers: pure functions of integers, the same on every machine.

Shapes: N numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]

_MASK = 2**64 - 1
_CHUNK = 128  # draws computed at a time
_FRACTION = np.uint64(11)  # a double has 53 bits of precision


def keys(numbers_N: npt.ArrayLike, *of: int) -> Keys:
    """Return a uniform 64-bit key for each number, keyed by `of`.

    It folds the mixer of SplitMix64 over the parts (Steele, Lea and Flood, Fast Splittable Pseudorandom Number
    Generators, figure 16).
    """
    key_N: Keys = mixed(mixed(np.asarray(numbers_N, np.uint64)) + folded(of))
    return key_N


def uniform(numbers_N: npt.ArrayLike, *of: int) -> npt.NDArray[np.float64]:
    """Return a uniform number in [0, 1) for each number, keyed by `of`."""
    return np.asarray((keys(numbers_N, *of) >> _FRACTION) * 2.0**-53, np.float64)


def draws(*of: int) -> Iterator[float]:
    """Yield uniform numbers in [0, 1) without end, keyed by `of`."""
    for chunk in count():
        yield from uniform(np.arange(chunk * _CHUNK, (chunk + 1) * _CHUNK), *of).tolist()


def folded(of: tuple[int, ...]) -> int:
    """Hash several integers into one."""
    state = 0
    for part in of:
        state = mixed(state + part)
    return state


def mixed(x: Any) -> Any:
    """Mix the bits of a Python integer, or of each item of a uint64 array."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
