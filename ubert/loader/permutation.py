"""Keyed permutations with random access: each element is computed without the others.

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
_FACTOR, _OTHER_FACTOR = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # from SplitMix64
_MASK = 2**64 - 1
_FEW = 8


def permuted(places_N: npt.ArrayLike, size: int, *of: int) -> Longs:
    """Return the elements at these places of a permutation of range(size), with key `of`.

    A Feistel network runs on pairs of numbers, each below about the square root of the size, with modular
    addition (Black and Rogaway, Ciphers with Arbitrary Finite Domains, section 5). Results that aren't below
    the size, which are few, go through it again, one by one (section 4: cycle walking).
    """
    state = folded(of)
    round_keys = [mixed(mixed(i) + state) for i in range(_ROUNDS)]
    value_N = np.array(places_N, np.uint64)
    if len(value_N) > _FEW:
        value_N = _feistel(value_N, size, round_keys)
        again = np.flatnonzero(value_N >= size).tolist()
    else:  # for a few numbers, Python integers are faster
        again = list(range(len(value_N)))
    for i in again:
        value = _feistel(int(value_N[i]), size, round_keys)
        while value >= size:
            value = _feistel(value, size, round_keys)
        value_N[i] = value
    permuted_N: Longs = value_N.astype(np.int64)
    return permuted_N


def _feistel(value: Any, size: int, round_keys: list[int]) -> Any:
    """Permute range(left * right), which is slightly larger than the size. `value` is an integer or an array."""
    left = math.isqrt(size - 1) + 1
    right = -(-size // left)
    one, other = divmod(value, right)
    modulus, next_modulus = left, right
    for key in round_keys:  # each round swaps the two numbers; an even number of rounds restores their order
        drawn = (other ^ key) * _FACTOR & _MASK
        drawn = (drawn ^ drawn >> 32) * _OTHER_FACTOR & _MASK
        one, other = other, (one + (drawn >> 32)) % modulus
        modulus, next_modulus = next_modulus, modulus
    return one * right + other
