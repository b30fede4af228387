"""The order of batches is a function of shards, seed, epoch and step. Ranks share the same global batches."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from handmade import make_shards, ner, question, record, sentiment
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from waiting import HANGS, wait_for

from ubert.loader.files import Folder
from ubert.loader.loader import Loader, cuts
from ubert.loader.permutation import permuted
from ubert.loader.prefetch import processes_for
from ubert.loader.shards import Shards, open_shards
from ubert.loader.window import Window
from ubert.schema.errors import UserError
from ubert.schema.keys import keys
from ubert.schema.manifest import MANIFEST
from ubert.schema.specs.recipe import Recipe
from ubert.structure.batch import Batch, Special

SPECIAL = Special(cls=101, sep=102, pad=0, marker=1, types=True)
MANY = 40  # categories of the reviews: more than fit into a piece
CORPORA = {
    "people": [ner(i, i % 30) for i in range(150)],
    "questions": [question(i) for i in range(60)],
    "reviews": [sentiment(i, MANY) for i in range(60)],
}
COPIES = {"people/train/3": 4, "reviews/train/5": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shards(tmp_path_factory.mktemp("store"), CORPORA, copies=COPIES, max_tokens=48)


@pytest.fixture(scope="module")
def shards(folder: Path) -> Shards:
    """Under a fingerprint that code doesn't change, as it is part of what the order is keyed by."""
    path = folder / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "fingerprint": "0123456789abcdef"}))
    return open_shards(folder)


def recipe(**changes: Any) -> Recipe:
    settings: dict[str, Any] = {"name": "made", "mixture": "made", "epochs": 2, "categories_per_piece": 8}
    settings |= {"tokens_per_batch": 1024, "tokens_per_step": 512, "seed": 1}
    return Recipe(**{**settings, **changes})


def loader(shards: Shards, rank: int = 0, world: int = 1, **changes: Any) -> Loader:
    return Loader(shards, recipe(**changes), SPECIAL, 512, rank, world)


def same(one: Batch, other: Batch) -> bool:
    def plain(batch: Batch) -> dict[str, Any]:
        return {
            key: value.tolist() if isinstance(value, Tensor) else value for key, value in asdict(batch).items()
        }

    return plain(one) == plain(other)


@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_frozen_batches(shards: Shards, world: int) -> None:
    """If this fails, runs that were stopped before your change resume on other batches than they would have seen.

    Earlier training can't be repeated, either. If you want that, write it into the change's description, and put
    the new values here. If the values differ only between worlds, the ranks no longer share one order.
    """
    ranks = [loader(shards, rank, world) for rank in range(world)]
    got = []
    for step in (0, 1, ranks[0].steps_per_epoch):
        records = sorted(record for rank in ranks for record in rank.step(step).records)
        got.append([len(records), *records[:3]])
    assert got == FROZEN


FROZEN = [
    [12, "people/train/103", "people/train/133", "people/train/24"],
    [16, "people/train/111", "people/train/112", "people/train/112"],
    [13, "people/train/102", "people/train/144", "people/train/147"],
]


@pytest.mark.parametrize("layout", ["joint", "stacked"])
@pytest.mark.parametrize("world", [2, 4, 8])
def test_ranks_share_out_each_global_batch(shards: Shards, world: int, layout: str) -> None:
    whole = loader(shards, layout=layout, tokens_per_batch=4096)
    ranks = [loader(shards, rank, world, layout=layout, tokens_per_batch=4096) for rank in range(world)]
    assert {rank.total_steps for rank in ranks} == {whole.total_steps}
    for i in (0, 3, whole.total_steps - 1):
        step, parts = whole.step(i), [rank.step(i) for rank in ranks]
        assert {part.examples for part in parts} == {step.examples} == {len(step.records)}
        assert sorted(r for part in parts for r in part.records) == sorted(step.records)
        assert all(part.records for part in parts)
        assert sum(batch.examples for part in parts for batch in part.batches) == step.examples
        gold = [sum(len(b.gold_cells_G3) for b in p.batches) for p in parts]
        assert sum(gold) == sum(len(b.gold_cells_G3) for b in step.batches)


def test_a_fraction_of_an_epoch_is_counted_as_it_is_written(shards: Shards) -> None:
    assert loader(shards, tokens_per_batch=496, epochs=1).total_steps == 50
    assert loader(shards, tokens_per_batch=496, epochs=1.1).total_steps == 55  # 1.1 * 50 > 55 in floats
    assert loader(shards, tokens_per_batch=496, epochs=1.11).total_steps == 56


@pytest.mark.parametrize("layout", ["joint", "stacked"])
def test_each_epoch_shows_each_copy_once(shards: Shards, layout: str) -> None:
    expected = Counter({shards.record_id(row): 0 for row in range(len(shards))})
    for row in range(len(shards)):
        file, at = shards.find(row)
        expected[shards.record_id(row)] += int(file.copies[at].sum())
    train = loader(shards, layout=layout)
    assert train.total_steps == 2 * train.steps_per_epoch
    orders = []
    for epoch in range(2):
        steps = range(epoch * train.steps_per_epoch, (epoch + 1) * train.steps_per_epoch)
        orders.append([record for i in steps for record in train.step(i).records])
        assert Counter(orders[-1]) == expected
    assert orders[0] != orders[1]


def test_each_epoch_packs_other_copies_together(shards: Shards) -> None:
    train = loader(shards)
    steps, plan = train.steps_per_epoch, train.plans["structure"]
    first, second = (
        {frozenset(pack.tolist()) for i in range(epoch * steps, (epoch + 1) * steps) for pack in plan.packs(i)}
        for epoch in range(2)
    )
    assert len(first & second) < len(first) / 2


@pytest.mark.parametrize("layout", ["joint", "stacked"])
def test_batches_keep_to_their_budgets(shards: Shards, layout: str) -> None:
    train = loader(shards, layout=layout, epochs=1, tokens_per_batch=2048)
    padded = real = 0
    for i in range(train.total_steps):
        batches = train.step(i).batches
        sizes = [batch.ids_BL.numel() for batch in batches]
        assert sum(sizes) <= 2048 and max(sizes) <= 512
        padded += sum(sizes)
        real += sum(int(batch.mask_BL.sum()) for batch in batches)
    assert real >= (0.97 if layout == "joint" else 0.95) * padded


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 2)), min_size=1, max_size=9), st.integers(1, 30))
def test_micro_batches_are_as_large_as_their_budget_allows(rows: list[tuple[int, int]], most: int) -> None:
    lengths, counts = zip(*rows, strict=True)

    def size(start: int, stop: int) -> int:
        return int(max(lengths[start:stop]) * sum(counts[start:stop]))

    found = list(cuts(lengths, counts, most))
    assert [row for start, stop in found for row in range(start, stop)] == list(range(len(rows)))
    for start, stop in found:
        assert stop - start == 1 or size(start, stop) <= most
        assert stop == len(rows) or size(start, stop + 1) > most


def test_resumed_is_the_same_as_uninterrupted(folder: Path, shards: Shards) -> None:
    train = loader(shards)
    uninterrupted = list(train.iterate())
    assert len(uninterrupted) == train.total_steps
    resumed = list(loader(open_shards(folder)).iterate(start=train.total_steps - 5))
    assert len(resumed) == 5
    for one, other in zip(uninterrupted[-5:], resumed, strict=True):
        assert one.records == other.records
        assert all(same(a, b) for a, b in zip(one.batches, other.batches, strict=True))


def consume(folder: Path, rank: int, world: int, seen: Path) -> None:
    """Write down the records of each step but the last ones, until somebody ends this."""
    with seen.open("w") as file:
        for number, step in enumerate(loader(open_shards(folder), rank, world, epochs=1).iterate(), 1):
            file.write(json.dumps(step.records) + "\n")
            file.flush()
            time.sleep(0.02 if number < 15 else HANGS)


@pytest.mark.usefixtures("shards")
def test_killed_and_resumed_in_another_world_sees_what_is_left_and_nothing_twice(
    folder: Path, tmp_path: Path
) -> None:
    two = [tmp_path / f"rank-{rank}" for rank in range(2)]
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=consume, args=(folder, rank, 2, seen)) for rank, seen in enumerate(two)]
    for worker in workers:
        worker.start()
    wait_for(lambda: all(seen.exists() and seen.read_text().count("\n") >= 5 for seen in two))
    for worker in workers:
        worker.kill()
        worker.join()
    steps = [
        [json.loads(line) for line in seen.read_text().splitlines(True) if line.endswith("\n")] for seen in two
    ]
    done = min(map(len, steps))
    before = Counter(record for rank in steps for step in rank[:done] for record in step)
    four = [loader(open_shards(folder), rank, 4, epochs=1) for rank in range(4)]
    after = Counter(record for rank in four for step in rank.iterate(done) for record in step.records)
    whole = loader(open_shards(folder), epochs=1)
    assert done < whole.total_steps
    assert before + after == Counter(record for step in whole.iterate() for record in step.records)


def test_a_reader_that_stops_early_leaves_no_thread(shards: Shards) -> None:
    import threading

    steps = loader(shards).iterate()
    next(steps)
    steps.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("loader")]


def test_the_window_moves_on_only_after_the_steps_before_are_made(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moving on to a block releases the shards of the block before."""
    events: list[tuple[str, int]] = []
    train, make = loader(shards), Loader.step

    def slow(self: Loader, i: int) -> Any:
        time.sleep(0.01)
        events.append(("made", i))
        return make(self, i)

    monkeypatch.setattr(Window, "enter", lambda self, i: events.append(("entered", i)))
    monkeypatch.setattr(Loader, "step", slow)
    count = len(list(train.iterate()))
    assert events == [(what, i) for i in range(count) for what in ("entered", "made")]


def test_processes_prepare_the_same_steps_through_signals_and_leave_with_their_reader(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = torch.utils.data._utils.worker._worker_loop

    def signalled(*given: Any) -> None:  # before the process has done anything
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        prepare(*given)

    monkeypatch.setattr(torch.utils.data._utils.worker, "_worker_loop", signalled)
    whole = loader(shards)
    steps = Loader(shards, whole.recipe, SPECIAL, 512, processes=2).iterate(1)
    found = [next(steps)]
    children = multiprocessing.active_children()
    assert len(children) == 2
    for child in children:
        for number in (signal.SIGTERM, signal.SIGINT):  # as a terminal or a scheduler sends them to all processes
            os.kill(child.pid or 0, number)
    found += list(itertools.islice(steps, 4))
    for i, step in enumerate(found, 1):
        expected = whole.step(i)
        assert (step.records, step.examples) == (expected.records, expected.examples)
        assert all(map(same, step.batches, expected.batches))
        assert [batch.work.groups for batch in step.batches] == [batch.work.groups for batch in expected.batches]
    steps.close()
    wait_for(lambda: not any(child.is_alive() for child in children))


@pytest.mark.parametrize(
    ("device", "cores", "workers", "expected"),
    [("cpu", 16, 1, 0), ("cuda", 64, 1, 12), ("cuda", 16, 4, 3), ("cuda", 1, 1, 0), ("cuda", 2, 4, 0)],
)
def test_processes_share_the_cores_of_a_machine_with_a_gpu(
    device: str, cores: int, workers: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(workers))
    assert processes_for(torch.device(device)) == expected


@pytest.mark.parametrize("most", [1, 2])
def test_what_a_text_has_is_asked_for_be_it_more_than_the_limit(shards: Shards, most: int) -> None:
    """Most texts of people have a person and a place; the others are asked for as many categories as allowed."""
    train = loader(shards, categories_per_piece=most)
    row_M = train.plans["structure"].row_M.tolist()
    counts = set()
    for row in range(len(shards)):
        example = shards.example(row)
        gold = {*example.gold_anchors.tolist(), *example.gold_cells[:, 0].tolist()}
        asked = train.prompts.categories(row, row_M.index(row), 0).tolist()
        assert asked == sorted(gold | set(asked))
        assert len(asked) == min(max(most, len(gold)), len(example.categories))
        counts.add((len(gold), len(asked)))
    assert (2, 2) in counts and (0, most) in counts


def test_a_long_list_of_categories_is_drawn_from(shards: Shards) -> None:
    """Eight of forty, the gold one among them; others in the next epoch, over time all of them."""
    train = loader(shards, epochs=40)
    row = next(row for row in range(len(shards)) if shards.record_id(row) == "reviews/train/7")
    copy = int(np.flatnonzero(train.plans["structure"].row_M == row)[0])
    draws = [train.prompts.categories(row, copy, epoch).tolist() for epoch in range(40)]
    assert draws[0] == [4, 6, 7, 12, 23, 25, 31, 36]  # frozen, as the batches are
    assert all(len(set(draw)) == 8 and draw == sorted(draw) and 7 in draw for draw in draws)
    assert set().union(*draws) == set(range(MANY)) and draws[0] != draws[1]
    seen = Counter(category for draw in draws for category in draw if category != 7)
    assert max(seen.values()) < 20  # of 40; 7.2 are expected


def test_what_is_drawn_depends_on_the_record_and_the_epoch_not_on_its_batch(shards: Shards) -> None:
    """Copies of one record differ within an epoch, too."""
    row = next(row for row in range(len(shards)) if shards.record_id(row) == "reviews/train/5")
    draws = []
    for other in ({}, {"batches": "by_task"}, {"tokens_per_batch": 4096}):
        train = loader(shards, **other)
        copies = np.flatnonzero(train.plans["structure"].row_M == row).tolist()
        draws.append([train.prompts.categories(row, copy, 3).tolist() for copy in copies])
    assert draws[0] == draws[1] == draws[2]
    assert len(draws[0]) == 2 and draws[0][0] != draws[0][1]


def tasks(step: list[str]) -> set[str]:
    return {record.partition("/")[0] for record in step}


def test_a_batch_is_of_several_tasks_and_lengths_or_of_one_task(shards: Shards) -> None:
    mixed, apart = loader(shards, epochs=1), loader(shards, epochs=1, batches="by_task")
    several = [tasks(mixed.step(i).records) for i in range(mixed.total_steps)]
    assert np.mean([len(names) > 1 for names in several]) > 0.8
    assert {len(tasks(apart.step(i).records)) for i in range(apart.total_steps)} == {1}
    lengths = {batch.ids_BL.shape[1] for batch in mixed.step(0).batches}
    assert len(lengths) > 1


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**64 - 1), st.integers(0, 99))
def test_a_permutation_is_one_at_any_size_and_known_at_each_place(size: int, key: int, part: int) -> None:
    whole = permuted(np.arange(size), size, key, part)
    assert sorted(whole.tolist()) == list(range(size))
    assert permuted([size // 2], size, key, part).tolist() == [whole[size // 2]]


def test_permutations_of_few_are_all_as_likely() -> None:
    seen = Counter(tuple(permuted(np.arange(4), 4, key).tolist()) for key in range(4800))
    assert len(seen) == 24 and min(seen.values()) > 140 and max(seen.values()) < 270  # 200 are expected


def test_the_order_beside_the_shards_is_made_once_and_leaves_no_residue(tmp_path: Path) -> None:
    folder = make_shards(tmp_path, CORPORA, copies=COPIES, max_tokens=48)
    one = [loader(open_shards(folder)).step(i).records for i in range(3)]
    made = {path: path.stat().st_mtime_ns for path in folder.glob("order-*")}
    assert len(made) == 2 and not list(folder.glob(".tmp*"))
    assert [loader(open_shards(folder)).step(i).records for i in range(3)] == one
    assert {path: path.stat().st_mtime_ns for path in folder.glob("order-*")} == made
    assert isinstance(
        loader(open_shards(folder)).plans["structure"].row_M, np.memmap
    )  # it may be larger than memory
    loader(open_shards(folder), tokens_per_batch=2048, packs_per_batch=1, tokens_per_step=2048, seed=9)
    assert len(list(folder.glob("order-*"))) == 2
    loader(open_shards(folder), batches="by_task")
    assert len(list(folder.glob("order-*"))) == 4
    for files, changed in ((6, {"layout": "stacked"}), (8, {"categories_per_piece": 7})):
        loader(open_shards(folder), **changed)
        assert len(list(folder.glob("order-*"))) == files
    Loader(open_shards(folder), recipe(), SPECIAL, 256)
    assert len(list(folder.glob("order-*"))) == 10


def test_half_an_order_is_made_again(tmp_path: Path) -> None:
    folder = make_shards(tmp_path, CORPORA, copies=COPIES, max_tokens=48)
    expected = loader(open_shards(folder)).step(0).records
    for part in ("sizes", "rows"):
        [half] = folder.glob(f"order-*-{part}.npy")
        content = half.read_bytes()
        half.unlink()
        assert loader(open_shards(folder)).step(0).records == expected
        assert half.read_bytes() == content


def test_an_order_that_cannot_be_written_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    directory = damaged(folder, tmp_path)
    before = sorted(directory.iterdir())

    def make(halves: Sequence[Path]) -> None:
        halves[0].write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match=r"order-b: cannot write .*: No space left on device; free"):
        Folder(directory).derived(["order-a", "order-b"], make)
    assert sorted(directory.iterdir()) == before


def in_little_memory(folder: Path, room: int) -> None:
    """Exit with 0 where an order larger than the memory that is left can be used, and could not be read whole."""
    shards = open_shards(folder)  # by threads, whose stacks count
    [data] = re.findall(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
    resource.setrlimit(resource.RLIMIT_DATA, (1024 * int(data) + room,) * 2)
    train = loader(shards, epochs=1)
    for i in (0, train.total_steps // 2, train.total_steps - 1):
        assert train.step(i).records
    try:
        np.array(train.plans["structure"].row_M)
    except MemoryError:
        sys.exit(0)
    sys.exit("all of it was read")


def test_an_index_larger_than_memory_is_used_from_the_disk(tmp_path: Path) -> None:
    people = [ner(i, i % 30) for i in range(100)]
    copies = dict.fromkeys((record.record_id for record in people), 80_000)
    folder = make_shards(tmp_path, {"people": people}, copies=copies, max_tokens=128)
    order = loader(open_shards(folder), epochs=1).plans["structure"].row_M
    assert order.nbytes == 32_000_000
    child = multiprocessing.get_context("spawn").Process(target=in_little_memory, args=(folder, 24_000_000))
    child.start()
    child.join(120)
    assert child.exitcode == 0


def test_rows_of_several_shards_have_their_names_and_tasks(shards: Shards) -> None:
    rows = np.array([0, 99, 100, 101, len(shards) - 61, len(shards) - 1])
    names, tasks = shards.ids_and_tasks(rows)
    assert names.to_pylist() == [shards.record_id(row) for row in rows.tolist()]
    of_corpus = {"people": "ner", "questions": "qa", "reviews": "classification"}
    assert tasks.tolist() == [of_corpus[name.partition("/")[0]] for name in names.to_pylist()]
    assert {*tasks.tolist()} == {*of_corpus.values()}


def test_a_step_says_how_often_its_texts_were_shown_before(shards: Shards) -> None:
    train = loader(shards)
    steps = train.steps_per_epoch
    assert [train.step(i).epoch for i in (0, steps - 1, steps, 2 * steps - 1)] == [0, 0, 1, 1]


def test_the_seed_changes_the_order(shards: Shards) -> None:
    one, other = loader(shards), loader(shards, seed=2)
    assert one.step(0).records != other.step(0).records


@pytest.mark.parametrize(("epochs", "steps"), [(0.5, None), (1.25, None), (None, 7)])
def test_length_of_a_run(shards: Shards, epochs: float | None, steps: int | None) -> None:
    train = loader(shards, epochs=epochs, steps=steps)
    expected = steps or int(np.ceil((epochs or 0) * train.steps_per_epoch))
    assert train.total_steps == expected == len(list(train.iterate()))


@settings(max_examples=25, deadline=None)
@given(st.integers(600, 5000), st.integers(1, 12), st.sampled_from(["joint", "stacked"]), st.integers(0, 9))
def test_any_recipe_that_is_accepted_keeps_its_word(
    shards: Shards, tokens: int, categories: int, layout: str, seed: int
) -> None:
    numbers = {"tokens_per_batch": tokens, "tokens_per_step": 600, "categories_per_piece": categories}
    train = loader(shards, layout=layout, seed=seed, epochs=1, **numbers)
    copies = [np.concatenate(train.plans["structure"].packs(i)) for i in range(train.total_steps)]
    assert sorted(np.concatenate(copies).tolist()) == list(range(len(train.plans["structure"].row_M)))
    assert min(map(len, copies)) >= train.plans["structure"].smallest
    step = train.step(seed % train.total_steps)
    assert max(batch.ids_BL.numel() for batch in step.batches) <= 600


def test_keys_are_uniform_and_depend_on_every_part() -> None:
    drawn = keys(np.arange(1 << 14), 1, 2)
    assert len(np.unique(drawn)) == len(drawn)
    bits = np.unpackbits(drawn.view(np.uint8)).mean()
    assert abs(bits - 0.5) < 0.005
    for other in (keys(np.arange(8), 2, 1), keys(np.arange(8), 1, 2, 0), keys(np.arange(8), 1)):
        assert not set(other.tolist()) & set(drawn.tolist())


def test_too_many_workers_is_reported_at_the_start(shards: Shards) -> None:
    with pytest.raises(UserError, match=r"64 workers; raise packs_per_batch \(4\) or tokens_per_batch \(1024\)"):
        loader(shards, world=64)


def test_more_packs_a_batch_suffice_for_more_workers(shards: Shards) -> None:
    """The packs have three texts or more, and their number is odd, so a batch of two packs may be one."""
    with pytest.raises(UserError, match=r"only 3 texts, fewer than the 4 workers; raise packs_per_batch \(2\)"):
        loader(shards, world=4, tokens_per_batch=880, packs_per_batch=2)
    loader(shards, world=4, tokens_per_batch=880, packs_per_batch=3)


def test_a_batch_has_at_most_as_many_workers_as_texts(tmp_path: Path) -> None:
    alike = {"people": [ner(42 * i) for i in range(24)]}  # one text
    shards = open_shards(make_shards(tmp_path, alike))
    [[batch]] = batches_of(loader(shards, tokens_per_batch=8192, tokens_per_step=8192))
    changed = {"tokens_per_batch": 4 * 3 * batch.ids_BL.shape[1], "epochs": 1}  # three texts a pack
    assert [len(step.rows) for step in loader(shards, **changed).iterate()] == [12, 12]
    parts = [loader(shards, rank, 12, **changed).step(0).rows for rank in range(12)]
    assert list(map(len, parts)) == [1] * 12
    with pytest.raises(UserError, match="batch may have only 12 texts, fewer than the 13"):
        loader(shards, 0, 13, **changed)


@pytest.mark.parametrize("name", ["tokens_per_batch", "tokens_per_step"])
def test_a_budget_below_one_row_is_reported_at_the_start(shards: Shards, name: str) -> None:
    with pytest.raises(UserError, match=f"{name} is 20, but record .* alone takes up to"):
        loader(shards, **{name: 20})


def batches_of(train: Loader) -> list[list[Batch]]:
    """Return the batches of each step of an epoch."""
    steps = [train.step(i).batches for i in range(train.steps_per_epoch)]
    return [[batch for batch in step if isinstance(batch, Batch)] for step in steps]


@pytest.mark.parametrize(
    ("layout", "most"), [("joint", 8), ("joint", 2), ("joint", 1), ("stacked", 8), ("stacked", 1)]
)
def test_the_least_budget_is_what_the_error_says(shards: Shards, layout: str, most: int) -> None:
    """The largest row takes it, in the joint layout all of it. A token less is too few."""
    given = {"layout": layout, "categories_per_piece": most}
    with pytest.raises(UserError) as error:
        loader(shards, tokens_per_batch=20, **given)
    said = r"record (\S+) alone takes up to (\d+) \((\d+) sequences of (\d+) tokens\)"
    [(named, *numbers)] = re.findall(said, str(error.value))
    cost, sequences, length = map(int, numbers)
    assert cost == sequences * length
    least = {"tokens_per_batch": cost, "tokens_per_step": cost}
    sizes = [batch.ids_BL.numel() for step in batches_of(loader(shards, **least, **given)) for batch in step]
    assert max(sizes) <= cost
    if layout == "joint":
        rows = [row for row in range(len(shards)) if shards.record_id(row) == named]
        assert max(sizes) == cost and 48 in [len(shards.example(row).text) for row in rows]
    for name in least:
        with pytest.raises(UserError, match=f"{name} is {cost - 1}, but record"):
            loader(shards, **least | {name: cost - 1}, **given)


@pytest.mark.parametrize("positions", [60, 62, 64])
def test_categories_beyond_the_encoder_are_asked_for_in_more_sequences(shards: Shards, positions: int) -> None:
    """All of them, with all that the texts have. Sequences and batches keep to their limits."""
    found = []
    for most in (positions, 512):
        steps = batches_of(Loader(shards, recipe(), SPECIAL, most))
        batches = [batch for step in steps for batch in step]
        assert max(batch.ids_BL.shape[1] for batch in batches) <= most
        assert max(batch.ids_BL.numel() for batch in batches) <= 512
        assert max(sum(batch.ids_BL.numel() for batch in step) for step in steps) <= 1024
        tables, cells = (sum(len(b.category_T) for b in batches), sum(len(b.gold_cells_G3) for b in batches))
        anchors = sum(int(b.gold_anchor_T.sum()) for b in batches)
        found.append((tables, cells, anchors, sum(len(b.ids_BL) for b in batches)))
    assert found[0][:3] == found[1][:3]
    assert (found[0][3] > found[1][3]) == (positions < 64)  # the longest texts with their three categories


def test_a_text_beyond_the_encoder_says_how_long_texts_may_be(tmp_path: Path) -> None:
    """Its record is named, wherever its shard is, and texts of the length that is named fit exactly."""
    people = [ner(i, 30 if i == 120 else 0) for i in range(130)]

    def shards(max_tokens: int) -> Shards:
        return open_shards(make_shards(tmp_path, {"people": people}, max_tokens=max_tokens))

    said = "record people/train/120: a text of 48 tokens and a category of 1 don't fit .* 50 positions; .* at most"
    with pytest.raises(UserError, match=f"^{said}") as error:
        Loader(shards(48), recipe(), SPECIAL, 50)
    most = int(str(error.value).split()[-1])
    batches = batches_of(Loader(shards(most), recipe(), SPECIAL, 50))
    assert max(batch.ids_BL.shape[1] for step in batches for batch in step) == 50
    with pytest.raises(UserError, match=f"people/train/120: a text of {most + 1} tokens .* at most {most}$"):
        Loader(shards(most + 1), recipe(), SPECIAL, 50)


def test_a_text_beyond_the_encoder_is_reported_at_the_start(shards: Shards) -> None:
    with pytest.raises(UserError, match="don't fit into the encoder's 40 positions"):
        Loader(shards, recipe(), SPECIAL, 40)


def damaged(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "damaged"))


@pytest.mark.parametrize("name", ["shard-people-*.arrow", "draws.arrow", "prompts.arrow", "categories.arrow"])
def test_a_flipped_byte_is_found(folder: Path, tmp_path: Path, name: str) -> None:
    path = next(damaged(folder, tmp_path).glob(name))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"{path.name}: changed since it was written.*ubert shard made"):
        open_shards(path.parent)
    Folder(path.parent, verify=False)  # reads no file


def test_a_file_of_another_form_is_refused(folder: Path, tmp_path: Path) -> None:
    directory = damaged(folder, tmp_path)
    shutil.copy(directory / "prompts.arrow", directory / "categories.arrow")
    with pytest.raises(UserError, match=r"categories\.arrow: not a shard file of this version"):
        open_shards(directory, verify=False)


def test_a_mixture_whose_texts_have_no_token_is_refused(tmp_path: Path) -> None:
    empty = {"empty": [record("empty", 0, "ner", "\u200b", ["place"])]}
    with pytest.raises(UserError, match="no rows; give the mixture made more records"):
        open_shards(make_shards(tmp_path, empty))


def test_a_missing_shard_is_found(folder: Path, tmp_path: Path) -> None:
    directory = damaged(folder, tmp_path)
    next(directory.glob("shard-*.arrow")).unlink()
    with pytest.raises(UserError, match="missing, though the manifest names it"):
        open_shards(directory, verify=False)


def test_shards_of_a_later_version_are_refused(folder: Path, tmp_path: Path) -> None:
    path = damaged(folder, tmp_path) / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 99}))
    with pytest.raises(UserError, match="schema version 99, expected"):
        open_shards(path.parent)


def test_unfinished_shards_are_refused(folder: Path, tmp_path: Path) -> None:
    directory = damaged(folder, tmp_path)
    (directory / MANIFEST).unlink()
    with pytest.raises(UserError, match="never finished"):
        open_shards(directory)
