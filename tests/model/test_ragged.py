"""Ragged arrays: parts, repetitions and selections equal those of lists."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ubert.encoder.ragged import Longs, joined, places, ragged, taken

lists_of_ids = st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=8)


def as_lists(column: object) -> list[list[int]]:
    return [each.tolist() for each in column]  # type: ignore[attr-defined]


def array(ids: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(ids, np.int32)


@given(lists_of_ids, st.data())
def test_parts_and_repetitions_are_those_of_lists(lists: list[list[int]], data: st.DataObject) -> None:
    column = ragged(list(map(array, lists)))
    stop = data.draw(st.integers(0, len(lists)))
    start = data.draw(st.integers(0, stop))
    times: Longs = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(lists), max_size=len(lists))))
    assert as_lists(column) == lists
    assert as_lists(column.part(start, stop)) == lists[start:stop]
    expected = [each for each, count in zip(lists, times.tolist(), strict=True) for _ in range(count)]
    assert as_lists(column.repeated(times)) == expected
    assert as_lists(joined([column, column.part(start, stop)])) == lists + lists[start:stop]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=8))
def test_lists_are_taken_from_anywhere(pieces: list[tuple[int, int]]) -> None:
    values = np.arange(100, dtype=np.int32)
    starts, lengths = (np.array([piece[i] for piece in pieces], np.int64) for i in range(2))
    expected = [list(range(start, start + length)) for start, length in pieces]
    assert as_lists(taken(values, starts, lengths)) == expected
    assert places(starts, lengths).tolist() == [i for each in expected for i in each]


def test_lists_of_rows_keep_their_width() -> None:
    column = ragged([np.zeros((0, 3), np.int32), np.ones((2, 3), np.int32)])
    assert [each.shape for each in column] == [(0, 3), (2, 3)]
    assert column.repeated(np.array([2, 1])).values.shape == (2, 3)
