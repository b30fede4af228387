"""Ingest: no row is lost, no work is repeated, and a changed byte redoes only its unit."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import World, corpus, numbers, put_corpus

from pipelines.ingest import change_detection, hashes, publish, source_files, units
from pipelines.ingest.ingest import Work
from pipelines.ingest.units import plan
from pipelines.sources import file_hash
from pipelines.specs import dataset_spec
from pipelines.store.store import Store
from pipelines.store.warehouse import sql
from ubert.schema.errors import UserError
from ubert.schema.record import RECORD_SCHEMA, sampling_key

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def inodes(paths: list[Path]) -> list[int]:
    return [path.stat().st_ino for path in paths]


def test_every_row_is_kept_or_refused_with_its_place(world: World) -> None:
    world.spec()
    path = world.source(numbers([0, 1]) + '{"text": "no label"}\n{"text": \n' + numbers([4]))
    [counts] = world.ingest().splits
    [file] = world.files()
    expected = {"split": "train", "bytes": path.stat().st_size, "records": 5, "kept": 3, "rejected": 2}
    assert counts.model_dump() == {**expected, "files": 1, "warnings": {}}
    assert file == {
        **expected, "corpus": "toy", "labelled": True, "path": "train.jsonl", "blake3": file_hash(path)
    }  # fmt: skip
    assert [row["record_id"] for row in world.records()] == [f"toy/train/train.jsonl:{line}" for line in (1, 2, 5)]
    assert [row["text"] for row in world.records()] == ["number 0", "number 1", "number 4"]
    assert [(row["path"], row["line"], row["reason"], row["raw"]) for row in world.rejects()] == [
        ("train.jsonl", 3, "missing field", '{"text": "no label"}'),
        ("train.jsonl", 4, "not JSON", '{"text": '),
    ]


def test_the_manifest_says_what_a_corpus_is_and_counts_each_split(world: World) -> None:
    files = [{"split": "train", "path": "*.jsonl"}, {"split": "test", "path": "test.txt"}]
    where: dict[str, Any] = {"upstream": {"url": "https://host/toy"}, "twins": ["other"]}
    world.spec(files=files, categories={"label": "from_data"}, language="de", licence="MIT", **where)
    world.source(numbers(range(5)), "a.jsonl")
    world.source(numbers([5]) + "{\n", "b.jsonl")
    world.source(numbers([6, 8]), "test.txt")
    made = world.ingest()
    assert (made.language, made.licence, made.upstream, made.twins) == ("de", "MIT", "https://host/toy", ["other"])
    assert (made.task, made.licence_class, made.dataset) == ("classification", "permissive", "toy")
    assert made.from_data == {"label": {"0": 5, "1": 3}}
    row = len(numbers([0]))
    assert [(of.split, of.files, of.bytes, of.records, of.kept, of.rejected) for of in made.splits] == [
        ("train", 2, 6 * row + 2, 7, 6, 1),
        ("test", 1, 2 * row, 2, 2, 0),
    ]


def test_a_part_has_the_schema_and_what_derives_from_the_record(world: World) -> None:
    world.spec()
    world.source(numbers(range(3)))
    world.ingest()
    [file] = world.files()
    [part] = world.parts()
    assert pq.read_schema(part).equals(RECORD_SCHEMA)
    for row in world.records():
        assert row["key"] == sampling_key(row["record_id"])
        assert row["source"]["sha"] == file["blake3"]


def test_a_second_run_does_nothing(world: World) -> None:
    world.spec()
    world.source(numbers(range(10)))
    first = world.ingest()
    before = {path: path.stat().st_mtime_ns for path in world.root.rglob("*.parquet")}
    assert world.ingest() == first
    assert {path: path.stat().st_mtime_ns for path in world.root.rglob("*.parquet")} == before


def test_a_changed_byte_redoes_its_own_unit_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "MOST_FILES", 1)
    world.spec(files=[{"split": "train", "path": "*.jsonl"}])
    for name in "abc":
        world.source(numbers(range(10)), f"{name}.jsonl")
    first = world.ingest()
    old = inodes(world.parts())
    world.source(numbers(range(9, -1, -1)), "b.jsonl")
    second = world.ingest()
    new = inodes(world.parts())
    assert first.fingerprint != second.fingerprint
    assert [a == b for a, b in zip(old, new, strict=True)] == [True, False, True]
    assert next(row["text"] for row in world.records() if row["source"]["path"] == "b.jsonl") == "number 9"


def test_what_is_refused_has_a_file_where_there_is_any_and_stays_with_its_unit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_files, "MOST_FILES", 1)
    world.spec(files=[{"split": "train", "path": "*.jsonl"}])
    world.source(numbers(range(4)), "a.jsonl")
    world.source(numbers(range(4)) + '{"text": "no label"}\n', "b.jsonl")
    first = world.ingest()
    assert (len(first.parts), len(first.reject_parts), len(first.mismatch_parts)) == (2, 1, 0)
    world.source(numbers(range(5)), "a.jsonl")
    second = world.ingest()
    assert second.fingerprint != first.fingerprint and second.reject_parts == first.reject_parts
    assert [row["path"] for row in world.rejects()] == ["b.jsonl"]


def test_rejected_rows_that_are_missing_are_noticed(world: World) -> None:
    world.spec()
    world.source(numbers([0]) + '{"text": "no label"}\n')
    manifest = world.ingest()
    [part] = world.parts()
    (part.parent / manifest.reject_parts[0]).unlink()
    with pytest.raises(UserError, match=f"missing, and with it 1 rejected rows; delete {part.name}"):
        world.ingest()
    part.unlink()
    assert world.ingest().reject_parts == manifest.reject_parts and len(world.rejects()) == 1


def test_a_damaged_part_that_versions_share_is_named_with_all_its_copies(world: World) -> None:
    for name in "ab":
        world.source(numbers(range(10)), f"{name}.jsonl")
    world.spec(
        files=[{"split": split, "path": f"{name}.jsonl"} for name, split in (("a", "train"), ("b", "test"))]
    )
    world.ingest()
    world.source(numbers(range(9)), "a.jsonl")
    world.ingest()
    home = world.parts()[0].parents[1]
    [shared] = [
        name for name, copies in Counter(part.name for part in home.glob("*/part-*")).items() if copies == 2
    ]
    for copy in home.glob(f"*/{shared}"):
        copy.write_bytes(b"damaged")
    with pytest.raises(UserError, match=rf"{shared}: .* damaged: .*; delete {home}/\*/{shared}, because versions"):
        world.ingest()
    for copy in home.glob(f"*/{shared}"):
        copy.unlink()
    assert [of.kept for of in world.ingest().splits] == [9, 10]


def test_a_state_that_comes_back_becomes_the_current_one_again(world: World) -> None:
    world.spec()
    world.source(numbers(range(10)))
    first = world.ingest()
    world.source(numbers(range(11)))
    assert world.ingest().fingerprint != first.fingerprint
    world.source(numbers(range(10)))
    assert world.ingest().fingerprint == first.fingerprint
    assert len(world.records()) == 10


def test_what_records_depend_on_in_the_spec_redoes_them_and_the_rest_does_not(world: World) -> None:
    world.spec()
    world.source(numbers(range(10)))
    first = world.ingest()
    old = inodes(world.parts())
    world.spec(description="Other words for the same.")
    assert world.ingest() == first
    world.spec(licence="CC-BY-4.0")
    assert world.ingest().licence == "CC-BY-4.0"
    assert inodes(world.parts()) == old
    world.spec(instruction="is it even")
    world.ingest()
    assert inodes(world.parts()) != old
    assert {row["instruction"] for row in world.records()} == {"is it even"}


def test_an_option_of_one_file_redoes_it_beside_options_of_the_spec(world: World) -> None:
    world.source("".join(f"number {n},{n % 2}\n" for n in range(9)), "train.csv")
    for kept in (9, 4):
        own = {"split": "train", "path": "train.csv", "options": {"only": [0, kept]}}
        shared = {"separator": ",", "columns": ["text", "label"]}
        world.spec(format="table", options=shared, files=[own])
        world.ingest()
        assert len(world.records()) == kept


def test_a_cut_file_gives_the_same_records_as_a_whole_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.spec()
    world.source(numbers(range(500)))
    world.ingest()
    whole, expected = world.files(), world.records()
    monkeypatch.setattr(change_detection, "UNIT_BYTES", 1000)
    monkeypatch.setattr(source_files, "MOST_FILES", 1)
    cut = world.ingest()
    assert len(cut.parts) > 5
    assert world.files() == whole
    for row in [*expected, *(found := world.records())]:
        del row["source"]["sha"]  # of the range, where a file is cut
    assert found == expected


def test_the_rows_of_all_units_are_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_detection, "UNIT_BYTES", 1000)
    monkeypatch.setattr(source_files, "MOST_FILES", 1)
    world.spec()
    world.source(numbers(range(300)))
    assert world.read().rows == 300


def test_a_cut_file_counts_once_in_each_split(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_detection, "UNIT_BYTES", 1000)
    world.spec(files=[{"split": "train", "path": "*.jsonl"}, {"split": "test", "path": "a.jsonl"}])
    for name, count in (("a", 100), ("b", 3)):
        world.source(numbers(range(count)), f"{name}.jsonl")
    assert world.read() == Work(3, 203)


def test_mentions_that_do_not_match_stay_with_their_unit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "MOST_FILES", 1)
    named = {"each": "s[]", "id": "i", "label": "l", "start": "b", "words": "w"}
    categories = {"entity": {"a": "thing"}}
    files = [{"split": "train", "path": "*.jsonl"}]
    world.spec(task="ner", map={"text": "t", "spans": named}, categories=categories, files=files)
    good = '{"t": "hello", "s": []}\n'
    world.source(good + '{"t": "hello", "s": [{"i": "1", "l": "a", "b": 0, "w": "jello"}]}\n', "a.jsonl")
    made = []
    for count in (1, 2):
        world.source(good * count, "b.jsonl")
        made.append(world.ingest())
    assert made[0].fingerprint != made[1].fingerprint
    assert made[0].mismatch_parts == made[1].mismatch_parts != []
    assert sql(world.root, "SELECT path, line FROM mismatches").to_pylist() == [{"path": "a.jsonl", "line": 2}]


def test_many_files_are_looked_at_by_tasks_and_remembered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tasks find is what is found without them; what they hashed is not hashed again."""
    sources = [world.source(numbers([n, n + 1]), f"{n}.jsonl") for n in range(7)]
    world.spec(files=[{"split": "train", "path": "*.jsonl"}])
    monkeypatch.setattr(source_files, "GROUP_FILES", 3)
    found = plan(dataset_spec("toy", world.specs), world.data / "toy")
    time.sleep(hashes.SETTLED + 0.1)
    monkeypatch.setattr(units, "MANY", 7)
    read: list[Path] = []
    whole = hashes._whole
    monkeypatch.setattr(hashes, "_whole", lambda path, *of: read.append(Path(path)) or whole(path, *of))
    manifest = world.ingest()
    assert manifest.fingerprint == found.fingerprint
    assert [(file["path"], file["blake3"], file["kept"]) for file in world.files()] == [
        (path.name, file_hash(path), 2) for path in sources
    ]
    sources[3].write_text(numbers([9]))
    world.ingest()
    assert world.files()[3]["kept"] == 1
    assert read == [sources[3]]


def test_a_file_that_tasks_cannot_read_is_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(3):
        world.source(numbers([n]), f"{n}.jsonl")
    beside = {"path": "labels", "into": "more", "key": "text", "other_key": "text"}
    world.spec(files=[{"split": "train", "path": "*.jsonl"}], options={"beside": beside})
    monkeypatch.setattr(units, "MANY", 2)
    with pytest.raises(UserError, match="labels: No such file or directory; the spec names it as a source file"):
        world.ingest()


def test_a_cut_file_that_grows_redoes_its_end_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_detection, "UNIT_BYTES", 1000)
    monkeypatch.setattr(source_files, "MOST_FILES", 1)
    world.spec()
    world.source(numbers(range(200)))
    world.ingest()
    old = inodes(world.parts())
    world.source(numbers(range(201)))
    world.ingest()
    assert inodes(world.parts())[: len(old) - 1] == old[:-1]
    assert len(world.records()) == 201


def test_a_cut_table_is_read_anew_where_its_header_changes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every range of a table depends on the first line."""
    monkeypatch.setattr(change_detection, "UNIT_BYTES", 500)
    monkeypatch.setattr(source_files, "MOST_FILES", 1)
    options = {"separator": "\t", "header": True}
    files = [{"split": "train", "path": "train.tsv"}]
    world.spec(format="table", options=options, files=files)
    rows = "".join(f"number {n}\t{n % 2}\tnummer {n}\n" for n in range(100))
    world.source("text\tlabel\tnote\n" + rows, "train.tsv")
    world.ingest()
    world.source("note\tlabel\ttext\n" + rows, "train.tsv")
    world.ingest()
    assert {row["text"].split()[0] for row in world.records()} == {"nummer"}


@pytest.mark.parametrize("keys", [1 << 24, 10])  # that are sorted at once
def test_an_id_that_occurs_twice_is_found(tmp_path: Path, keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "KEYS", keys)
    records = corpus("toy", 100)
    for again in ([], [records[7], records[31], records[7]]):
        put_corpus(tmp_path, "toy", records + again)
        directory, manifest = Store(tmp_path).current("corpora", "toy")
        with pytest.raises(UserError, match=r"2 record ids .* 'toy/train/31'") if again else nullcontext():
            publish._check_ids("toy", [directory / part for part in manifest.parts])


def test_small_files_share_a_unit(world: World) -> None:
    world.spec(files=[{"split": "train", "path": "*.jsonl"}])
    for number in range(20):
        world.source(numbers([number]), f"{number:02}.jsonl")
    manifest = world.ingest()
    assert len(manifest.parts) == 1
    assert [(file["path"], file["kept"]) for file in world.files()] == [(f"{n:02}.jsonl", 1) for n in range(20)]


def test_one_file_may_serve_two_splits(world: World) -> None:
    files = [
        {"split": split, "path": "all.json", "options": {"rows": [f"{split}[]"]}} for split in ("train", "test")
    ]
    world.spec(format="json", files=files)
    world.source('{"train": [{"text": "four", "label": 0}], "test": [{"text": "five", "label": 1}]}', "all.json")
    assert [(counts.split, counts.kept) for counts in world.ingest().splits] == [("train", 1), ("test", 1)]
    assert {(row["split"], row["text"]) for row in world.records()} == {("train", "four"), ("test", "five")}


def test_the_pin_of_the_spec_holds_and_its_error_gives_the_new_one(world: World) -> None:
    content = numbers(range(3))
    world.source(content)
    world.spec(files=[{"split": "train", "path": "train.jsonl", "blake3": "0" * 64}])
    with pytest.raises(
        UserError, match=r"train\.jsonl.*expected blake3 0{64}.*got (\w{64}).*put `blake3: "
    ) as error:
        world.ingest()
    right = str(error.value).split("`blake3: ")[1][:64]
    world.spec(files=[{"split": "train", "path": "train.jsonl", "blake3": right}])
    world.ingest()
    assert world.files()[0]["blake3"] == right


def test_strict_publishes_nothing_where_a_row_is_refused(world: World) -> None:
    world.spec()
    world.source(numbers(range(3)) + "{\n")
    with pytest.raises(UserError, match=r"--strict.*not JSON.*train\.jsonl:4"):
        world.ingest(strict=True)
    with pytest.raises(UserError, match="ubert ingest toy"):
        Store(world.root).current("corpora", "toy")
    world.ingest()
    with pytest.raises(UserError, match="--strict"):
        world.ingest(strict=True)


def test_sources_are_taken_from_the_mirror_then_from_the_samples(world: World) -> None:
    world.spec()
    world.source(numbers(range(3)))
    world.data.rename(world.specs / "samples")
    assert world.ingest().splits[0].kept == 3
    world.source(numbers(range(5)))
    assert world.ingest().splits[0].kept == 5


@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(st.sampled_from([b"", b" ", b"a", b"bb\r", b"c c c c c c", b"long " * 9]), max_size=40),
    end=st.sampled_from([b"", b"\n"]),
    limit=st.integers(1, 20),
    longest=st.integers(20, 40),
    cut=st.sampled_from(["line", "blank line"]),
)
def test_ranges_are_the_file_and_end_where_a_record_may(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[bytes],
    end: bytes,
    limit: int,
    longest: int,
    cut: units.Cut,
) -> None:
    path = tmp_path_factory.getbasetemp() / "ranges"
    content = b"\n".join(lines) + end
    path.write_bytes(content)
    told: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashes, "LONGEST_ROW", longest)
        patch.setattr(hashes, "BLOCK", 3)
        found = list(hashes.ranges(path, cut, limit, told.append))
    assert b"".join(told) == content
    pieces = [content[piece.start : piece.stop] for piece in found]
    assert b"".join(pieces) == content
    assert [piece.sha for piece in found] == [blake3(piece).hexdigest() for piece in pieces]
    assert [piece.line for piece in found] == [1 + content.count(b"\n", 0, piece.start) for piece in found]
    for piece in pieces[:-1]:
        assert piece.endswith(b"\n")
        assert cut == "line" or not piece.splitlines()[-1].strip()
    for piece, of_file in zip(pieces, found, strict=True):
        if of_file.too_long:  # it is one row
            assert len(piece) > longest
            assert cut == "blank line" or piece.count(b"\n") <= 1
        else:
            assert len(piece) <= limit + longest


def test_many_seeds_of_a_cut_conll_file_keep_every_sentence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    sentences = [[f"w{i}.{k} {draw.choice(['O', 'B-x'])}" for k in range(draw.randint(1, 6))] for i in range(80)]
    world.source("\n\n".join("\n".join(sentence) for sentence in sentences) + "\n", "train.conll")
    world.spec(
        task="ner",
        format="conll",
        options={"columns": ["token", "tag"]},
        files=[{"split": "train", "path": "train.conll"}],
        map={"tokens": "token", "tags": "tag"},
        categories={"entity": {"x": "thing"}},
    )
    monkeypatch.setattr(change_detection, "UNIT_BYTES", 100)
    monkeypatch.setattr(source_files, "MOST_FILES", 1)
    manifest = world.ingest()
    assert len(manifest.parts) > 5
    assert [row["text"] for row in world.records()] == [
        " ".join(word.split()[0] for word in sentence) for sentence in sentences
    ]
