"""Permutations that are functions of numbers alone: an order known at each place without any other.

Shapes: N numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ubert.encoder.ragged import Longs
from ubert.schema.keys import folded, mixed

_ROUNDS = 6  # an even number
_FACTOR, _OTHER_FACTOR = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # those of SplitMix64
_MASK = 2**64 - 1
_FEW = 8


def permuted(places_N: npt.ArrayLike, size: int, *of: int) -> Longs:
    """What a permutation of range(size), keyed by `of`, has at each of these places.

    A Feistel network on pairs of numbers, below about the square root of the size each, that add up modulo these
    (Black and Rogaway, Ciphers with Arbitrary Finite Domains, section 5). The few results beyond the size are sent
    through again, one by one, until they are within (section 4: cycle walking).
    """
    state = folded(of)
    round_keys = [mixed(mixed(i) + state) for i in range(_ROUNDS)]
    value_N = np.array(places_N, np.uint64)
    if len(value_N) > _FEW:
        value_N = _feistel(value_N, size, round_keys)
        again = np.flatnonzero(value_N >= size).tolist()
    else:  # numbers alone are faster
        again = list(range(len(value_N)))
    for i in again:
        value = _feistel(int(value_N[i]), size, round_keys)
        while value >= size:
            value = _feistel(value, size, round_keys)
        value_N[i] = value
    permuted_N: Longs = value_N.astype(np.int64)
    return permuted_N


def _feistel(value: Any, size: int, round_keys: list[int]) -> Any:
    """A permutation of range(left * right), which is hardly more than the size; of an integer or an array."""
    left = math.isqrt(size - 1) + 1
    right = -(-size // left)
    one, other = divmod(value, right)
    modulus, next_modulus = left, right
    for key in round_keys:  # the numbers change places after each: they are an even number
        drawn = (other ^ key) * _FACTOR & _MASK
        drawn = (drawn ^ drawn >> 32) * _OTHER_FACTOR & _MASK
        one, other = other, (one + (drawn >> 32)) % modulus
        modulus, next_modulus = next_modulus, modulus
    return one * right + other
