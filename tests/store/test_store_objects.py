"""A store in an object store has the same content as one on disk, even if requests fail."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count, product
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from handmade import ENCODER
from object_store import ObjectStore
from ray_head import below
from waiting import HANGS, wait_for
from worlds import World, corpus, numbers, put_corpus

import pipelines.store.storage
from pipelines.audit.duplicates import duplicates
from pipelines.ingest.ingest import Work, ingest
from pipelines.mixtures.mix import mix
from pipelines.report import peek
from pipelines.report.page import html
from pipelines.report.stats import overview, rejected
from pipelines.shards.shard import shard
from pipelines.specs import dataset_names, mixture, specs_folder
from pipelines.store.storage import ObjectPath, StorePath, arrow, remove, store_path
from pipelines.store.store import Store, atomic, link
from pipelines.store.warehouse import sql
from ubert.schema.errors import UserError
from ubert.schema.manifest import FILES, MANIFEST

OURS = specs_folder(None)
SAMPLES = [name for name in dataset_names(OURS) if name.startswith("sample_")]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def put(root: StorePath, name: str, content: str) -> None:
    target = root
    for part in name.split("/"):
        target /= part
    with atomic(target) as path:
        path.write_text(content, encoding="utf-8")


NAMES = ["a", "b/m.json", "b/x/m.json", "b/y/m.json", "b/y/part-1", "b/y/rejects-1", "c/x/m.json"]


@pytest.mark.parametrize("pattern", ["*", "*/m.json", "*/*/m.json", "*/*/part-*", "b/*", "no/*"])
def test_objects_are_found_as_files_are(pattern: str, remote: ObjectPath, tmp_path: Path) -> None:
    for name in NAMES:
        put(tmp_path, name, name)
        put(remote, name, name)
    on_disk = {str(path.relative_to(tmp_path)) for path in tmp_path.glob(pattern) if path.is_file()}
    assert {found.key.removeprefix(f"{remote.key}/") for found in remote.glob(pattern)} == on_disk


def test_the_current_ones_of_a_kind_take_one_listing(remote: ObjectPath, object_store: ObjectStore) -> None:
    for name in ("one", "two", "three"):
        put_corpus(remote, name, corpus(name, 1))
    asked: list[str] = []
    with object_store.failing(lambda method, path: asked.append(path)):
        assert {*Store(remote).currents("corpora")} == {"one", "two", "three"}
    assert len([path for path in asked if not path.endswith(MANIFEST)]) == 1


def test_an_object_speaks_as_a_path_does(remote: ObjectPath) -> None:
    put(remote, "folder/name.json", "größer")
    made = remote / "folder" / "name.json"
    assert (made.name, made.parent.name, str(made)) == (
        "name.json",
        "folder",
        f"s3://{remote.key}/folder/name.json",
    )
    assert made.exists()
    assert not made.parent.exists()  # no object of that name
    assert made.read_text("utf-8") == "größer"
    with pytest.raises(FileNotFoundError):
        (remote / "nothing").read_text("utf-8")


def test_a_second_name_has_the_content_in_every_kind_of_store(remote: ObjectPath, tmp_path: Path) -> None:
    roots: list[StorePath] = [remote, tmp_path]
    for number, (here, there) in enumerate(product(roots, repeat=2)):
        put(here, "old", f"content {number}")
        link(here / "old", there / "new")
        assert (there / "new").read_text("utf-8") == f"content {number}"


def test_only_what_is_named_is_removed(remote: ObjectPath, tmp_path: Path) -> None:
    roots: list[StorePath] = [remote, tmp_path / "disk"]
    for root in roots:
        for name in ("a/x", "a/b/y", "ab/z", "c/x"):
            put(root, name, name)
        remove(root / "a")
        remove(root / "nothing")
        assert sorted(found.name for found in root.glob("*/*")) == ["x", "z"] and not [*root.glob("*/*/*")]
    remove(tmp_path / "disk" / "c" / "x")
    (remote / "nothing").unlink()
    assert [path.name for path in (tmp_path / "disk").glob("*/*")] == ["z"]


def test_what_is_not_written_whole_is_not_there(remote: ObjectPath, object_store: ObjectStore) -> None:
    with pytest.raises(RuntimeError), atomic(remote / "half") as path:
        path.write_text("half")
        raise RuntimeError
    refuse = object_store.failing(lambda method, path: "403" if method == "PUT" else None)
    fails = pytest.raises(UserError, match=r"s3://.*/large: the store fails: .*AWS_")
    with refuse, fails, atomic(remote / "large") as path:
        path.write_bytes(bytes(12 << 20))
    assert object_store.objects(remote.key) == {}
    with atomic(remote / "large") as path:
        path.write_bytes(bytes(12 << 20))
    assert object_store.objects(remote.key) == {"/large": 12 << 20}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Answers are waited for a second, and asked for three times."""
    monkeypatch.setattr(pipelines.store.storage, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(pipelines.store.storage, "ATTEMPTS", 3)
    pipelines.store.storage._objects.cache_clear()
    yield
    pipelines.store.storage._objects.cache_clear()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fault", ["500", "500 in words", "503", "drop", "hang"])
def test_a_request_that_fails_is_made_again(fault: str, remote: ObjectPath, object_store: ObjectStore) -> None:
    left = [fault]
    with object_store.failing(lambda method, path: left.pop() if left else None):
        put(remote, "name", "written")
    left = [fault]
    with object_store.failing(lambda method, path: left.pop() if left else None):
        assert (remote / "name").read_text("utf-8") == "written"
    left = [fault]
    with object_store.failing(lambda method, path: left.pop() if left else None):
        assert [found.name for found in remote.glob("*")] == ["name"]


@pytest.mark.usefixtures("impatient")
def test_a_store_that_stays_away_gives_one_clear_error(remote: ObjectPath, object_store: ObjectStore) -> None:
    with object_store.failing(lambda method, path: "500"):
        for work in (lambda: put(remote, "name", ""), (remote / "name").exists, lambda: list(remote.glob("*"))):
            with pytest.raises(UserError, match=r"s3://.*the store fails: .*run the same command again"):
                work()


@pytest.mark.slow
def test_a_store_that_is_away_for_a_minute_is_waited_for(remote: ObjectPath, object_store: ObjectStore) -> None:
    until = time.monotonic() + 60
    pipelines.store.storage._objects.cache_clear()
    with object_store.failing(lambda method, path: "503" if time.monotonic() < until else None):
        put(remote, "name", "written")
    assert time.monotonic() > until
    assert (remote / "name").read_text("utf-8") == "written"


@pytest.mark.parametrize("url", ["gs://bucket/x", "s3://", "s3:///x", "http://host/bucket", "s3://bucket//x"])
def test_a_url_of_no_object_store_is_refused(url: str) -> None:
    with pytest.raises(UserError, match=r"expected a local folder, or an object store such as s3://bucket/prefix"):
        store_path(url)


def test_a_folder_or_an_object_store_is_named_by_one_option() -> None:
    assert store_path("store/here") == Path("store/here")
    assert store_path("s3://bucket") == ObjectPath("bucket")
    assert store_path("s3://bucket/some/prefix/") == ObjectPath("bucket/some/prefix")


def content(root: StorePath) -> dict[str, Any]:
    """All that a store of the samples says, but for when."""
    statements = [
        "SELECT * FROM records ORDER BY record_id",
        "SELECT * FROM rejects ORDER BY ALL",
        "SELECT * FROM corpora ORDER BY ALL",
        "SELECT corpus, category, count(*) FROM spans GROUP BY ALL ORDER BY ALL",
    ]
    return {
        **{statement: sql(root, statement).to_pylist() for statement in statements},
        **{name: table.to_pylist() for name, table in overview(root).items()},
        "rejected": [table.to_pylist() for table in rejected(root, SAMPLES[0], 3)],
    }


def members(root: StorePath) -> list[dict[str, Any]]:
    path, files = arrow(Store(root).current("mixtures", "quickstart")[0] / "members.parquet")
    return pq.read_table(path, filesystem=files).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_the_same_pipeline_on_a_store_that_fails_now_and_then(
    remote: ObjectPath, object_store: ObjectStore, tmp_path: Path
) -> None:
    faults = iter(["500", "503", "drop"] * 10_000)
    number = count()
    on_disk = ingest(SAMPLES, specs=OURS, data=None, root=tmp_path)
    with object_store.failing(lambda method, path: next(faults) if next(number) % 4 == 0 else None):
        there = ingest(SAMPLES, specs=OURS, data=None, root=remote)
        drawn = mix(mixture("quickstart", OURS), root=remote)
        assert content(remote) == content(tmp_path)
    assert [made.model_dump(exclude={"created"}) for made in there] == [
        made.model_dump(exclude={"created"}) for made in on_disk
    ]
    assert mix(mixture("quickstart", OURS), root=tmp_path).fingerprint == drawn.fingerprint
    assert members(remote) == members(tmp_path)


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_shards_of_an_object_store_are_those_of_a_folder(remote: ObjectPath, tmp_path: Path) -> None:
    made = {}
    for root in (remote, tmp_path / "disk"):
        ingest(["sample_topics"], specs=OURS, data=None, root=root)
        chosen = mixture("quickstart", OURS)
        [topics] = [source for source in chosen.sources if source.corpus == "sample_topics"]
        mix(chosen.model_copy(update={"sources": [topics]}), root=root)
        made[root] = shard("quickstart", encoder=ENCODER, max_tokens=64, root=root)
    there, here = made.values()
    assert there.shards == here.shards
    assert (there.categories, there.prompts, there.fingerprint) == (
        here.categories,
        here.prompts,
        here.fingerprint,
    )
    assert sql(remote, "SELECT * FROM shards") == sql(tmp_path / "disk", "SELECT * FROM shards")
    assert (
        next(peek.shard("quickstart", 1, remote)).plain
        == next(peek.shard("quickstart", 1, tmp_path / "disk")).plain
    )
    assert next(peek.mixture("quickstart", 1, remote)).plain.startswith("record       sample_topics/train")


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_an_error_longer_than_what_was_asked_for_is_no_end(
    remote: ObjectPath, object_store: ObjectStore, world: World
) -> None:
    """A column of a small part is less than the error's text, at which Arrow gives up."""
    world.spec()
    world.source(numbers([0]))
    reads: Counter[str] = Counter()

    def second(method: str, path: str) -> str | None:
        """Fail the second read of a part, which is of a column; the first is of the end of the file."""
        if method == "GET" and "/part-" in path:
            reads[path] += 1
            return "500 in words" if reads[path] == 2 else None
        return None

    for work in (
        lambda: ingest(["toy"], specs=world.specs, data=world.data, root=remote),
        lambda: sql(remote, "SELECT sum(key) FROM records"),
        lambda: duplicates(root=remote),
        lambda: html(remote),
    ):
        reads.clear()
        with object_store.failing(second):
            work()
        assert max(reads.values()) > 2


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_a_query_that_the_store_refuses_midway_gives_one_clear_error(
    remote: ObjectPath, object_store: ObjectStore
) -> None:
    ingest(["sample_topics"], specs=OURS, data=None, root=remote)
    with (
        object_store.failing(lambda method, path: "403" if "/part-" in path else None),
        pytest.raises(UserError, match=r"SQL: .*ACCESS_DENIED"),
    ):
        sql(remote, "SELECT text FROM records")


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_a_second_run_reads_nothing_and_a_changed_file_alone_is_read_again(
    remote: ObjectPath, object_store: ObjectStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.ingest.source_files.MOST_FILES", 1)
    world.spec(files=[{"split": "train", "path": "*.jsonl"}])
    for name in "abc":
        world.source(numbers(range(10)), f"{name}.jsonl")
    works: list[Work] = []

    def run() -> None:
        ingest(
            ["toy"], specs=world.specs, data=world.data, root=remote, report=lambda made, work: works.append(work)
        )

    run()
    run()
    world.source(numbers(range(9, -1, -1)), "b.jsonl")
    run()
    assert works == [Work(3, 30), Work(0, 0), Work(1, 10)]
    world.ingest()
    assert sql(remote, "SELECT * FROM records ORDER BY key") == sql(
        world.root, "SELECT * FROM records ORDER BY key"
    )


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_two_writers_of_one_name_make_what_one_makes(
    remote: ObjectPath, object_store: ObjectStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.ingest.source_files.MOST_FILES", 1)
    world.spec(files=[{"split": "train", "path": "*.jsonl"}])
    for name in "abcdefgh":
        world.source(numbers(range(500)), f"{name}.jsonl")
    begin = threading.Barrier(2)
    failures: list[UserError] = []

    def run() -> None:
        begin.wait()
        try:
            ingest(["toy"], specs=world.specs, data=world.data, root=remote)
        except UserError as error:
            failures.append(error)

    writers = [threading.Thread(target=run) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not failures
    manifest = world.ingest()
    alone = {
        f"/corpora/toy/{manifest.fingerprint}/{name}"
        for name in [MANIFEST, FILES, *manifest.parts, *manifest.reject_parts, *manifest.mismatch_parts]
    }
    assert {name for name in object_store.objects(remote.key) if name.startswith("/corpora")} == alone
    assert sql(remote, "SELECT * FROM records ORDER BY key") == sql(
        world.root, "SELECT * FROM records ORDER BY key"
    )


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_a_store_that_fails_for_seconds_is_waited_for(
    remote: ObjectPath, object_store: ObjectStore, world: World
) -> None:
    world.spec()
    world.source(numbers(range(100)))
    until: list[float] = []

    def away(method: str, path: str) -> str | None:
        """From the first part that is written on, for two seconds."""
        if not until and "part-" in path:
            until.append(time.monotonic() + 2)
        return "503" if until and time.monotonic() < until[0] else None

    with object_store.failing(away):
        [manifest] = ingest(["toy"], specs=world.specs, data=world.data, root=remote)
    assert until and time.monotonic() > until[0]
    assert manifest.splits[0].kept == 100


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_a_store_that_refuses_midway_gives_one_clear_error_and_the_next_run_completes(
    remote: ObjectPath, object_store: ObjectStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.ingest.source_files.MOST_FILES", 1)
    world.spec(files=[{"split": "train", "path": "*.jsonl"}])
    for name in "abcdef":
        world.source(numbers(range(10)), f"{name}.jsonl")
    written = count()

    def refuse(method: str, path: str) -> str | None:
        return "403" if method in ("PUT", "POST") and "/part-" in path and next(written) >= 3 else None

    def run() -> Work:
        works: list[Work] = []
        ingest(
            ["toy"], specs=world.specs, data=world.data, root=remote, report=lambda made, work: works.append(work)
        )
        return works[0]

    with object_store.failing(refuse), pytest.raises(UserError, match=r"the store fails: .*ACCESS_DENIED"):
        run()
    with pytest.raises(UserError, match="nothing here yet"):
        Store(remote).current("corpora", "toy")
    assert run() == Work(3, 30)
    shutil.rmtree(world.root, ignore_errors=True)
    world.ingest()
    assert sql(remote, "SELECT * FROM records ORDER BY key") == sql(
        world.root, "SELECT * FROM records ORDER BY key"
    )


KILLED = """
import sys
from pathlib import Path
import ray
from pipelines.ingest import source_files
from pipelines.ingest.ingest import ingest
from pipelines.store.storage import store_path
ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
source_files.MOST_FILES = 1
specs, data = map(Path, sys.argv[1:3])
ingest(["toy"], specs=specs, data=data, root=store_path(sys.argv[3]))
"""


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
def test_a_killed_run_is_completed_by_the_next(
    remote: ObjectPath, object_store: ObjectStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.ingest.source_files.MOST_FILES", 1)
    world.spec(files=[{"split": "train", "path": "*.jsonl"}])
    for number in range(40):
        world.source(numbers(range(number, number + 500)), f"{number:02}.jsonl")
    driver = subprocess.Popen(
        [sys.executable, "-c", KILLED, world.specs, world.data, str(remote)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        text=True,
    )

    def parts() -> int:
        return sum("/part-" in name for name in object_store.objects(remote.key))

    wait_for(lambda: parts() >= 3, driver)
    workers = below(driver.pid, "ray::")
    driver.kill()
    assert driver.wait() == -signal.SIGKILL
    psutil.wait_procs(workers, timeout=HANGS)  # Ray ends them
    done = parts()
    assert 3 <= done < 40
    with pytest.raises(UserError, match="nothing here yet"):
        Store(remote).current("corpora", "toy")
    works: list[Work] = []
    ingest(["toy"], specs=world.specs, data=world.data, root=remote, report=lambda made, work: works.append(work))
    assert works == [Work(40 - done, 500 * (40 - done))]
    world.ingest()
    assert sql(remote, "SELECT * FROM records ORDER BY key") == sql(
        world.root, "SELECT * FROM records ORDER BY key"
    )
