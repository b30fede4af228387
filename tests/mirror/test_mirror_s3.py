"""Sources in an object store with a real S3 API: the same corpora as from disk, whatever fails meanwhile."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from object_store import ObjectStore
from worlds import World, numbers

from pipelines.ingest.ingest import ingest
from pipelines.mirror import fill, resume, s3
from pipelines.specs import dataset_spec, specs_folder
from ubert.schema.errors import UserError

ROWS = numbers(range(20)).encode()
SAMPLES = ["sample_reviews", "sample_entities", "sample_events"]


@dataclass
class Objects:
    """A folder of the object store, and what goes wrong with the next requests for objects in it."""

    store: ObjectStore
    key: str
    faults: list[str | None] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"s3://{self.key}"

    def put(self, name: str, content: bytes) -> None:
        self.store.put(f"{self.key}/{name}", content)

    def fault(self, method: str, path: str) -> str | None:
        asked = method in ("GET", "HEAD") and path.startswith(f"/{self.key}/")
        return self.faults.pop(0) if asked and self.faults else None


@pytest.fixture
def objects(object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Objects]:
    monkeypatch.setattr(resume, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(s3, "BLOCK", 1 << 20)
    objects = Objects(object_store, f"bucket/{tmp_path.name}")
    with object_store.failing(objects.fault):
        yield objects


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def bring(world: World, url: str, **more: Any) -> dict[str, bytes]:
    world.spec(fetch=[{"url": url, **more}])
    folder = world.data / "toy"
    fill(dataset_spec("toy", world.specs), folder, world.specs, lambda *_: None)
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".fetch"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_an_object_and_a_prefix(world: World, objects: Objects) -> None:
    objects.put("toy/train.jsonl", ROWS)
    objects.put("toy/deep/x y.txt", b"1")
    objects.put("toys/other", b"2")
    assert bring(world, f"{objects.url}/toy/train.jsonl", into="one.jsonl") == {"one.jsonl": ROWS}
    (world.data / "toy" / "one.jsonl").unlink()
    assert bring(world, f"{objects.url}/toy/", into="all") == {"all/train.jsonl": ROWS, "all/deep/x y.txt": b"1"}


def test_a_changed_object_is_reported_by_its_tag(world: World, objects: Objects) -> None:
    objects.put("train.jsonl", ROWS)
    bring(world, f"{objects.url}/train.jsonl")
    objects.put("train.jsonl", b"other")
    (world.data / "toy" / "train.jsonl").unlink()
    with pytest.raises(UserError, match=r'changed since .*5 bytes, ETag "[0-9a-f]{32}".*ETag "[0-9a-f]{32}"'):
        bring(world, f"{objects.url}/train.jsonl")


@pytest.mark.parametrize("fault", ["500", "503", "hang", "drop"])
def test_a_passing_failure_is_tried_again(
    world: World, objects: Objects, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume, "READ", 1.0)  # less is not kept by the SDK
    objects.put("train.jsonl", ROWS)
    objects.faults = [fault, None, fault, None, fault]
    assert bring(world, f"{objects.url}/train.jsonl") == {"train.jsonl": ROWS}
    assert not objects.faults


def test_a_large_object_resumes_where_it_broke(
    world: World, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume, "ATTEMPTS", 2)
    content = os.urandom(5 << 20)
    objects.put("train.jsonl", content)
    objects.faults = [None, None, None, None, *["500"] * 50]
    with pytest.raises(UserError, match=r"gave up after 2 attempts with [1-4],[0-9]{3},[0-9]{3} bytes here"):
        bring(world, f"{objects.url}/train.jsonl")
    objects.faults = []
    objects.store.ranges.clear()
    assert bring(world, f"{objects.url}/train.jsonl") == {"train.jsonl": content}
    assert objects.store.ranges
    assert not any(asked.startswith("bytes=0-") for asked in objects.store.ranges)


def test_an_object_that_changes_midway_is_not_stitched(
    world: World, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume, "ATTEMPTS", 2)
    old, new = bytes(5 << 20), b"\1" * (5 << 20)
    objects.put("train.jsonl", old)
    objects.faults = [None, None, None, None, *["500"] * 50]
    with pytest.raises(UserError, match="gave up"):
        bring(world, f"{objects.url}/train.jsonl")
    objects.faults = []
    objects.put("train.jsonl", new)
    assert bring(world, f"{objects.url}/train.jsonl") == {"train.jsonl": new}


def test_an_object_that_changes_while_it_is_read_is_read_anew(
    world: World, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = bytes(5 << 20), b"\1" * (5 << 20)
    objects.put("train.jsonl", old)
    chunks = s3._chunks

    def changing(*arguments: Any) -> Iterator[bytes]:
        monkeypatch.setattr(s3, "_chunks", chunks)
        for number, data in enumerate(chunks(*arguments)):
            if number == 0:
                objects.put("train.jsonl", new)
            yield data

    monkeypatch.setattr(s3, "_chunks", changing)
    assert bring(world, f"{objects.url}/train.jsonl") == {"train.jsonl": new}


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://bucket/nothing", "s3://bucket/nothing: .*correct the address"),
        ("s3://bucket/nothing/", "no object under this prefix|s3://bucket/nothing/: "),
        ("s3://no-such-bucket/x", "s3://no-such-bucket/x: "),
        ("s3://no-such-bucket/x/", "s3://no-such-bucket/x/: "),
    ],
)
def test_what_is_not_there_gives_one_clear_error(world: World, objects: Objects, url: str, said: str) -> None:
    asked = Counter[tuple[str, str]]()
    with (
        objects.store.failing(lambda *request: asked.update([request])),
        pytest.raises(UserError, match=said),
    ):
        bring(world, url, into="train.jsonl")
    assert max(asked.values()) == 1, "what is not there is not asked for again"


def test_a_refused_key_gives_one_clear_error(world: World, objects: Objects) -> None:
    objects.put("train.jsonl", ROWS)
    objects.faults = ["403"]
    with pytest.raises(UserError, match=r"ACCESS_DENIED.*AWS_ variables"):
        bring(world, f"{objects.url}/train.jsonl")


def test_a_key_with_a_name_of_the_mirror_itself_is_refused(world: World, objects: Objects) -> None:
    objects.put("toy/.fetched.json", b"{}")
    with pytest.raises(UserError, match=rf"{objects.url}/toy/\.fetched\.json: its name begins with"):
        bring(world, f"{objects.url}/toy/")


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_corpora_from_an_object_store_that_fails_are_those_from_disk(
    objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume, "READ", 1.0)  # less is not kept by the SDK
    ours = specs_folder(None)
    disk = ingest(SAMPLES, specs=ours, data=None, root=tmp_path / "disk")
    specs = tmp_path / "specs"
    (specs / "datasets").mkdir(parents=True)
    for name in SAMPLES:
        spec = dataset_spec(name, ours)
        folder = ours / "samples" / spec.folder
        for path in folder.rglob("*"):
            if path.is_file():
                objects.put(f"raw/{spec.folder}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        text = (ours / "datasets" / f"{name}.yaml").read_text(encoding="utf-8")
        fetch = f"fetch:\n  - url: {objects.url}/raw/{spec.folder}/\n"
        (specs / "datasets" / f"{name}.yaml").write_text(text + fetch, encoding="utf-8")
    objects.faults = ["500", None, "503", "drop", None, None, "hang", None, "500", "503"]
    remote = ingest(SAMPLES, specs=specs, data=None, root=tmp_path / "remote")
    assert not objects.faults
    assert [corpus.fingerprint for corpus in remote] == [corpus.fingerprint for corpus in disk]
    assert [corpus.splits for corpus in remote] == [corpus.splits for corpus in disk]
