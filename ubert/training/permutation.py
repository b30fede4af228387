"""Permutations that are functions of numbers alone: an order known at each place without any other.

Shapes: N numbers.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ubert.schema.keys import Keys, folded, mixed

Longs = npt.NDArray[np.int64]

_ROUNDS = 6  # an even number
_HALF = np.uint64(32)
_FACTORS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)  # those of SplitMix64


def permuted(places_N: npt.ArrayLike, size: int, *of: int) -> Longs:
    """What a permutation of range(size), keyed by `of`, has at each of these places.

    A Feistel network on pairs of numbers, below about the square root of the size each, that add up modulo these
    (Black and Rogaway, Ciphers with Arbitrary Finite Domains, section 5). The few results beyond the size are sent
    through again until they are within (section 4: cycle walking).
    """
    value_N = np.array(places_N, np.uint64)
    state = folded(of)
    round_keys = [mixed(mixed(i) + state) for i in range(_ROUNDS)]
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
