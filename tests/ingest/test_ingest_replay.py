"""Which units are read again after a change."""

from __future__ import annotations

from pathlib import Path

import pytest
from worlds import World, numbers

import pipelines.store.code_hash
from pipelines.ingest import change_detection, source_files
from pipelines.ingest.hashes import Hashes
from pipelines.ingest.ingest import Work
from pipelines.ingest.units import Plan, plan
from pipelines.sources import file_hash
from pipelines.specs import dataset_spec
from pipelines.store.store import Store

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def planned(world: World) -> Plan:
    spec = dataset_spec("toy", world.specs)
    return plan(spec, world.data / "toy", Hashes(Store(world.root).sources("toy")))


def test_an_encoding_that_is_mended_for_one_file_reads_that_file_alone(world: World) -> None:
    def files(encoding: str) -> list[dict[str, str]]:
        return [
            {"split": "train", "path": "train.jsonl"},
            {"split": "test", "path": "test.jsonl", "encoding": encoding},
        ]

    world.spec(files=files("utf-8"))
    world.source(numbers(range(10)))
    world.source(numbers(range(3)).encode() + b'{"text": "caf\xe9", "label": 1}\n', "test.jsonl")
    assert world.read() == Work(2, 14)
    assert [row["reason"] for row in world.rejects()] == ["wrong encoding"]
    world.spec(files=files("latin-1"))
    assert world.read() == Work(1, 4)
    assert world.rejects() == []
    assert "café" in [row["text"] for row in world.records()]


def test_a_new_file_of_a_glob_is_read_with_its_group_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "GROUP_FILES", 4)
    world.spec(files=[{"split": "train", "path": "*.jsonl"}])
    for number in range(0, 200, 2):
        world.source(numbers([number]), f"{number:03}.jsonl")
    first = world.read()
    assert first == Work(100, 100)
    groups = [[piece.path for piece in unit.slices] for unit in planned(world).units]
    assert 15 < len(groups) < 40  # four files each, more or less
    world.source(numbers([1]), "001.jsonl")
    assert 1 <= world.read().files <= 1 + max(map(len, groups))
    assert len(world.records()) == 101


def test_a_large_new_file_of_a_glob_is_read_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_detection, "SHARED_BYTES", 100)
    world.spec(files=[{"split": "train", "path": "*.jsonl"}])
    for name in "ac":
        world.source(numbers(range(10)), f"{name}.jsonl")
    assert world.read() == Work(2, 20)
    world.source(numbers(range(10)), "b.jsonl")
    assert world.read() == Work(1, 10)


def test_the_code_of_another_reader_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.spec()
    world.source(numbers(range(10)))
    assert world.read() == Work(1, 10)

    def change(module: str) -> None:
        def changed(path: Path) -> str:
            return "changed" if path.name == module else file_hash(path)

        monkeypatch.setattr(pipelines.store.code_hash, "file_hash", changed)

    change("brat.py")
    assert world.read() == Work(0, 0)
    change("jsonl.py")
    assert world.read() == Work(1, 10)


def test_what_only_describes_a_corpus_reads_nothing(world: World) -> None:
    world.spec()
    world.source(numbers(range(10)))
    world.read()
    for changes in ({"licence": "MIT"}, {"description": "Another."}, {"error_budget": 0.5}):
        world.spec(**changes)
        assert world.read() == Work(0, 0)
