"""The windows of a long text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ubert.inference.windows import Window, around, source_window, windows


@given(st.data(), st.integers(1, 60), st.integers(1, 30))
def test_a_window_around_a_place_is_as_long_as_it_may_be(data: st.DataObject, tokens: int, most: int) -> None:
    first = data.draw(st.integers(0, tokens - 1))
    last = data.draw(st.integers(first, min(tokens, first + most) - 1))
    found = around(tokens, most, (first, last))
    assert 0 <= found.start <= first and last < found.stop <= tokens
    assert found.stop - found.start == min(most, tokens)


@pytest.mark.parametrize(("place", "start"), [((50, 51), 46), ((50, 50), 45), ((2, 2), 0), ((98, 99), 90)])
def test_a_place_is_in_the_middle_of_its_window(place: tuple[int, int], start: int) -> None:
    assert around(100, 10, place) == Window(start, start + 10, start, start + 10)


NAMED = [0] * 10 + [7, 8] + [0] * 10 + [7, 8] + [0] * 6


@pytest.mark.parametrize(
    ("pair", "start"), [([7, 8], 7), ([8], 7), ([7, 9], 0), ([], 0), (NAMED, 11), ([*NAMED, 0], 0)]
)
def test_a_source_is_read_around_the_first_place_of_its_pair(pair: list[int], start: int) -> None:
    found = source_window(np.array(NAMED, np.int32), np.array(pair, np.int32), 8)
    assert (found.start, found.stop) == (start, start + 8)


@pytest.mark.parametrize("overlap", [-1, 4, 5])
def test_windows_without_an_advance_are_refused(overlap: int) -> None:
    with pytest.raises(ValueError, match=f"overlap is {overlap}, expected 0 to 3"):
        windows(10, 4, overlap)
