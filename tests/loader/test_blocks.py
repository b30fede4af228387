"""Blocks of shards: each epoch shows each copy once, and a step needs only the shards of one block."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import Copies, make_shards, ner, question, sentiment
from hypothesis import given, settings
from hypothesis import strategies as st

from ubert.loader.blocks import Blocks
from ubert.loader.files import Folder
from ubert.loader.loader import Loader
from ubert.loader.plan import Plan
from ubert.loader.shards import SCAN_AHEAD, Shards, open_shards
from ubert.loader.window import Window
from ubert.schema.errors import UserError
from ubert.schema.manifest import MANIFEST, ShardFile
from ubert.schema.specs.recipe import Recipe, Trained
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
    monkeypatch.setattr("ubert.loader.index._GROUPS", 7)
    with pytest.raises(UserError, match=r"2 phases of 4 shuffle_blocks of 1 tasks .* are 8 groups, .* at most 7"):
        loader(shards)
    monkeypatch.setattr("ubert.loader.index._GROUPS", 8)
    loader(shards)


@pytest.mark.parametrize(
    ("wanted", "needed", "own"),
    [
        (1, [[*range(7)]], [[*range(7)]]),
        (4, [[0, 1, 2, 3 + block] for block in range(4)], [[3 + block] for block in range(4)]),
        (5, [[0, 1, 6], [0, 2], [0, 3], [0, 4], [0, 5]], [[1, 6], [2], [3], [4], [5]]),
        (9, [[0, 1 + block] for block in range(6)], [[1 + block] for block in range(6)]),
    ],
)
def test_corpora_that_are_together_no_larger_than_a_block_are_shared(
    shards: Shards, wanted: int, needed: list[list[int]], own: list[list[int]]
) -> None:
    """`a` has four of 40 tokens, and `a-b` has six, in two shards. A name may have hyphens."""
    files = [("a", 4), ("a-b", 3), ("a-b", 3), ("a-c", 7), ("a-c", 7), ("a-c", 8), ("a-c", 8)]
    made = [
        ShardFile(path=f"shard-{corpus}-{number:016x}.arrow", rows=1, tokens=tokens, blake3="")
        for number, (corpus, tokens) in enumerate(files)
    ]
    blocks = Blocks(shards.manifest.model_copy(update={"shards": made}), wanted)
    assert [blocks.shards(block) for block in range(blocks.count)] == needed
    assert [blocks.own(block) for block in range(blocks.count)] == own


def test_an_order_that_is_made_of_small_parts_is_the_same(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(str(shards.source))

    def made() -> list[bytes]:
        before = {*folder.glob("order-*")}
        loader(shards, shuffle_blocks=3, categories_per_piece=5)
        files = sorted({*folder.glob("order-*")} - before)
        contents = [path.read_bytes() for path in files]
        for path in files:
            path.unlink()
        return contents

    whole = made()
    monkeypatch.setattr("ubert.loader.index.CHUNK", 7)  # rows; a file has up to a hundred
    assert len(whole) == 2 and made() == whole


class Watched(Folder):
    """A folder that notes what is fetched ahead, in order, and what is kept."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, verify=False)
        self.fetched: list[list[str]] = []
        self.kept: list[set[str]] = []

    def ahead(self, files: Iterable[ShardFile]) -> None:
        self.fetched.append([file.path for file in files])

    def keep(self, files: Iterable[ShardFile]) -> None:
        self.kept.append({file.path for file in files})


def watched(shards: Shards, rank: int, world: int, **changes: Any) -> tuple[Watched, Loader]:
    """Return a loader whose order exists, and its folder."""
    loader(shards, **changes)
    source = Watched(Path(str(shards.source)))
    return source, loader(open_shards(source), rank, world, **changes)


@pytest.mark.parametrize(("blocks", "start", "rank", "world"), [(1, 5, 0, 1), (4, 0, 1, 2)])
def test_shards_are_fetched_in_the_order_of_their_use_up_to_the_end_of_the_next_block(
    shards: Shards, blocks: int, start: int, rank: int, world: int
) -> None:
    """Those of the block and of the next one are kept. Without blocks, all are fetched once and stay."""
    source, train = watched(shards, rank, world, shuffle_blocks=blocks)
    plan, names = train.plans["structure"], [file.path for file in shards.manifest.shards]

    def used(steps: list[int]) -> list[str]:
        rows = [plan.row_M[copies].astype(np.int64) for i in steps for copies in train.share(plan.packs(i))]
        return list(dict.fromkeys(names[number] for of_pack in rows for number in shards.shards_of(of_pack)))

    assert list(train.iterate(start))
    of_step = {i: plan.visit(i) for i in range(start, train.total_steps)}
    visits = sorted({*of_step.values()})
    assert len(visits) == (16 if blocks > 1 else 1)
    expected = [used([i for i, visit in of_step.items() if visit in (now, now + 1)]) for now in visits]
    assert source.fetched == [*expected, []]
    kept = [{names[number] for one in (now, now + 1) for number in plan.shards_of(one)} for now in visits]
    assert source.kept == ([*kept, set()] if blocks > 1 else [])


def test_each_objective_has_its_current_and_its_next_block(shards: Shards) -> None:
    """An objective whose first step is yet to come has the block of that step."""
    changed = {"objectives": {"structure": 0.7, "spanbert": 0.3}, "masking": {"texts": "all"}}
    source, train = watched(shards, 0, 1, **changed)
    names, steps = [file.path for file in shards.manifest.shards], range(20, train.total_steps)
    now: dict[Trained, int] = {}
    for i in reversed(steps):
        objective, own_step = train.schedule(i)
        now[objective] = train.plans[objective].visit(own_step)
    every, share = train.plans, train.share
    window = Window(train.shards, every, train.schedule, share, steps, train.steps_per_epoch)
    seen = set()
    for i in steps:
        window.enter(i)
        objective, own_step = train.schedule(i)
        now[objective] = train.plans[objective].visit(own_step)
        blocks = [(of, visit + later) for of, visit in now.items() for later in (0, 1)]
        assert source.kept[-1] == {names[number] for of, one in blocks for number in every[of].shards_of(one)}
        seen.add(tuple(now.values()))
    assert len(seen) > 10 and len(source.kept) == len(seen)
    window.close()
    assert (source.fetched[-1], source.kept[-1]) == ([], set())


def test_a_scan_of_all_rows_has_a_few_shards_at_a_time(shards: Shards) -> None:
    """After it, those that are opened stay."""
    source = Watched(Path(str(shards.source)))
    opened = open_shards(source)
    names = [file.path for file in opened.manifest.shards]
    assert [columns.shard for columns in opened.files] == list(range(len(names)))
    assert source.fetched == [names[i : i + SCAN_AHEAD] for i in range(len(names))]
    assert source.kept == [{*of_scan} for of_scan in source.fetched]
    assert opened.record_id(0) == "people/train/0" and len(source.kept) == len(names)
