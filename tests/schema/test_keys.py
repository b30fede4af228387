"""Stateless random numbers, names of folders, and pauses of the garbage collector."""

from __future__ import annotations

import gc
from itertools import islice

import numpy as np
import pytest

from ubert.schema.errors import UserError
from ubert.schema.garbage_collection import collector_paused
from ubert.schema.keys import draws, folded, keys, mixed, uniform
from ubert.schema.names import MAX_CHARACTERS, checked_name, is_name


def test_numbers_are_mixed_as_by_splitmix64() -> None:
    """The first outputs for seed 0. Other numbers would change the batches of every published run."""
    state, found = 0, []
    for _ in range(3):
        found.append(mixed(state))
        state = (state + 0x9E3779B97F4A7C15) % 2**64
    assert found == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert mixed(np.array([0], np.uint64)).tolist() == found[:1]


def test_keys_depend_on_each_part_and_on_their_order() -> None:
    assert len({*keys([1, 2], 3, 4).tolist(), *keys([1, 2], 4, 3).tolist(), *keys([1, 2], 3).tolist()}) == 6
    assert keys([1], 3, 4).tolist() == [mixed((mixed(1) + folded((3, 4))) % 2**64)]
    assert folded((3, 4)) == mixed(mixed(3) + 4)


def test_draws_continue_where_a_chunk_ends() -> None:
    expected = uniform(np.arange(300), 5, 6).tolist()
    assert list(islice(draws(5, 6), 300)) == expected
    assert len(set(expected)) == 300 and 0 <= min(expected) < 0.02 and 0.98 < max(expected) < 1


@pytest.mark.parametrize(
    ("given", "valid"),
    [
        ("a" * MAX_CHARACTERS, True),
        ("a" * (MAX_CHARACTERS + 1), False),
        ("0.a-b_c", True),
        ("a\n", False),
        ("-a", False),
    ],
)
def test_a_name_is_a_short_folder_name(given: str, valid: bool) -> None:
    assert is_name(given) == valid
    if valid:
        assert checked_name("run", given) == given
    else:
        with pytest.raises(UserError, match="run name"):
            checked_name("run", given)


def test_a_pause_of_the_collector_ends_as_it_began() -> None:
    with collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), collector_paused():
        _ = 1 / 0
    assert gc.isenabled()
