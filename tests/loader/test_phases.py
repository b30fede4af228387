"""A curriculum: each epoch goes through the phases of the mixture in order, and shuffles each by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import ENCODER, Copies, make_shards, ner, question, sentiment, shard_members
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from worlds import corpus, put_corpus

from pipelines.mixtures.mix import mix
from ubert.loader.loader import Loader
from ubert.loader.shards import Shards, open_shards
from ubert.schema.errors import UserError
from ubert.schema.specs.mixture import Mixture
from ubert.schema.specs.recipe import Recipe
from ubert.structure.batch import Special

SPECIAL = Special(cls=101, sep=102, pad=0, marker=1, types=True)
CORPORA = {
    "people": [ner(i, i % 30) for i in range(60)],
    "questions": [question(i) for i in range(25)],
    "reviews": [sentiment(i, 40) for i in range(25)],
}
IDS = [record.record_id for records in CORPORA.values() for record in records]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("phases")


def made(root: Path, copies_RF: np.ndarray[Any, Any]) -> Shards:
    """Shards of a mixture with so many copies of each record in each phase."""
    copies: dict[str, Copies] = dict(zip(IDS, map(tuple, copies_RF.tolist()), strict=True))
    return open_shards(make_shards(root, CORPORA, copies=copies, max_tokens=48))


def loader(shards: Shards, rank: int = 0, world: int = 1, **changes: Any) -> Loader:
    settings: dict[str, Any] = {"name": "made", "mixture": "made", "epochs": 2, "categories_per_piece": 8}
    settings |= {"tokens_per_batch": 1024, "tokens_per_step": 512, "seed": 1}
    return Loader(shards, Recipe(**{**settings, **changes}), SPECIAL, 512, rank, world)


def wanted(shards: Shards) -> list[Counter[int]]:
    """Return how often each phase shows each row, without phases that show none."""
    copies_RF = np.concatenate([file.copies for file in shards.files])
    shown = [{row: count for row, count in enumerate(column) if count} for column in copies_RF.T.tolist()]
    return [Counter(of_phase) for of_phase in shown if of_phase]


def by_phase(
    steps: Iterator[list[int]], phases: list[Counter[int]]
) -> Iterator[tuple[Counter[int], list[list[int]]]]:
    """What the steps of each phase show, where a phase ends once it has shown as much as it should."""
    for of_phase in phases:
        seen: list[list[int]] = []
        while sum(map(len, seen)) < of_phase.total():
            seen.append(next(steps))
        yield Counter(row for step in seen for row in step), seen


@settings(max_examples=15, deadline=None)
@given(
    phases=st.integers(1, 4),
    draw=st.integers(0, 99),
    world=st.sampled_from([1, 2, 4, 8]),
    batches=st.sampled_from(["mixed", "by_task"]),
    packs=st.integers(1, 5),
)
def test_any_curriculum_is_kept_to(
    root: Path, phases: int, draw: int, world: int, batches: str, packs: int
) -> None:
    """In each epoch: the batches of phase 0, then those of phase 1, and so on; each copy once, in its own phase;
    no batch of two phases; none is a pack larger than others of its group; the ranks of any world share them."""
    random = np.random.default_rng(draw)
    copies_RF = random.integers(0, 4, (len(IDS), phases)) * (random.random(phases) < 0.9)
    assume(copies_RF.any())
    shards = made(root, copies_RF)
    numbers: dict[str, Any] = {
        "seed": draw,
        "batches": batches,
        "packs_per_batch": packs,
        "tokens_per_batch": 4096,
    }
    whole = loader(shards, **numbers)
    plan = whole.plans["structure"]
    if plan.smallest < world:
        with pytest.raises(UserError, match=f"fewer than the {world} workers"):
            loader(shards, 0, world, **numbers)
        return
    ranks = [loader(shards, rank, world, **numbers) for rank in range(world)]
    assert {rank.total_steps for rank in ranks} == {whole.total_steps} == {2 * plan.steps}
    orders = []
    for epoch in range(2):
        packs_of = [plan.packs(epoch * plan.steps + i) for i in range(plan.steps)]
        steps = [np.concatenate(of_step).tolist() for of_step in packs_of]
        for of_step, copies in zip(packs_of, steps, strict=True):
            parts = [np.concatenate(rank.share(of_step)).tolist() for rank in ranks]
            assert all(parts) and sorted(copy for part in parts for copy in part) == sorted(copies)
        rows = iter([plan.row_M[copies].tolist() for copies in steps])
        for (seen, _), of_phase in zip(by_phase(rows, wanted(shards)), wanted(shards), strict=True):
            assert seen == of_phase
        assert next(rows, None) is None
        orders.append([copy for copies in steps for copy in copies])
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(len(plan.row_M)))
    assert orders[0] != orders[1]
    some = draw % whole.total_steps
    assert loader(shards, **numbers).step(some).rows == whole.step(some).rows


@pytest.mark.parametrize("batches", ["mixed", "by_task"])
def test_a_phase_is_shuffled_in_itself_anew_in_each_epoch(root: Path, batches: str) -> None:
    shards = made(root, np.ones((len(IDS), 2), np.int64))
    train = loader(shards, batches=batches, tokens_per_batch=512)
    first, second = (
        [[tuple(step) for step in steps] for _, steps in by_phase(of_epoch, wanted(shards))]
        for of_epoch in (
            (sorted(train.step(epoch * train.steps_per_epoch + i).rows) for i in range(train.steps_per_epoch))
            for epoch in range(2)
        )
    )
    orders = [*first, *second]
    assert len({tuple(order) for order in orders}) == 4 and min(map(len, orders)) > 10


def test_copies_of_a_record_have_categories_of_their_own_in_each_phase(root: Path) -> None:
    """Two in the first phase and one in the second: three draws, no two alike."""
    shards = made(root, np.tile([2, 1], (len(IDS), 1)))
    train = loader(shards)
    plan = train.plans["structure"]
    for row in (row for row in range(len(shards)) if shards.record_id(row).startswith("reviews")):
        copies = np.flatnonzero(plan.row_M == row).tolist()
        assert [plan.occurrence(copy) for copy in copies] == [0, 1, 2]
        assert len({tuple(train.prompts.categories(row, copy, 0)) for copy in copies}) == 3


def test_a_run_that_is_resumed_in_a_later_phase_sees_the_rest_of_it(root: Path) -> None:
    shards = made(root, np.tile([1, 2], (len(IDS), 1)))
    whole = [step.records for step in loader(shards, epochs=1).iterate()]
    done = len(whole) * 2 // 3
    ranks = [loader(open_shards(shards.source), rank, 2, epochs=1) for rank in range(2)]
    parts = [[step.records for step in rank.iterate(done)] for rank in ranks]
    assert [sorted([*one, *other]) for one, other in zip(*parts, strict=True)] == [sorted(s) for s in whole[done:]]


def test_a_phase_with_fewer_texts_than_workers_is_reported_at_the_start(root: Path) -> None:
    copies_RF = np.tile([0, 1], (len(IDS), 1))
    copies_RF[:3, 0] = 1
    shards = made(root, copies_RF)
    loader(shards, 0, 3, tokens_per_batch=4096)
    with pytest.raises(
        UserError, match=r"smallest phase of mixture made .* has 3 texts, fewer than the 4 workers"
    ):
        loader(shards, 0, 4, tokens_per_batch=4096)


def test_a_mixture_with_phases_is_trained_in_their_order(tmp_path: Path) -> None:
    """From the YAML's words to batches: the first phase leaves `later` out, the second draws all of it."""
    put_corpus(tmp_path, "first", corpus("first", 60))
    put_corpus(tmp_path, "later", corpus("later", 40))
    sources = [{"corpus": "first"}, {"corpus": "later"}]
    phases = [{"share": 0.5, "weights": {"later": 0}}, {"share": 0.5, "weights": {"first": 0.25}}]
    words = {"name": "made", "sources": sources, "phases": phases, "leaks": "allow", "duplicates": "keep"}
    drawn = mix(Mixture.model_validate(words), root=tmp_path)
    shards = open_shards(shard_members(tmp_path, "made", ENCODER, 48))
    assert shards.manifest.phases == 2
    train = loader(shards, epochs=1, tokens_per_batch=256)
    steps = [Counter(record.partition("/")[0] for record in step.records) for step in train.iterate()]
    of_first, of_later = (source.phases for source in drawn.sources)
    assert of_later[0] == 0 < of_later[1]
    start = next(i for i, step in enumerate(steps) if step["later"])
    assert sum(steps[:start], Counter()) == Counter(first=of_first[0])
    assert sum(steps[start:], Counter()) == Counter(first=of_first[1], later=of_later[1])
    assert sum(step["first"] > 0 < step["later"] for step in steps[start:]) > len(steps[start:]) / 2


def test_copies_of_the_only_record_are_counted_over_phases(tmp_path: Path) -> None:
    """The first copy of a phase follows the last one of the phase before it."""
    only = {"reviews": [sentiment(0, 40)]}
    shards = open_shards(make_shards(tmp_path, only, copies={"reviews/train/0": (2, 1)}))
    plan = loader(shards).plans["structure"]
    assert [plan.occurrence(copy) for copy in range(3)] == [0, 1, 2]
