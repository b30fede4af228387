"""Blocks of shards: each epoch shows each copy once, and a step needs the shards of one block alone."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import Copies, make_shards, ner, question, sentiment
from hypothesis import given, settings
from hypothesis import strategies as st

from ubert.loader.loader import Loader
from ubert.loader.plan import Plan
from ubert.loader.shards import Shards, open_shards
from ubert.schema.errors import UserError
from ubert.schema.manifest import MANIFEST
from ubert.schema.specs.recipe import Recipe
from ubert.structure.batch import Special

SPECIAL = Special(cls=101, sep=102, pad=0, marker=1, types=True)
CORPORA = {
    "people": [ner(i, i % 20) for i in range(1150)],  # 12 shards
    "others": [ner(i, i % 20, "others") for i in range(460)],  # 5 shards
    "questions": [question(i) for i in range(40)],
    "reviews": [sentiment(i, 20) for i in range(40)],
}
COPIES: dict[str, Copies] = {
    "reviews/train/3": (9, 2),
    "questions/train/1": (0, 4),
    "people/train/8": (5, 1),
    "people/train/9": (0, 0),
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    """Under a fingerprint that code doesn't change, as it is part of what the order is keyed by."""
    copies = {record.record_id: (1, 1) for of in CORPORA.values() for record in of} | COPIES
    folder = make_shards(tmp_path_factory.mktemp("blocks"), CORPORA, copies=copies, max_tokens=48)
    path = folder / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "fingerprint": "0123456789abcdef"}))
    return open_shards(folder)


def recipe(**changes: Any) -> Recipe:
    settings: dict[str, Any] = {"name": "made", "mixture": "made", "epochs": 2, "categories_per_piece": 8}
    settings |= {"tokens_per_batch": 1024, "tokens_per_step": 512, "seed": 1, "shuffle_blocks": 4}
    return Recipe(**{**settings, **changes})


def loader(shards: Shards, rank: int = 0, world: int = 1, **changes: Any) -> Loader:
    return Loader(shards, recipe(**changes), SPECIAL, 512, rank, world)


def visits(plan: Plan, epoch: int = 0) -> list[list[list[int]]]:
    """The rows of each step of each visit of an epoch."""
    found: dict[int, list[list[int]]] = {}
    for step in range(epoch * plan.steps, (epoch + 1) * plan.steps):
        rows = plan.row_M[np.concatenate(plan.packs(step))].tolist()
        found.setdefault(plan.visit(step), []).append(rows)
    assert list(found) == sorted(found)
    return list(found.values())


@settings(max_examples=20, deadline=None)
@given(
    blocks=st.integers(1, 40),
    seed=st.integers(0, 99),
    batches=st.sampled_from(["mixed", "by_task"]),
    world=st.sampled_from([1, 2, 4]),
)
def test_any_number_of_blocks_shows_each_copy_once_an_epoch(
    shards: Shards, blocks: int, seed: int, batches: str, world: int
) -> None:
    """In its own phase; no step needs shards of two blocks; the ranks of any world share the same steps."""
    given = {"shuffle_blocks": blocks, "seed": seed, "batches": batches, "packs_per_batch": 8}
    whole = loader(shards, **given)
    plan = whole.plans["structure"]
    copies_RF = np.concatenate([file.copies for file in shards.files])
    phases = [Counter({row: count for row, count in enumerate(of) if count}) for of in copies_RF.T.tolist()]
    for epoch in range(2):
        steps = [step for of_visit in visits(plan, epoch) for step in of_visit]
        seen = Counter[int]()
        order = iter(steps)
        for of_phase in phases:
            seen.clear()
            while seen.total() < of_phase.total():
                seen.update(next(order))
            assert seen == of_phase
        assert next(order, None) is None
    for step in range(2 * plan.steps):
        rows = plan.row_M[np.concatenate(plan.packs(step))].astype(np.int64)
        if blocks > 1:
            assert {*shards.shards_of(rows).tolist()} <= {*plan.shards_of(plan.visit(step))}
    if min(plan.smallest, plan.fewest) < world:
        with pytest.raises(UserError, match=f"fewer than the {world} workers"):
            loader(shards, 0, world, **given)
        return
    some = seed % plan.steps
    parts = [loader(shards, rank, world, **given).step(some).rows for rank in range(world)]
    assert sorted(row for part in parts for row in part) == sorted(whole.step(some).rows)


def test_frozen_batches(shards: Shards) -> None:
    """If this fails, every run with blocks that was stopped before your change resumes on other batches; see
    `test_loader.py`."""
    plan = loader(shards).plans["structure"]
    got = [sorted(plan.row_M[np.concatenate(plan.packs(step))].tolist())[:4] for step in (0, 1, plan.steps)]
    assert got == FROZEN


FROZEN = [[222, 262, 267, 283], [236, 258, 269, 622], [230, 282, 293, 636]]


def test_a_block_has_every_fourth_shard_and_the_small_corpora(shards: Shards) -> None:
    """They are in a new order in each epoch."""
    plan = loader(shards, epochs=9).plans["structure"]
    assert [file.path.split("-")[1] for file in shards.manifest.shards] == (
        ["people"] * 12 + ["others"] * 5 + ["questions", "reviews"]
    )
    blocks = [[*range(block, 17, 4), 17, 18] for block in range(4)]
    orders = [[plan.shards_of(8 * epoch + place) for place in range(4)] for epoch in range(9)]
    assert all(sorted(order) == blocks for order in orders)
    assert len({str(order) for order in orders}) > 4


def test_each_block_has_each_corpus_in_proportion(shards: Shards) -> None:
    for of_visit in visits(loader(shards).plans["structure"])[:4]:
        counts = Counter(shards.record_id(row).split("/")[0] for step in of_visit for row in step)
        for corpus, rows in CORPORA.items():
            assert counts[corpus] == pytest.approx(len(rows) / 4, rel=0.5), corpus


def test_copies_of_a_record_of_a_small_corpus_are_in_all_blocks_and_differ(shards: Shards) -> None:
    """Each is drawn its categories by its number."""
    train = loader(shards)
    plan = train.plans["structure"]
    row = next(row for row in range(len(shards)) if shards.record_id(row) == "reviews/train/3")
    counts = [sum(step.count(row) for step in of_visit) for of_visit in visits(plan)]
    assert sorted(counts[:4]) == [2, 2, 2, 3] and sorted(counts[4:]) == [0, 0, 1, 1]
    copies = np.flatnonzero(plan.row_M == row).tolist()
    assert sorted(plan.occurrence(copy) for copy in copies) == list(range(11))
    assert len({str(train.prompts.categories(row, copy, 0)) for copy in copies}) > 8


def test_one_block_is_the_order_without_blocks(shards: Shards) -> None:
    """Its file has the same name, and those of blocks have names of their own."""

    def orders() -> set[str]:
        return {path.name for path in Path(str(shards.source)).glob("order-*")}

    default = Loader(shards, Recipe(**recipe().model_dump(exclude={"shuffle_blocks"})), SPECIAL, 512)
    before = orders()
    one = loader(shards, shuffle_blocks=1)
    assert [one.step(i).rows for i in range(9)] == [default.step(i).rows for i in range(9)]
    assert orders() == before
    other = loader(shards, shuffle_blocks=50)
    assert other.step(0).rows != one.step(0).rows and len(orders() - before) == 2


def test_several_objectives_go_through_blocks_at_their_own_pace(shards: Shards) -> None:
    changed = {"objectives": {"structure": 0.7, "spanbert": 0.3}, "masking": {"texts": "all"}}
    plan = Plan(shards, recipe(**changed), 512, "spanbert")
    rows = Counter(row for of_visit in visits(plan) for step in of_visit for row in step)
    copies_RF = np.concatenate([file.copies for file in shards.files])
    assert rows == Counter({row: n for row, n in enumerate(copies_RF.sum(axis=1).tolist()) if n})


def test_settings_that_cannot_be_are_refused(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="shuffle_blocks can't be combined with batches: cycle"):
        recipe(batches="cycle")
    monkeypatch.setattr("ubert.loader.index._MOST", 7)
    with pytest.raises(UserError, match=r"2 phases of 4 shuffle_blocks of 1 tasks .* are 8 groups, .* at most 7"):
        loader(shards)
