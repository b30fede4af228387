"""Keys and permutations that are functions of numbers alone: an order known at each place without any other.

Shapes: N numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
Longs = npt.NDArray[np.int64]

_MASK = 2**64 - 1
_ROUNDS = 6  # an even number
_HALF = np.uint64(32)
_FACTORS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)  # those of SplitMix64


def keys(numbers_N: npt.ArrayLike, *of: int) -> Keys:
    """A uniform 64-bit key for each number, keyed by `of`: the mixer of SplitMix64 (Steele, Lea and Flood, Fast
    Splittable Pseudorandom Number Generators, figure 16), folded over the parts."""
    key_N: Keys = _mixed(_mixed(np.asarray(numbers_N, np.uint64)) + _folded(of))
    return key_N


def permuted(places_N: npt.ArrayLike, size: int, *of: int) -> Longs:
    """What a permutation of range(size), keyed by `of`, has at each of these places.

    A Feistel network on pairs of numbers, below about the square root of the size each, that add up modulo these
    (Black and Rogaway, Ciphers with Arbitrary Finite Domains, section 5). The few results beyond the size are sent
    through again until they are within (section 4: cycle walking).
    """
    value_N = np.array(places_N, np.uint64)
    state = _folded(of)
    round_keys = [_mixed(_mixed(i) + state) for i in range(_ROUNDS)]
    value_N = _feistel(value_N, size, round_keys)
    while len(outside := np.flatnonzero(value_N >= size)):
        value_N[outside] = _feistel(value_N[outside], size, round_keys)
    return value_N.astype(np.int64)


def _feistel(value_N: Keys, size: int, round_keys: list[int]) -> Keys:
    """A permutation of range(left * right), which is hardly more than the size."""
    left = math.isqrt(size - 1) + 1
    right = -(-size // left)
    one, other = np.uint64(left), np.uint64(right)
    one_N, other_N = np.divmod(value_N, other)
    for key in round_keys:  # the numbers change places after each: they are an even number
        mixed_N = (other_N ^ np.uint64(key)) * _FACTORS[0]
        mixed_N ^= mixed_N >> _HALF
        mixed_N *= _FACTORS[1]
        one_N, other_N = other_N, (one_N + (mixed_N >> _HALF)) % one
        one, other = other, one
    joined_N: Keys = one_N * other + other_N
    return joined_N


def _folded(of: tuple[int, ...]) -> int:
    state = 0
    for part in of:
        state = _mixed(state + part)
    return state


def _mixed(x: Any) -> Any:
    """Of a Python integer or of an array of uint64."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
