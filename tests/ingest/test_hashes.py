"""An unchanged file is not hashed again; whatever changes it is seen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from worlds import World, numbers

from pipelines.ingest import hashes
from pipelines.ingest.hashes import Hashes
from pipelines.ingest.units import Plan, plan
from pipelines.sources import file_hash
from pipelines.specs import dataset_spec
from pipelines.store.store import Store
from ubert.schema.errors import UserError


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def planned(world: World) -> Plan:
    spec = dataset_spec("toy", world.specs)
    return plan(spec, world.data / "toy", Hashes(Store(world.root).sources("toy")))


@pytest.fixture
def source(world: World) -> Path:
    world.spec()
    path = world.source(numbers(range(10)))
    os.utime(path, ns=(1, 1))
    return path


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are read to be hashed; all count as settled."""
    monkeypatch.setattr(hashes, "SETTLED", -60.0)
    found: list[Path] = []
    whole = hashes._whole
    monkeypatch.setattr(hashes, "_whole", lambda path, *of: found.append(Path(path)) or whole(path, *of))
    return found


def test_a_file_is_hashed_once(world: World, source: Path, read: list[Path]) -> None:
    first = planned(world)
    assert (planned(world), read) == (first, [source])


def test_files_are_remembered_piece_by_piece(
    world: World, read: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that changes is hashed again, and remembered in place of what it was."""
    monkeypatch.setattr(hashes, "PIECE", 2)
    world.spec(files=[{"split": "train", "path": "*.jsonl"}])
    files = [world.source(numbers([n]), f"{n}.jsonl") for n in range(5)]
    planned(world)
    assert read == files
    files[1].write_text(numbers([7, 8]))
    found = [planned(world) for _ in range(2)]
    assert (read, found[0]) == ([*files, files[1]], found[1])


def test_no_room_for_what_waits(
    world: World, source: Path, read: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(hashes, "SpooledTemporaryFile", lambda size: full)
        with pytest.raises(UserError, match=r"No space left on device: hashes .* another folder in TMPDIR$"):
            planned(world)


def test_a_change_that_keeps_size_and_time_is_seen(world: World, source: Path, read: list[Path]) -> None:
    first = planned(world)
    source.write_bytes(source.read_bytes().replace(b"number 1", b"number 9"))
    os.utime(source, ns=(1, 1))
    second = planned(world)
    assert len(read) == 2
    assert first.fingerprint != second.fingerprint
    assert second.groups[0].files.shas == [file_hash(source)]


def test_a_file_put_in_the_place_of_another_is_seen(world: World, source: Path, read: list[Path]) -> None:
    planned(world)
    other = source.with_name("other")
    other.write_bytes(source.read_bytes()[::-1])
    other.replace(source)
    assert planned(world).groups[0].files.shas == [file_hash(source)]


def test_a_file_that_has_just_changed_is_not_remembered(
    world: World, source: Path, read: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashes, "SETTLED", 60.0)
    planned(world)
    planned(world)
    assert read == [source, source]


@pytest.mark.parametrize("memory", [b"{half", b"{\xff"])
def test_a_memory_that_cannot_be_read_is_made_anew(
    world: World, source: Path, read: list[Path], memory: bytes
) -> None:
    planned(world)
    Store(world.root).sources("toy").write_bytes(memory)  # type: ignore[attr-defined]
    planned(world)
    planned(world)
    assert read == [source, source]


def test_a_pin_is_held_against_what_is_there(world: World, source: Path, read: list[Path]) -> None:
    world.spec(files=[{"split": "train", "path": "train.jsonl", "blake3": file_hash(source)}])
    planned(world)
    source.write_text(numbers(range(11)))
    with pytest.raises(UserError, match="not what the spec toy pins"):
        planned(world)


def test_a_part_and_the_whole_are_both_what_is_pinned(world: World, source: Path, read: list[Path]) -> None:
    part = file_hash(source)
    source.write_text(numbers(range(20)))
    world.spec(files=[{"split": "train", "path": "train.jsonl", "blake3": part, "whole": file_hash(source)}])
    for count in (20, 10):
        source.write_text(numbers(range(count)))
        planned(world)
    source.write_text(numbers(range(11)))
    with pytest.raises(UserError, match=f"expected blake3 {part} or [0-9a-f]+, got {file_hash(source)}; restore"):
        planned(world)


def test_what_a_glob_finds_is_never_left_out_in_silence(world: World) -> None:
    """A link to nothing was once a file; a pipe would be waited for without end."""
    world.spec(files=[{"split": "train", "path": "*.jsonl"}])
    pipe = world.source(numbers([1])).with_name("pipe.jsonl")
    os.mkfifo(pipe)
    for problem in ("not a file", "No such file"):
        found = {piece.path: piece.problem for unit in planned(world).units for piece in unit.slices}
        assert found["train.jsonl"] == "" and found["pipe.jsonl"].startswith(f"pipe.jsonl: {problem}")
        pipe.unlink()
        pipe.symlink_to("nothing")
