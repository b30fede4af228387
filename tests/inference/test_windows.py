"""The parts of a long text that are read one after another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ubert.inference.windows import around


@given(st.data(), st.integers(1, 60), st.integers(1, 30))
def test_a_window_around_a_place_is_as_long_as_it_may_be(data: st.DataObject, tokens: int, most: int) -> None:
    first = data.draw(st.integers(0, tokens - 1))
    last = data.draw(st.integers(first, min(tokens, first + most) - 1))
    found = around(tokens, most, (first, last))
    assert 0 <= found.start <= first and last < found.stop <= tokens
    assert found.stop - found.start == min(most, tokens)
