"""Random draws that are functions of numbers alone: no state, and the same on every machine.

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
_CHUNK = 128  # draws of a stream that are made together
_FRACTION = np.uint64(11)  # a float has 53 bits


def keys(numbers_N: npt.ArrayLike, *of: int) -> Keys:
    """A uniform 64-bit key for each number, keyed by `of`: the mixer of SplitMix64 (Steele, Lea and Flood, Fast
    Splittable Pseudorandom Number Generators, figure 16), folded over the parts."""
    key_N: Keys = mixed(mixed(np.asarray(numbers_N, np.uint64)) + folded(of))
    return key_N


def uniform(numbers_N: npt.ArrayLike, *of: int) -> npt.NDArray[np.float64]:
    """A uniform number in [0, 1) for each number, keyed by `of`."""
    return np.asarray((keys(numbers_N, *of) >> _FRACTION) * 2.0**-53, np.float64)


def draws(*of: int) -> Iterator[float]:
    """Uniform numbers in [0, 1) without end, keyed by `of`."""
    for chunk in count():
        yield from uniform(np.arange(chunk * _CHUNK, (chunk + 1) * _CHUNK), *of).tolist()


def folded(of: tuple[int, ...]) -> int:
    """One number of many."""
    state = 0
    for part in of:
        state = mixed(state + part)
    return state


def mixed(x: Any) -> Any:
    """Of a Python integer or of an array of uint64."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
