"""A key-value cache with spare room holds the same keys and values as a cache that copies."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import Cache, DynamicCache

from ubert.inference.generation.cache import SPARE_TOKENS, GrowingLayer

# New columns, how many of them are dropped again, and which beams go on.
STEP = st.tuples(
    st.integers(1, SPARE_TOKENS + 2),
    st.integers(0, 1),
    st.none() | st.lists(st.integers(0, 1), min_size=2, max_size=2),
)


@given(steps=st.lists(STEP, min_size=1, max_size=8), layers=st.integers(1, 2))
def test_rooms_hold_what_a_copying_cache_holds(
    steps: list[tuple[int, int, list[int] | None]], layers: int
) -> None:
    ours, copying = Cache(layer_class_to_replicate=GrowingLayer), DynamicCache()
    drawn = torch.Generator().manual_seed(0)

    def new(columns: int) -> Tensor:
        return torch.rand(2, columns, 3, 4, generator=drawn).transpose(1, 2)

    for columns, dropped, beams in steps:
        for layer in range(layers):
            keys, values = new(columns), new(columns)
            for mine, theirs in zip(
                ours.update(keys, values, layer), copying.update(keys, values, layer), strict=True
            ):
                assert torch.equal(mine, theirs)
        for cache in (ours, copying):
            cache.crop(-dropped)
            if beams is not None:
                cache.reorder_cache(torch.tensor(beams))  # type: ignore[arg-type]  # as in decoding.py
        assert ours.get_seq_length() == copying.get_seq_length()


def test_new_columns_leave_the_kept_ones_where_they_are() -> None:
    cache = Cache(layer_class_to_replicate=GrowingLayer)
    one = torch.rand(1, 1, 1, 1)
    (first, _), *others = [cache.update(one, one, 0) for _ in range(SPARE_TOKENS)]
    assert all(keys.data_ptr() == first.data_ptr() for keys, _ in others)
