"""An unchanged file is not hashed again, and every change is noticed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from worlds import World, numbers

from pipelines.ingest import change_detection, hashes, source_files
from pipelines.ingest.hashes import Hashes
from pipelines.ingest.units import Plan, plan
from pipelines.sources import content_hash, file_hash, joined_hash
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


@given(content=st.binary(max_size=60), data=st.data())
def test_a_part_of_a_file_is_hashed_in_blocks(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(content)))
    stop = data.draw(st.integers(start, len(content)))
    path = tmp_path_factory.getbasetemp() / "part"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashes, "BLOCK", 1)
        assert hashes.range_hash(str(path), start, stop) == blake3(content[start:stop]).hexdigest()


@pytest.mark.parametrize(("limit", "ranges"), [(7, []), (6, [(0, 7, 1)]), (3, [(0, 5, 1), (5, 7, 3)])])
def test_a_file_is_cut_where_it_is_larger_than_the_limit(
    tmp_path: Path, limit: int, ranges: list[tuple[int, int, int]]
) -> None:
    (tmp_path / "x").write_bytes(b"a\nbb\nc\n")
    found = Hashes().of(str(tmp_path), "x", "line", limit)
    assert [(part.start, part.stop, part.line) for part in found.ranges] == ranges
    assert found.sha == file_hash(tmp_path / "x")


@pytest.mark.parametrize(("most", "sizes"), [(120, [120, 120, 60]), (119, [60] * 5)])
def test_small_files_fill_a_unit_up_to_its_limit(
    world: World, monkeypatch: pytest.MonkeyPatch, most: int, sizes: list[int]
) -> None:
    monkeypatch.setattr(change_detection, "UNIT_BYTES", most)
    world.spec(files=[{"split": "train", "path": "*.jsonl"}])
    for number in range(5):
        world.source("x" * 59 + "\n", f"{number}.jsonl")
    units = [unit.packed for unit in planned(world).units]
    assert [(unit.size, unit.whole) for unit in units] == [(size, size // 60) for size in sizes]


def test_a_group_has_so_many_files_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "MOST_FILES", 2)
    assert list(source_files.grouped("abcde")) == [["a", "b"], ["c", "d"], ["e"]]


FILES = {"split": "train", "path": "train.jsonl"}


@pytest.mark.parametrize(
    ("changes", "units", "corpus"),  # whether the units are made again, and the corpus
    [
        ({"description": "Another."}, False, False),
        ({"error_budget": 0.5}, False, False),
        ({"licence": "MIT"}, False, True),
        ({"licence_class": "research-only"}, False, True),
        ({"upstream": {"url": "https://host/toy"}}, False, True),
        ({"twins": ["other"]}, False, True),
        ({"language": "de"}, True, True),
        ({"instruction": "is it even"}, True, True),
        ({"categories": {"label": {"0": "even", "1": "uneven"}}}, True, True),
        ({"categories": {"label": {"1": "odd", "0": "even"}}}, True, True),  # in another order
        ({"map": {"text": "text", "label": "label", "when": {"label": "1"}}}, True, True),
        ({"options": {"decode": ["label"]}}, True, True),
        ({"files": [{**FILES, "options": {"decode": ["label"]}}]}, True, True),
        ({"files": [{**FILES, "split": "test"}]}, True, True),
        ({"files": [{**FILES, "encoding": "latin-1"}]}, True, True),
    ],
)
def test_a_change_of_the_spec_makes_again_what_depends_on_it(
    world: World, source: Path, changes: dict[str, Any], units: bool, corpus: bool
) -> None:
    first = planned(world)
    world.spec(**changes)
    second = planned(world)
    assert ([unit.name for unit in first.units] != [unit.name for unit in second.units]) == units
    assert (first.fingerprint != second.fingerprint) == corpus


def test_ranges_whose_lines_are_numbered_otherwise_are_made_again(
    world: World, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two lines of the first range become one; the bytes of the others stay."""
    monkeypatch.setattr(change_detection, "UNIT_BYTES", 100)
    first, second, rest = numbers(range(20)).split("\n", 2)
    names = []
    for end in "\n ":
        source.write_text(f"{first}\n{second}{end}{rest}")
        names.append([unit.name for unit in planned(world).units])
    assert len(names[0]) == len(names[1]) > 3
    assert not {*names[0]} & {*names[1]}


def test_the_pin_of_an_entry_is_of_all_its_files(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "MOST_FILES", 1)
    shas = {name: file_hash(world.source(name, name)) for name in ("a.jsonl", "b.jsonl", "c.json")}
    right = joined_hash({name: shas[name] for name in ("a.jsonl", "b.jsonl")}), shas["c.json"]

    def pinned(*pins: str) -> Plan:
        paths = zip(("train", "test"), ("*.jsonl", "c.json"), pins, strict=True)
        world.spec(files=[{"split": split, "path": path, "blake3": pin} for split, path, pin in paths])
        return planned(world)

    assert len(pinned(*right).groups) == 3
    with pytest.raises(UserError, match=rf"toy/\*\.jsonl: .* got {right[0]};"):
        pinned("0" * 64, right[1])
    with pytest.raises(UserError, match=rf"toy/c\.json: .* got {right[1]};"):
        pinned(right[0], "0" * 64)


def test_files_that_are_read_together_are_one_with_the_bytes_of_all(world: World) -> None:
    files = [{"split": "train", "path": "texts"}]
    world.spec(format="parallel", options={"beside": {"label": "labels"}}, files=files)
    for name, content in (("texts", "one\ntwo\n"), ("labels", "1\n0\n")):
        world.source(content, name)
    [group] = planned(world).groups
    assert group.files == (["texts"], [12], [content_hash(world.data / "toy", ["texts", "labels"])])


def test_a_file_that_is_read_with_another_is_not_cut(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_detection, "UNIT_BYTES", 100)
    world.spec(options={"beside": {"path": "more.jsonl", "into": "more", "key": "text", "other_key": "text"}})
    size = world.source(numbers(range(20))).stat().st_size
    world.source(numbers([1]), "more.jsonl")
    [unit] = planned(world).units
    assert [(piece.start, piece.stop, piece.beside) for piece in unit.slices] == [(0, size, ("more.jsonl",))]
