"""The error budget: how many rejected rows are too many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from worlds import World, numbers

from pipelines.ingest.ingest import Work
from pipelines.report.stats import rejected
from pipelines.store.store import Store
from pipelines.store.warehouse import sql
from ubert.schema.errors import UserError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_more_refused_rows_than_the_budget_publish_nothing_and_say_the_cure(world: World) -> None:
    world.spec(error_budget=0.01)
    world.source(numbers(range(97)) + '{"text": "no label"}\n{"text": "two", "label": 2}\n{\n')
    with pytest.raises(UserError) as error:
        world.read()
    message = str(error.value)
    for words in (
        "toy: split train: 3 of 100 rows were rejected, 3.00%, and its error budget allows 1.00%",
        "1 'not JSON', first train.jsonl:100: column",
        "1 'missing field', first train.jsonl:98: no 'label' in the row",
        f"{world.root}/corpora/toy/",
        "rejects-*.parquet",
        "set `error_budget: 0.03` in the spec",
    ):
        assert words in message
    with pytest.raises(UserError, match="nothing here yet"):
        Store(world.root).current("corpora", "toy")
    world.spec(error_budget=0.03)
    assert world.read() == Work(0, 0)  # what was refused need not be read again to be allowed


def test_one_per_cent_is_the_default(world: World) -> None:
    world.spec(error_budget=None)  # unstated
    world.source(numbers(range(99)) + "{\n")
    assert world.read().rows == 100
    world.source(numbers(range(98)) + "{\n{\n")
    with pytest.raises(UserError, match=r"2 of 100 rows were rejected"):
        world.read()
    assert len(world.records()) == 99  # the state before stays


def test_each_split_has_the_budget_of_its_own_rows(world: World) -> None:
    files = [{"split": split, "path": f"{split}.jsonl"} for split in ("train", "test")]
    world.spec(files=files, error_budget=0.1)
    world.source(numbers(range(1000)))
    world.source(numbers(range(3)) + "{\n", "test.jsonl")
    with pytest.raises(UserError, match=r"split test: 1 of 4 rows were rejected, 25\.00%"):
        world.read()


def test_files_that_are_refused_whole_have_the_budget_too(world: World) -> None:
    """A file that cannot be read is one reject, whatever is in it."""
    world.spec(format="json", files=[{"split": "train", "path": "*.json"}], error_budget=0.01)
    world.source(json.dumps([{"text": f"number {n}", "label": n % 2} for n in range(200)]), "a.json")
    world.source('[{"text": "number 7", "label": 1}, {"te', "b.json")
    world.source("[]", "c.json")
    with pytest.raises(
        UserError,
        match=r"split train: 1 of 3 files were rejected completely or partly, 33\.33%.*b\.json:1: line 1,",
    ):
        world.read()
    world.spec(format="json", files=[{"split": "train", "path": "*.json"}], error_budget=0.34)
    world.read()
    assert [(file["kept"], file["rejected"]) for file in world.files()] == [(200, 0), (0, 1), (0, 0)]


def test_a_file_that_breaks_off_counts_as_lost_despite_its_first_rows(world: World) -> None:
    world.spec(format="arrow", files=[{"split": "train", "path": "*.arrow"}], error_budget=0.01)
    rows = pa.table({"text": [f"number {n}" for n in range(10_000)], "label": [n % 2 for n in range(10_000)]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=500)
    whole = sink.getvalue().to_pybytes()
    world.source(whole[: len(whole) * 55 // 100], "a.arrow")
    with pytest.raises(UserError, match=r"1 of 1 files were rejected completely or partly.*the files: a\.arrow"):
        world.read()
    world.source(whole, "a.arrow")
    assert world.read().rows == 10_000


def test_an_item_without_rows_is_one_reject_among_the_others(world: World) -> None:
    files = [{"split": "train", "path": "a.json"}]
    world.spec(format="json", options={"rows": ["[].items[]"]}, files=files, error_budget=0.01)
    listed: list[dict[str, Any]] = [{"items": [{"text": f"number {n}", "label": n % 2}]} for n in range(1000)]
    listed[500] = {"name": "none"}
    world.source(json.dumps(listed), "a.json")
    world.read()
    assert [(file["kept"], file["rejected"]) for file in world.files()] == [(999, 1)]
    [reject] = world.rejects()
    assert (reject["reason"], reject["raw"]) == ("no rows", '{"name": "none"}')
    assert "#500: no key 'items', there is name" in reject["detail"]


def test_a_document_is_a_file_and_a_row(world: World) -> None:
    world.spec(
        format="json", options={"rows": ["."]}, files=[{"split": "train", "path": "*.json"}], error_budget=0.01
    )
    for n in range(100):
        world.source(json.dumps({"text": f"number {n}", "label": n % 2}) if n else "{", f"{n}.json")
    assert world.read().rows == 100


def test_files_without_annotations_do_not_count(world: World) -> None:
    files = [
        {"split": "train", "path": "train.jsonl"},
        {"split": "test", "path": "test.jsonl", "labelled": False},
    ]
    world.spec(files=files, error_budget=0)
    world.source(numbers(range(3)))
    world.source('{"text": "no label"}\n' * 2, "test.jsonl")
    assert world.read(strict=True).rows == 5


def test_a_file_may_be_declared_to_lack_annotations_and_no_longer(world: World) -> None:
    def said(labelled: bool) -> None:
        files = [
            {"split": split, "path": f"{split}.jsonl", "labelled": split == "train" or labelled}
            for split in ("train", "test")
        ]
        world.spec(files=files, error_budget=0)

    world.source(numbers(range(3)))
    world.source('{"text": "no label"}\n' * 2, "test.jsonl")
    for _ in range(2):
        said(True)
        with pytest.raises(UserError, match=r"split test would be empty: test\.jsonl: every row was rejected"):
            world.read()
        said(False)
        world.read()
        found = sql(world.root, "SELECT path, labelled FROM files ORDER BY path").to_pylist()
        assert found == [{"path": "test.jsonl", "labelled": False}, {"path": "train.jsonl", "labelled": True}]


def test_what_kept_a_corpus_from_being_published_is_shown(world: World) -> None:
    def shown() -> list[int]:
        lines: list[int] = rejected(world.root, "toy", 9)[1]["line"].to_pylist()
        return lines

    world.spec(error_budget=0.1)
    world.source("{\n")
    for content, lines in (("{\n", [1]), (numbers(range(3)) + "{\n", [4]), ("{\n" + numbers(range(5)), [1])):
        world.source(content)
        with pytest.raises(UserError, match=r"`ubert rejects toy` shows the rows|split train would be empty"):
            world.read()
        assert shown() == lines
    world.source(numbers(range(20)) + "{\n")
    world.read()
    assert shown() == [21]
    world.source(numbers(range(3)) + "{\n")
    with pytest.raises(UserError):
        world.read()
    assert shown() == [4]
    assert sql(world.root, "SELECT line FROM rejects")["line"].to_pylist() == [21]  # of what is published
    world.source(numbers(range(20)) + "{\n")  # as it was: published before, and the last state again
    world.read()
    assert shown() == [21]


def test_strict_is_a_budget_of_nothing(world: World) -> None:
    world.spec(error_budget=1.0)
    world.source(numbers(range(3)) + "{\n")
    with pytest.raises(UserError, match=r"1 of 4 rows .*--strict allows 0\.00%.*run without --strict"):
        world.read(strict=True)
    assert world.read() == Work(0, 0)
    reasons, rows = rejected(world.root, "toy", 3)
    assert reasons["rows"].to_pylist() == [1]
    assert sql(world.root, "SELECT raw FROM rejects").to_pylist() == [{"raw": "{"}]
    assert rows["line"].to_pylist() == [4]
