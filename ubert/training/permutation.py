"""Keys and permutations that are functions of numbers alone: an order known at each place without any other.

Shapes: N numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
Longs = npt.NDArray[np.int64]

_MASK = 2**64 - 1
_ROUNDS = 6


def keys(numbers_N: npt.ArrayLike, *of: int) -> Keys:
    """A uniform 64-bit key for each number, keyed by `of`: the mixer of SplitMix64 (Steele, Lea and Flood, Fast
    Splittable Pseudorandom Number Generators, figure 16), folded over the parts."""
    state = 0
    for part in of:
        state = _mixed(state + part)
    key_N: Keys = _mixed(_mixed(np.asarray(numbers_N, np.uint64)) + state)
    return key_N


def permuted(places_N: npt.ArrayLike, size: int, *of: int) -> Longs:
    """What a permutation of range(size), keyed by `of`, has at each of these places.

    A Feistel network over twice as many bits as half the size needs (Luby and Rackoff, How to Construct
    Pseudorandom Permutations); results beyond the size are sent through again until they are within (Black and
    Rogaway, Ciphers with Arbitrary Finite Domains, section 4: cycle walking). At most four times on average.
    """
    value_N = np.asarray(places_N, np.uint64)
    half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    low = np.uint64((1 << int(half)) - 1)
    round_keys = [int(key) for key in keys(np.arange(_ROUNDS), *of)]
    value_N = _feistel(value_N, half, low, round_keys)
    while (outside_N := value_N >= size).any():
        value_N[outside_N] = _feistel(value_N[outside_N], half, low, round_keys)
    return value_N.astype(np.int64)


def _feistel(value_N: Keys, half: np.uint64, low: np.uint64, round_keys: list[int]) -> Keys:
    left_N, right_N = value_N >> half, value_N & low
    for key in round_keys:
        left_N, right_N = right_N, left_N ^ (_mixed(right_N + np.uint64(key)) & low)
    joined_N: Keys = (left_N << half) | right_N
    return joined_N


def _mixed(x: Any) -> Any:
    """Of a Python integer or of an array of uint64."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
