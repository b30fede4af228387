"""Bad input, a failing store, a crash: one clear error, exit code 1, nothing lost, nothing half-written."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_for
from worlds import World, numbers

from pipelines import cli
from pipelines.ingest import source_files
from pipelines.ingest.ingest import ingest
from pipelines.ingest.run_unit import run_unit
from pipelines.ingest.units import plan
from pipelines.specs import dataset_spec
from pipelines.store.store import Store
from pipelines.store.warehouse import sql
from ubert.schema.errors import UserError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]
REPO = Path(__file__).resolve().parents[2]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    """The exit code of `ubert ...`, run in this process."""
    monkeypatch.setattr(sys, "argv", ["ubert", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)


def ingest_command(monkeypatch: pytest.MonkeyPatch, world: World, *more: str) -> int:
    places = ("--specs", world.specs, "--data", world.data, "--root", world.root)
    return command(monkeypatch, "ingest", "toy", *places, *more)


# A spec, a source, and what the refused row is refused for.
STANDOFF: dict[str, Any] = {
    "task": "ner",
    "map": {"text": "text", "standoff": "marks"},
    "categories": {"entity": {"x": "thing"}},
}
TABLE: dict[str, Any] = {
    "format": "table",
    "options": {"columns": ["label", "text"]},
    "files": [{"split": "train", "path": "train.tsv"}],
}


def mention(start: int, end: int, words: str) -> str:
    span = f'{{"id": "T1", "label": "x", "fragments": [[{start}, {end}]], "text": "{words}"}}'
    return f'{{"text": "a red hen", "marks": {{"spans": [{span}]}}}}\n'


BAD_ROWS: dict[str, tuple[dict[str, Any], bytes, str]] = {
    "wrong encoding": ({}, numbers([1]).encode() + b'{"text": "caf\xe9", "label": 1}\n', "wrong encoding"),
    "truncated JSON": ({}, numbers([1]).encode() + b'{"text": "half a ro', "not JSON"),
    "unknown category": ({}, numbers([1]).encode() + b'{"text": "two", "label": 2}\n', "unknown category"),
    "wrong column count": (TABLE, b"1\tone\n2\n", "wrong column count"),
    "span outside its text": (
        STANDOFF,
        (mention(2, 5, "red") + mention(6, 10, "hen")).encode(),
        "span outside its text",
    ),
    "mention that doesn't match": (
        STANDOFF,
        (mention(2, 5, "red") + mention(2, 5, "hen")).encode(),
        "mention doesn't match its offsets",
    ),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_a_bad_row_is_refused_with_its_reason_and_its_place(
    case: str, world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, source, reason = BAD_ROWS[case]
    world.spec(**changes)
    world.source(source, changes.get("files", [{"path": "train.jsonl"}])[0]["path"])
    assert ingest_command(monkeypatch, world, "--strict") == 1
    assert ":2: " in (message := capsys.readouterr().err) and reason in message.replace("\n", " ")
    assert command(monkeypatch, "rejects", "toy", "--root", world.root) == 0
    said = capsys.readouterr()
    assert reason in said.out and "the last ingest was not published" in said.err
    assert ingest_command(monkeypatch, world) == 0
    assert (len(world.records()), [(row["line"], row["reason"]) for row in world.rejects()]) == (1, [(2, reason)])
    capsys.readouterr()
    assert command(monkeypatch, "rejects", "toy", "--root", world.root) == 0
    said = capsys.readouterr()
    assert reason in said.out and not said.err


def missing_file(world: World) -> None:
    (world.data / "toy/train.jsonl").unlink()


def endless_name(world: World) -> None:
    world.spec(files=[{"split": "train", "path": "x" * 300}])


def missing_folder(world: World) -> None:
    world.spec(dataset="elsewhere", upstream={"url": "https://example.org/toy"})


def empty_file(world: World) -> None:
    world.source("")


def nothing_kept(world: World) -> None:
    world.source("not JSON\n")


def unknown_key(world: World) -> None:
    world.spec(langauge="en")


def wrong_pin(world: World) -> None:
    world.spec(files=[{"split": "train", "path": "train.jsonl", "blake3": "0" * 64}])


def file_named_twice(world: World) -> None:
    world.spec(files=[{"split": "train", "path": path} for path in ("train.jsonl", "*.jsonl")])


def no_spec(world: World) -> None:
    (world.specs / "datasets/toy.yaml").rename(world.specs / "datasets/tot.yaml")


def undecodable_document(world: World) -> None:
    world.spec(format="json")
    world.source(b'[{"text": "caf\xe9"}]')


def store_below_a_file(world: World) -> None:
    world.root.write_text("not a folder")


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (missing_file, ["train.jsonl", "no such file"]),
        (endless_name, ["xxx: File name too long", "of a spec"]),
        (missing_folder, ["no folder", "data/elsewhere", "--data", "its files are at https://example.org/toy"]),
        (empty_file, ["split train would be empty", "train.jsonl", "no rows; check the file, and the spec"]),
        (nothing_kept, ["split train would be empty", "train.jsonl:1", "not JSON"]),
        (unknown_key, ["toy.yaml", "langauge", "unknown key"]),
        (wrong_pin, ["train.jsonl", "expected blake3 0000", "put `blake3: "]),
        (file_named_twice, ["train.jsonl", "named twice"]),
        (no_spec, ["toy.yaml", "no such file", "did you mean tot"]),
        (undecodable_document, ["train.jsonl", "line 1", "0xe9", "encoding"]),
        (store_below_a_file, ["cannot write to the store", "--root"]),
    ],
)
def test_what_cannot_be_ingested_gives_one_clear_error_and_exit_code_1(
    break_it: Any,
    words: list[str],
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world.spec()
    world.source(numbers(range(3)))
    break_it(world)
    assert ingest_command(monkeypatch, world) == 1
    message = capsys.readouterr().err
    assert [word for word in words if word not in message] == []
    assert "Traceback" not in message
    assert not list(world.folder.glob("store/corpora/*/*/manifest.json"))


def test_one_corpus_that_fails_does_not_keep_the_others_back(world: World) -> None:
    for name in ("bad", "good", "worse"):
        world.spec(name)
    world.source(numbers(range(3)), name="good")
    with pytest.raises(UserError, match=r"^bad: no folder .*\nworse: no folder "):
        ingest(["bad", "good", "worse"], specs=world.specs, data=world.data, root=world.root)
    assert len(world.records("good")) == 3


def test_a_source_that_changes_while_it_is_read_is_not_taken(world: World) -> None:
    world.spec()
    path = world.source(numbers(range(3)))
    planned = plan(spec := dataset_spec("toy", world.specs), world.data / "toy")
    path.write_text(numbers(range(1, 4)))
    with pytest.raises(UserError, match=r"train\.jsonl: changed while it was being ingested"):
        run_unit(planned.units[0], spec, world.root)
    assert not list(world.root.iterdir())


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Files of this process cannot grow beyond `size` bytes: what a full disk does to one file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_midway_leaves_nothing_behind(world: World) -> None:
    world.spec()
    world.source(numbers(range(100_000)))
    planned = plan(spec := dataset_spec("toy", world.specs), world.data / "toy")
    with largest_file(1 << 18), pytest.raises(UserError, match="cannot write to the store: File too large"):
        run_unit(planned.units[0], spec, world.root)
    assert not list(world.root.iterdir())
    assert run_unit(planned.units[0], spec, world.root) == 100_000


def test_a_full_disk_shows_nothing_half_written_and_the_next_run_completes(world: World) -> None:
    world.spec(files=[{"split": "train", "path": "*.jsonl"}])
    for name in "ab":
        world.source(numbers(range(50_000)), f"{name}.jsonl")
    world.root.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(world.root)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system needs the right to")
    try:
        with pytest.raises(UserError, match=r"No space left on device.*free some disk space"):
            world.ingest()
        assert [path for path in world.root.rglob("*") if path.is_file() and path.name != ".lock"] == []
        subprocess.run(["mount", "-o", "remount,size=64m", str(world.root)], check=True)
        assert world.ingest().splits[0].kept == 100_000
    finally:
        # lazily: a worker of Ray may end a little later than the run
        subprocess.run(["umount", "--lazy", str(world.root)], check=True)


KILLED = """
import sys
from pathlib import Path
import ray
from pipelines.ingest import source_files
from pipelines.ingest.ingest import ingest
specs, data, root = map(Path, sys.argv[1:])
ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
source_files.MOST_FILES = 1
ingest(["toy"], specs=specs, data=data, root=root)
"""


def test_a_killed_run_is_completed_by_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world.spec(files=[{"split": "train", "path": "*.jsonl"}])
    for number in range(40):
        world.source(numbers(range(number, number + 500)), f"{number:02}.jsonl")
    driver = subprocess.Popen(
        [sys.executable, "-c", KILLED, world.specs, world.data, world.root],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": str(REPO)},
    )
    home = world.root / "corpora/toy"
    wait_for(lambda: len(list(home.glob("*/part-*"))) >= 3, driver)
    driver.send_signal(signal.SIGKILL)
    assert driver.wait() == -signal.SIGKILL
    time.sleep(1)  # its workers end with it
    done = {path: path.stat().st_ino for path in home.glob("*/part-*")}
    assert 3 <= len(done) < 40
    with pytest.raises(UserError, match="nothing here yet"):
        Store(world.root).current("corpora", "toy")

    monkeypatch.setattr(source_files, "MOST_FILES", 1)
    resumed = world.ingest()
    assert {path: path.stat().st_ino for path in done} == done
    assert not list(home.glob("*/.tmp-*"))
    uninterrupted = World(tmp_path / "other")
    uninterrupted.folder.mkdir()
    for part in ("specs", "data"):
        (uninterrupted.folder / part).symlink_to(world.folder / part)
    assert uninterrupted.ingest().splits == resumed.splits
    assert uninterrupted.files() == world.files()
    assert uninterrupted.records() == world.records()


def test_a_file_that_is_known_to_lack_annotations_may_be_refused_as_a_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.spec(
        files=[
            {"split": "train", "path": "train.jsonl"},
            {"split": "test", "path": "test.jsonl", "labelled": False},
        ]
    )
    world.source(numbers(range(3)))
    world.source('{"text": "no label"}\n' * 2, "test.jsonl")
    assert ingest_command(monkeypatch, world) == 0
    rows = sql(world.root, "SELECT split, kept, rejected FROM corpora ORDER BY split").to_pylist()
    assert rows == [{"split": "test", "kept": 0, "rejected": 2}, {"split": "train", "kept": 3, "rejected": 0}]


def test_without_a_root_the_store_is_in_the_folder_at_hand(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "UBERT_ROOT"}
    command = [sys.executable, "-m", "pipelines.cli", "sql", "SELECT count(*) AS n FROM corpora"]
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "0" in done.stdout, done.stderr
