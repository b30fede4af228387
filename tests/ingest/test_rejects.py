"""What is kept of a rejected row, and rows that are too long to be read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from worlds import World, numbers

from pipelines.ingest import change_detection, hashes
from pipelines.ingest.hashes import Hashes
from pipelines.ingest.publish import publish
from pipelines.ingest.run_unit import run_unit
from pipelines.ingest.units import Plan, plan
from pipelines.specs import dataset_spec
from pipelines.store.store import Store
from ubert.schema.errors import UserError
from ubert.schema.manifest import CorpusManifest
from ubert.schema.record import LONGEST_RAW

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def planned(world: World) -> Plan:
    spec = dataset_spec("toy", world.specs)
    return plan(spec, world.data / "toy", Hashes(Store(world.root).sources("toy")))


def test_of_a_long_row_the_beginning_is_kept(world: World) -> None:
    world.spec()
    world.source(numbers([1]) + "x" * (2 * LONGEST_RAW) + "\n")
    world_plan = planned(world)
    directory = Store(world.root).directory("corpora", "toy", "any")
    run_unit(world_plan.units[0], world_plan.spec, directory)
    [reject] = rejects_in(directory)
    assert reject["raw"] == "x" * LONGEST_RAW + f" [... {2 * LONGEST_RAW:,} characters in all]"


def test_the_place_is_reported_once(world: World) -> None:
    world.spec()
    world.source(numbers([0]) + '{"text": "no label"}\n{"text": "two", "label": 2}\n')
    world_plan = planned(world)
    directory = Store(world.root).directory("corpora", "toy", "any")
    run_unit(world_plan.units[0], world_plan.spec, directory)
    for reject in rejects_in(directory):
        assert reject["path"] == "train.jsonl"
        assert "train.jsonl" not in reject["detail"]


@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_a_row_that_is_too_long_is_refused_alone_and_not_decoded(
    where: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashes, "LONGEST_ROW", 1000)
    monkeypatch.setattr(change_detection, "UNIT_BYTES", 500)
    rows = [numbers([n]).encode() for n in range(40)]
    at = {"first": 0, "middle": 20, "last": 40}[where]
    rows.insert(at, b'{"text": "\xff' + b"a" * 5000 + b'", "label": 1}\n')
    world.spec()
    world.source(b"".join(rows))
    world_plan = planned(world)
    directory = Store(world.root).directory("corpora", "toy", "any")
    counted = sum(run_unit(unit, world_plan.spec, directory) for unit in world_plan.units)
    [reject] = rejects_in(directory)
    assert counted == 41
    assert (reject["line"], reject["reason"]) == (at + 1, "row too long")
    assert reject["detail"].startswith("5,026 bytes")
    assert reject["raw"].startswith('{"text": "\\xffaaa') and reject["raw"].endswith("[... 5,026 bytes in all]")


def test_the_rows_of_a_file_are_counted_over_all_its_units(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_detection, "UNIT_BYTES", 200)
    world.spec()
    world.source((numbers(range(3)) + "{\n") * 10)
    world_plan, store = planned(world), Store(world.root)
    assert len(world_plan.units) > 2
    directory = store.directory("corpora", "toy", world_plan.fingerprint)
    for unit in world_plan.units:
        run_unit(unit, world_plan.spec, directory)
    [split] = publish(store, world_plan, strict=False).splits
    [file] = world.files()
    assert (split.records, split.kept, split.rejected) == (40, 30, 10)
    assert (file["records"], file["kept"], file["rejected"]) == (40, 30, 10)


def ingested(world: World) -> CorpusManifest:
    """Ingest `toy` in this process."""
    made, store = planned(world), Store(world.root)
    for unit in made.units:
        run_unit(unit, made.spec, store.directory("corpora", "toy", made.fingerprint))
    return publish(store, made, strict=False)


def test_the_most_common_reasons_are_reported_with_their_first_rows(world: World) -> None:
    world.spec(error_budget=0.1)
    bad = {"{": 1, '{"text": "a"}': 2, '{"text": "a", "label": 7}': 3, "[]": 4}
    world.source(numbers([0, 1]) + "".join(f"{row}\n" * count for row, count in bad.items()))
    with pytest.raises(UserError) as error:
        ingested(world)
    reasons = (
        "4 'not an object', first train.jsonl:9: ",
        "; 3 'unknown category', first train.jsonl:6: ",
        "; 2 'missing field', first train.jsonl:4: ",
        "; 1 for other reasons; ",
    )
    places = [str(error.value).find(reason) for reason in reasons]
    assert places == sorted(places) and places[0] > 0
    assert "10 of 12 rows" in str(error.value) and "not JSON" not in str(error.value)


def test_files_that_are_refused_whole_are_reported_without_the_rows_of_others(world: World) -> None:
    world.spec(files=[{"split": "train", "path": "*.jsonl"}], error_budget=0.2)
    world.source(numbers(range(200)) + "{\n", "a.jsonl")
    for number in range(22):
        (world.data / f"toy/b{number:02}.jsonl").symlink_to("absent")
    told = r"22 of 23 files .* 22 'unreadable file', first b00\.jsonl:1: .* b00\.jsonl, .*, b19\.jsonl and 2 more;"
    with pytest.raises(UserError, match=told) as error:
        ingested(world)
    assert "not JSON" not in str(error.value)


def test_an_empty_split_names_its_first_file_and_counts_the_others(world: World) -> None:
    world.spec(files=[{"split": "train", "path": "train.jsonl"}, {"split": "test", "path": "*.txt"}])
    world.source(numbers([1]))
    for name in "abc":
        world.source("", f"{name}.txt")
    with pytest.raises(UserError, match=r"split test would be empty: a\.txt and 2 more: it has no rows"):
        ingested(world)


@pytest.mark.parametrize("length", [10, LONGEST_RAW, 2 * LONGEST_RAW])
def test_of_a_file_that_cannot_be_read_the_beginning_is_kept(world: World, length: int) -> None:
    files = [
        {"split": "train", "path": "train.json"},
        {"split": "test", "path": "test.json", "encoding": "latin-1"},
    ]
    world.spec(format="json", options={"rows": ["rows[]"]}, files=files)
    world.source('{"rows": [{"text": "one", "label": 1}]}', "train.json")
    content = '{"é": "' + "x" * length + '"}'
    world.source(content.encode("latin-1"), "test.json")
    made = planned(world)
    directory = Store(world.root).directory("corpora", "toy", "any")
    assert [run_unit(unit, made.spec, directory) for unit in made.units] == [1, 1]
    [reject] = rejects_in(directory)
    assert (reject["path"], reject["line"], reject["split"]) == ("test.json", 1, "test")
    assert reject["raw"] == content[:LONGEST_RAW]


def rejects_in(directory: Any) -> list[dict[str, Any]]:
    return [row for path in sorted(directory.glob("rejects-*")) for row in pq.read_table(path).to_pylist()]


GIGABYTE = """
import sys
from pathlib import Path
from pipelines.ingest.run_unit import run_unit
from pipelines.specs import dataset_spec
from pipelines.ingest.units import plan
specs, data, out = map(Path, sys.argv[1:])
made = plan(spec := dataset_spec("toy", specs), data / "toy")
print(sum(run_unit(unit, spec, out) for unit in made.units))
[peak] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(int(peak.split()[1]) >> 10)  # of this process alone; getrusage counts its parent's before exec too
"""


@pytest.mark.slow
def test_a_row_of_a_gigabyte_takes_little_memory(world: World) -> None:
    world.spec()
    path = world.source(numbers(range(3)))
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(b'{"text": "')
        file.seek(1 << 30, os.SEEK_CUR)  # a hole: zeros
        file.write(b'"}\n' + numbers([3]).encode())
    out = subprocess.run(
        [sys.executable, "-c", GIGABYTE, world.specs, world.data, world.root],
        env={**os.environ, "PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
        check=True,
    )
    rows, megabytes = map(int, out.stdout.split())
    assert rows == 5
    assert megabytes < 500
    [reject] = rejects_in(world.root)
    assert (reject["line"], reject["reason"]) == (4, "row too long")
    assert len(reject["raw"]) <= LONGEST_RAW
