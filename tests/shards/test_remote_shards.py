"""Batches from an object store equal those from a folder, for any state of the cache and failures of the store."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
from handmade import make_shards, ner, question, sentiment
from object_store import ObjectStore
from waiting import HANGS, wait_for

from pipelines.shards.remote import RemoteShards, cache_folder
from pipelines.store.disk_cache import HELD, LOCK, DiskCache
from pipelines.store.storage import ObjectPath
from ubert.loader.files import Files, every_file
from ubert.loader.loader import Loader, Step
from ubert.loader.shards import Shards, open_shards
from ubert.schema.errors import UserError
from ubert.schema.manifest import MANIFEST
from ubert.schema.specs.recipe import Recipe
from ubert.structure.batch import Special

CORPORA = {
    "people": [ner(i, i % 30) for i in range(350)],
    "questions": [question(i) for i in range(60)],
    "reviews": [sentiment(i, 5) for i in range(160)],
}
BOUND = 10_000_000
RECIPE = Recipe(name="made", mixture="made", epochs=1, tokens_per_batch=1024, tokens_per_step=512, seed=1)


@pytest.fixture(scope="module")
def there(object_store: ObjectStore) -> ObjectPath:
    return make_shards(ObjectPath("bucket/remote-shards"), CORPORA, max_tokens=48)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[list[object]]:
    here = make_shards(tmp_path_factory.mktemp("here"), CORPORA, max_tokens=48)
    return steps(here)


MANY = {"people": [ner(i, i % 30) for i in range(1150)], "reviews": [sentiment(i, 5) for i in range(60)]}
BLOCKS = RECIPE.model_copy(update={"shuffle_blocks": 6, "epochs": 2})


def files(there: ObjectPath, cache: Path, bound: int = BOUND) -> RemoteShards:
    return RemoteShards(there, DiskCache(cache, bound))


def steps(
    shards: Path | Files,
    start: int = 0,
    rank: int = 0,
    world: int = 1,
    recipe: Recipe = RECIPE,
    together: Barrier | None = None,
) -> list[list[object]]:
    """What is in the steps of a run, as one can compare it. With `together`, workers begin each step at once."""

    def plain(step: Step) -> list[object]:
        if together is not None:
            together.wait(timeout=HANGS)
        return [step.records, step.examples, *(batch.ids_BL.tolist() for batch in step.batches)]

    loader = Loader(open_shards(shards), recipe, Special(101, 102, 0, 1, True), 512, rank, world)
    try:
        return [plain(step) for step in loader.iterate(start)]
    except UserError:
        if together is not None:
            together.abort()  # the other worker would wait
        raise


def in_cache(cache: Path) -> Sequence[Path]:
    return [path for path in cache.iterdir() if path.suffix != HELD and path.name != LOCK]


def bytes_in_cache(cache: Path) -> int:
    with (cache / LOCK).open("ab") as lock:  # without it, a file evicted meanwhile and its successor both count
        fcntl.flock(lock, fcntl.LOCK_EX)
        return sum(path.stat().st_size for path in in_cache(cache))


def test_batches_are_those_of_a_folder_cold_warm_and_resumed(
    there: ObjectPath, expected: list[list[object]], object_store: ObjectStore, tmp_path: Path
) -> None:
    assert steps(files(there, tmp_path)) == expected
    asked: list[str] = []
    with object_store.failing(lambda method, path: asked.append(path)):
        assert steps(files(there, tmp_path), start=3) == expected[3:]
    assert not [path for path in asked if path.endswith((".arrow", ".npy"))], "all is in the cache"
    halves = [steps(files(there, tmp_path), rank=rank, world=2) for rank in range(2)]
    for step, parts in zip(expected, zip(*halves, strict=True), strict=True):
        assert sorted([*parts[0][0], *parts[1][0]]) == sorted(step[0])


def test_a_store_that_fails_now_and_then_gives_the_same_batches(
    there: ObjectPath, expected: list[list[object]], object_store: ObjectStore, tmp_path: Path
) -> None:
    faults = iter(["500", None, "cut", None, "503", None, "drop", None, "hang", None] * 1000)
    with object_store.failing(lambda method, path: next(faults)):
        assert steps(files(there, tmp_path)) == expected


def test_shards_are_read_in_order_through_a_cache_that_holds_few(there: ObjectPath, tmp_path: Path) -> None:
    whole = files(there, tmp_path / "whole")
    shards = open_shards(whole)
    ids = [shards.record_id(row) for row in range(len(shards))]
    sizes = {file.path: whole.path(file).stat().st_size for file in shards.manifest.shards}
    beside = bytes_in_cache(tmp_path / "whole") - sum(sizes.values())
    bound = beside + 2 * max(sizes.values())
    few = open_shards(files(there, tmp_path / "few", bound))
    found = []
    for columns in few.files:
        few.keep([int(few.shards_of([columns.first])[0])])
        found += [few.record_id(columns.first + i) for i in range(len(columns))]
        assert bytes_in_cache(tmp_path / "few") <= bound
    assert found == ids


def test_blocks_train_through_a_cache_that_is_smaller_than_the_shards(
    object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cold, warm, resumed, and with two workers that share the cache, which keeps to its limit. The error names
    the number of blocks."""
    monkeypatch.setattr("pipelines.shards.remote.PATIENCE", 30.0)
    there = make_shards(ObjectPath(f"bucket/{tmp_path.name}"), MANY, max_tokens=48)
    here = make_shards(tmp_path / "here", MANY, max_tokens=48)
    expected = steps(here, recipe=BLOCKS)
    steps(files(there, tmp_path / "first"), recipe=BLOCKS)  # makes the order
    whole = sum(size for name, size in there.sizes().items() if not name.startswith(("lost", "summary", MANIFEST)))
    files(there, tmp_path / "cache", whole).check_capacity(RECIPE)
    with pytest.raises(
        UserError, match=r"need [\d,]+ at a time with shuffle_blocks: 1; .* or set shuffle_blocks: \d"
    ):
        files(there, tmp_path / "cache", whole - 1).check_capacity(RECIPE)
    bound = files(there, tmp_path / "cache")._needed(BLOCKS, BLOCKS.shuffle_blocks)
    assert bound < 0.6 * whole
    with pytest.raises(UserError, match=r"shuffle_blocks: 6; .* or set shuffle_blocks: (7|8|9|1\d)"):
        files(there, tmp_path / "cache", bound - 1).check_capacity(BLOCKS)
    files(there, tmp_path / "cache", bound).check_capacity(BLOCKS)

    most = 0

    def watched(method: str, path: str) -> None:
        nonlocal most
        most = max(most, bytes_in_cache(tmp_path / "cache"))

    asked: list[str] = []
    with object_store.failing(watched):
        assert steps(files(there, tmp_path / "cache", bound), recipe=BLOCKS) == expected
    with object_store.failing(lambda method, path: asked.append(path)):
        assert steps(files(there, tmp_path / "cache", bound), recipe=BLOCKS, start=30) == expected[30:]
    assert [path for path in asked if "/shard-" in path], "the cache does not hold all"
    together = Barrier(2)
    with ThreadPoolExecutor() as both:
        jobs = [
            both.submit(steps, files(there, tmp_path / "cache", bound), 0, rank, 2, BLOCKS, together)
            for rank in range(2)
        ]
        halves = [job.result() for job in jobs]
    for step, parts in zip(expected, zip(*halves, strict=True), strict=True):
        assert sorted([*parts[0][0], *parts[1][0]]) == sorted(step[0])
    assert 0 < most <= bound and bytes_in_cache(tmp_path / "cache") <= bound


def test_two_workers_name_records_of_earlier_blocks_in_the_space_of_one_shard(
    object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.shards.remote.PATIENCE", 1.0)
    there = make_shards(ObjectPath(f"bucket/{tmp_path.name}"), MANY, max_tokens=48)
    manifest, sizes = files(there, tmp_path / "other").manifest, there.sizes()
    shards = [sizes[file.path] for file in manifest.shards]
    beside = sum(sizes[file.path] for file in every_file(manifest)) - sum(shards)
    first_rows = [0, *accumulate(file.rows for file in manifest.shards)]
    bound = beside + sum(shards[:2]) + max(shards)
    workers = [Shards(files(there, tmp_path / "cache", bound)) for _ in range(2)]
    for worker in workers:
        worker.keep([0, 1])
        assert worker.record_id(0) != worker.record_id(first_rows[1])
    whole = Shards(files(there, tmp_path / "whole"))
    for number in (2, 3, 4):
        row = first_rows[number]
        assert workers[number % 2].record_id(row) == whole.record_id(row)
        assert bytes_in_cache(tmp_path / "cache") <= bound


ENDING = """
import sys
from pathlib import Path
from pipelines.shards.remote import RemoteShards, cache_folder
from pipelines.store.disk_cache import HELD, LOCK, DiskCache
from pipelines.store.storage import ObjectPath
from ubert.loader.loader import Loader
from ubert.loader.shards import open_shards
from ubert.schema.specs.recipe import Recipe
from ubert.structure.batch import Special

shards = open_shards(RemoteShards(ObjectPath(sys.argv[1]), DiskCache(Path(sys.argv[2]), 10_000_000)))
recipe = Recipe(name="made", mixture="made", epochs=1, tokens_per_batch=1024, tokens_per_step=512)
steps = Loader(shards, recipe, Special(101, 102, 0, 1, True), 512).iterate()
next(steps)
raise SystemExit(3)
"""


def test_a_process_that_fails_in_the_middle_of_an_epoch_ends(there: ObjectPath, tmp_path: Path) -> None:
    """Its loader is closed when Python itself ends, when no thread can be started any more."""
    command = [sys.executable, "-c", ENDING, str(there).removeprefix("s3://"), str(tmp_path)]
    assert subprocess.run(command, timeout=HANGS, check=False).returncode == 3


FETCHING = """
import atexit, sys, time
atexit.register(time.sleep, 1)  # after Arrow has closed its S3, as what other libraries register
from pathlib import Path
from pipelines.shards.remote import RemoteShards, cache_folder
from pipelines.store.disk_cache import HELD, LOCK, DiskCache
from pipelines.store.storage import ObjectPath
from ubert.schema.manifest import ShardFile

cache = Path(sys.argv[2])
files = RemoteShards(ObjectPath(sys.argv[1]), DiskCache(cache, 200_000_000))
files.ahead([ShardFile(path="large", rows=0, tokens=0, blake3="0" * 64)])
while not any(path.open("rb").read(1) == b"1" for path in cache.rglob("*.half")):
    time.sleep(0.01)
raise SystemExit(3)
"""


def test_a_process_that_ends_while_it_fetches_says_nothing(
    object_store: ObjectStore, there: ObjectPath, tmp_path: Path
) -> None:
    object_store.put((there / "large").key, b"1" * 100_000_000)
    command = [sys.executable, "-c", FETCHING, str(there).removeprefix("s3://"), str(tmp_path / "cache")]
    ended = subprocess.run(command, timeout=HANGS, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "", "")


def test_names_of_records_of_earlier_blocks_need_no_more_room(object_store: ObjectStore, tmp_path: Path) -> None:
    """The loss of texts is written long after their block has ended."""
    there = make_shards(ObjectPath(f"bucket/{tmp_path.name}"), MANY, max_tokens=48)
    shards = open_shards(files(there, tmp_path / "cache"))
    rows = np.arange(len(shards))
    expected, _ = shards.ids_and_tasks(rows)
    Loader(shards, BLOCKS, Special(101, 102, 0, 1, True), 512)  # makes the order
    bound = files(there, tmp_path / "cache")._needed(BLOCKS, BLOCKS.shuffle_blocks)
    few = open_shards(files(there, tmp_path / "few", bound))
    loader = Loader(few, BLOCKS, Special(101, 102, 0, 1, True), 512)
    training = loader.iterate()
    next(training)
    found, _ = few.ids_and_tasks(rows)
    training.close()
    assert found.equals(expected)
    assert bytes_in_cache(tmp_path / "few") <= bound


def test_what_was_only_fetched_ahead_gives_way_to_what_a_step_waits_for(
    there: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.shards.remote.PATIENCE", 20.0)
    sizes = there.sizes()
    first, *later = files(there, tmp_path / "any").manifest.shards
    shards = files(there, tmp_path / "one", max(sizes[file.path] for file in [first, *later]))
    shards.ahead(later[:1])
    wait_for(lambda: any(path.name == later[0].blake3 for path in in_cache(tmp_path / "one")))
    assert shards.path(first).stat().st_size == sizes[first.path]


@pytest.mark.parametrize("damage", ["deleted", "truncated"])
def test_a_damaged_object_gives_one_clear_error_whose_cure_works(
    damage: str, object_store: ObjectStore, tmp_path: Path
) -> None:
    root = ObjectPath(f"bucket/{tmp_path.name}")
    there = make_shards(root, {"reviews": CORPORA["reviews"]}, max_tokens=48)
    opened = open_shards(files(there, tmp_path / "cache"))
    name = opened.manifest.shards[0].path
    content = b"".join((there / name).blocks())
    (there / name).unlink()
    if damage == "truncated":
        object_store.put((there / name).key, content[: len(content) // 2])
    how = {"deleted": "missing, though the manifest names it", "truncated": "not what was written"}[damage]
    with pytest.raises(
        UserError, match=rf"{name}: {how}.*delete it and {MANIFEST} in the same folder, then run `ubert shard"
    ):
        opened.record_id(0)
    (there / name).unlink()
    (there / MANIFEST).unlink()
    again = make_shards(root, {"reviews": CORPORA["reviews"]}, max_tokens=48)
    assert again == there and b"".join((there / name).blocks()) == content
    assert opened.record_id(0) == "reviews/train/0"


def test_no_shard_is_read_again_to_write_the_files_of_the_mixture(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    asked: list[tuple[str, str]] = []
    with object_store.failing(lambda method, path: asked.append((method, path))):
        there = make_shards(ObjectPath(f"bucket/{tmp_path.name}"), CORPORA, max_tokens=48)
    of_shards = [method for method, path in asked if "/shard-" in path]
    assert of_shards and "GET" not in of_shards
    here = make_shards(tmp_path / "here", CORPORA, max_tokens=48)
    assert files(there, tmp_path / "cache").manifest.shards == open_shards(here).manifest.shards


def test_shards_that_are_in_the_store_are_copied_there(object_store: ObjectStore, tmp_path: Path) -> None:
    root = ObjectPath(f"bucket/{tmp_path.name}")
    make_shards(root, {name: CORPORA[name] for name in ("people", "reviews")}, max_tokens=48)
    made = make_shards(root, CORPORA, max_tokens=48)
    alone = make_shards(tmp_path / "alone", CORPORA, max_tokens=48)
    assert files(made, tmp_path / "cache").manifest.shards == open_shards(alone).manifest.shards


def test_a_file_that_arrives_damaged_is_fetched_three_times(
    there: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = files(there, tmp_path / "cache")
    file = shards.manifest.shards[0]
    whole = b"".join((there / file.path).blocks())

    def arriving(*contents: bytes) -> None:
        left = iter(contents)
        monkeypatch.setattr(ObjectPath, "blocks", lambda self: iter([next(left)]))

    longer, other = whole + b"more", whole[:-1] + b"?"
    arriving(longer, other, other)
    with pytest.raises(UserError, match=f"{file.path}: not what was written"):
        shards.path(file)
    assert in_cache(tmp_path / "cache") == []
    arriving(longer, other, whole)
    assert shards.path(file).read_bytes() == whole


def test_a_file_that_the_cache_cannot_hold_is_waited_for_in_vain(
    there: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.shards.remote.PATIENCE", -1.0)
    shards = files(there, tmp_path, 1_000)
    with pytest.raises(UserError, match="all 1,000 bytes of the cache are in use"):
        shards.path(shards.manifest.shards[0])


@pytest.mark.parametrize(("given", "folder"), [("caches", "caches/ubert"), ("", ".cache/ubert")])
def test_the_cache_lies_in_the_users_folder_of_caches(
    given: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / given) if given else "")
    assert cache_folder() == tmp_path / folder
