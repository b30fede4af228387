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
_ROUNDS = 6  # an even number
_FACTORS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)  # those of SplitMix64


def keys(numbers_N: npt.ArrayLike, *of: int) -> Keys:
    """A uniform 64-bit key for each number, keyed by `of`: the mixer of SplitMix64 (Steele, Lea and Flood, Fast
    Splittable Pseudorandom Number Generators, figure 16), folded over the parts."""
    key_N: Keys = _mixed(_mixed(np.asarray(numbers_N, np.uint64)) + _folded(of))
    return key_N


def permuted(places_N: npt.ArrayLike, size: int, *of: int) -> Longs:
    """What a permutation of range(size), keyed by `of`, has at each of these places.

    A Feistel network over as many bits as the size needs (Luby and Rackoff, How to Construct Pseudorandom
    Permutations), its halves of different widths where they are odd; results beyond the size are sent through again
    until they are within (Black and Rogaway, Ciphers with Arbitrary Finite Domains, section 4: cycle walking). At
    most twice on average.
    """
    value_N = np.array(places_N, np.uint64)
    bits = max(2, (size - 1).bit_length())
    state = _folded(of)
    round_keys = [_mixed(_mixed(i) + state) for i in range(_ROUNDS)]
    value_N = _feistel(value_N, bits, round_keys)
    while len(outside := np.flatnonzero(value_N >= size)):
        value_N[outside] = _feistel(value_N[outside], bits, round_keys)
    return value_N.astype(np.int64)


def _feistel(value_N: Keys, bits: int, round_keys: list[int]) -> Keys:
    """After each of an even number of rounds the halves, and their widths, change places."""
    right_bits = bits // 2
    left_bits = bits - right_bits
    left_N, right_N = value_N >> np.uint64(right_bits), value_N & np.uint64((1 << right_bits) - 1)
    for key in round_keys:
        mixed_N = (right_N ^ np.uint64(key)) * _FACTORS[0]
        mixed_N ^= mixed_N >> np.uint64(32)
        mixed_N *= _FACTORS[1]
        left_N, right_N = right_N, left_N ^ (mixed_N >> np.uint64(64 - left_bits))
        left_bits, right_bits = right_bits, left_bits
    joined_N: Keys = (left_N << np.uint64(right_bits)) | right_N
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
