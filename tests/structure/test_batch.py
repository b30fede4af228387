"""Categories are divided among pieces, and a batch has the positions of everything, above all gold cells."""

from __future__ import annotations

from itertools import chain, pairwise
from random import Random
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ubert.encoder.ragged import Ids
from ubert.structure.batch import Batch, Example, Piece, Region, Special, collate, groups, pieces, regions

SPECIAL = Special(cls=1, sep=2, pad=0, marker=3, types=True)
Layout = Literal["joint", "stacked"]
LAYOUTS: list[Layout] = ["joint", "stacked"]


def ids(count: int, first: int = 100) -> Ids:
    return np.arange(first, first + count, dtype=np.int32)


@st.composite
def examples(draw: st.DrawFn) -> Example:
    """Up to 12 categories of 0 to 6 tokens, a text of up to 30 and perhaps a pair; any gold cells."""
    sizes = draw(st.lists(st.integers(0, 6), min_size=1, max_size=12))
    text = draw(st.integers(1, 30))
    place = st.tuples(st.integers(0, len(sizes) - 1), st.integers(0, text - 1), st.integers(0, text - 1))
    cells = sorted({(c, min(a, b), max(a, b)) for c, a, b in draw(st.lists(place, max_size=10))})
    anchors = draw(st.sets(st.integers(0, len(sizes) - 1)))
    return Example(
        instruction=ids(draw(st.integers(0, 5)), 10),
        categories=[ids(size, 200 + 10 * i) for i, size in enumerate(sizes)],
        text=ids(text, 1000),
        pair=ids(draw(st.integers(0, 5)), 2000),
        regions=np.full(len(sizes), Region.ANCHOR | Region.TRIANGLE, np.int32),
        gold_anchors=np.array(sorted(anchors), np.int32),
        gold_cells=np.array(cells, np.int32).reshape(-1, 3),
    )


def split(example: Example, layout: Layout, most: int, tokens: int = 64, index: int = 0) -> list[Piece]:
    return list(pieces(example, index, layout, SPECIAL, most_categories=most, most_tokens=tokens))


@settings(max_examples=200, deadline=None)
@given(examples(), st.sampled_from(LAYOUTS), st.integers(1, 12), st.integers(54, 90))
def test_pieces_share_out_the_categories(example: Example, layout: Layout, most: int, tokens: int) -> None:
    parts = split(example, layout, most, tokens)
    shared = [p.prompt.categories.tolist() for p in parts]
    assert list(chain.from_iterable(shared)) == list(range(len(example.categories)))
    assert all(len(p) <= tokens for p in parts)
    assert all(len(group) <= (most if layout == "joint" else 1) for group in shared)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=10), st.integers(0, 2), st.integers(1, 5), st.integers(0, 9)
)
def test_groups_are_as_large_as_the_limits_allow(sizes: list[int], instruction: int, most: int, more: int) -> None:
    """The prompt is [CLS] instruction [SEP], a marker and a name for each category, and [SEP]."""
    room = 3 + instruction + 4 + more  # the longest name, at least

    def length(group: list[int]) -> int:
        return 3 + instruction + sum(1 + sizes[category] for category in group)

    chosen = np.arange(len(sizes), dtype=np.int32)
    found = [group.tolist() for group in groups(ids(instruction), list(map(ids, sizes)), chosen, most, room)]
    assert list(chain.from_iterable(found)) == chosen.tolist()
    assert all(len(group) <= most and length(group) <= room for group in found)
    for group, following in pairwise(found):
        assert len(group) == most or length([*group, following[0]]) > room, "a category more would fit"


@settings(max_examples=200, deadline=None)
@given(examples(), st.integers(1, 12), st.data())
def test_chosen_categories_alone_are_used(example: Example, most: int, data: st.DataObject) -> None:
    count = len(example.categories)
    only = np.array(sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1))), np.int32)
    parts = list(pieces(example, 0, "joint", SPECIAL, most_categories=most, most_tokens=90, only=only))
    batch = collate(parts, SPECIAL, 1)
    assert batch.category_T.tolist() == only.tolist()
    cells = [[int(batch.category_T[table]), a, b] for table, a, b in batch.gold_cells_G3.tolist()]
    assert cells == example.gold_cells[np.isin(example.gold_cells[:, 0], only)].tolist()
    gold = batch.category_T[batch.gold_anchor_T == 1].tolist()
    assert gold == np.intersect1d(example.gold_anchors, only).tolist()


@settings(max_examples=200, deadline=None)
@given(st.lists(examples(), min_size=1, max_size=4), st.sampled_from(LAYOUTS), st.integers(1, 12), st.randoms())
def test_a_batch_holds_every_piece_where_it_says(
    items: list[Example], layout: Layout, most: int, random: Random
) -> None:
    parts = [p for i, example in enumerate(items) for p in split(example, layout, most, 80, index=i)]
    random.shuffle(parts)
    batch = collate(parts, SPECIAL, len(items))
    assert batch.examples == len(items) and batch.ids_BL.shape[1] == max(map(len, parts))
    assert batch.mask_BL.sum(1).tolist() == [len(p) for p in parts]
    for b, p in enumerate(parts):
        start, length = int(batch.text_start_B[b]), int(batch.text_length_B[b])
        assert batch.ids_BL[b, start : start + length].tolist() == p.source.text.tolist()
        assert batch.ids_BL[b, len(p) - 1] == SPECIAL.sep == batch.ids_BL[b, start - 1]
        assert not batch.ids_BL[b, len(p) :].any() and not batch.types_BL[b, : len(p.prompt.ids)].any()
    assert sorted(_tables(batch)) == sorted(
        (i, c) for i, example in enumerate(items) for c in range(len(example.categories))
    )
    cells = {(*_tables(batch)[table], start, end) for table, start, end in batch.gold_cells_G3.tolist()}
    assert cells == {(i, *cell) for i, example in enumerate(items) for cell in example.gold_cells.tolist()}
    anchors = {_tables(batch)[int(t)] for t in batch.gold_anchor_T.nonzero().flatten()}
    assert anchors == {(i, c) for i, example in enumerate(items) for c in example.gold_anchors.tolist()}


@settings(max_examples=200, deadline=None)
@given(examples(), st.integers(1, 12))
def test_a_joint_table_has_an_anchor_of_its_own_where_its_name_begins(example: Example, most: int) -> None:
    for part in split(example, "joint", most):
        ids, anchors = part.prompt.ids.tolist(), part.prompt.anchors.tolist()
        assert len(set(anchors)) == len(anchors)
        for anchor, category in zip(anchors, part.prompt.categories.tolist(), strict=True):
            name = example.categories[category].tolist()
            assert ids[anchor - 1 : anchor + len(name)] == [SPECIAL.marker, *name]


def _tables(batch: Batch) -> list[tuple[int, int]]:
    """(example, category) of each table."""
    return list(zip(batch.example_B[batch.piece_T].tolist(), batch.category_T.tolist(), strict=True))


def test_the_sequences_of_both_layouts() -> None:
    example = Example(
        instruction=ids(1, 10),
        categories=[ids(2, 20), ids(1, 30)],
        text=ids(2, 50),
        pair=ids(1, 40),
        regions=np.full(2, Region.TRIANGLE, np.int32),
        gold_anchors=ids(0),
        gold_cells=np.array([[1, 0, 1]], np.int32),
    )
    joint = collate(split(example, "joint", 8), SPECIAL, 1)
    assert joint.ids_BL.tolist() == [[1, 10, 2, 3, 20, 21, 3, 30, 2, 40, 2, 50, 51, 2]]
    assert joint.types_BL.tolist() == [[0] * 9 + [1] * 5]
    assert joint.anchor_T.tolist() == [4, 7] and joint.text_start_B.tolist() == [11]
    assert joint.gold_cells_G3.tolist() == [[1, 0, 1]]
    stacked = collate(split(example, "stacked", 8), SPECIAL, 1)
    assert stacked.ids_BL.tolist() == [
        [1, 10, 2, 20, 21, 2, 40, 2, 50, 51, 2],
        [1, 10, 2, 30, 2, 40, 2, 50, 51, 2, 0],
    ]
    untyped = collate(split(example, "joint", 8), SPECIAL._replace(types=False), 1)
    assert untyped.ids_BL.tolist() == joint.ids_BL.tolist() and not untyped.types_BL.any()
    assert stacked.anchor_T.tolist() == [0, 0] and stacked.piece_T.tolist() == [0, 1]


def test_a_category_that_cannot_fit_is_an_error() -> None:
    example = Example(ids(0), [ids(9)], ids(50), ids(0), regions(["entity"]), ids(0), np.empty((0, 3), np.int32))
    assert len(split(example, "joint", 8, tokens=64)) == 1
    with pytest.raises(ValueError, match=r"a category of 9 tokens .* room for 8; lower max_tokens"):
        split(example, "joint", 8, tokens=63)
