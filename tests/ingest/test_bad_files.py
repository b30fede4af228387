"""A bad file among good ones is one reject with its reason. The others are read, and the error budget applies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from worlds import World, numbers

from pipelines.store.warehouse import sql
from ubert.schema.errors import UserError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


SQUAD = {"data": [{"title": "t", "paragraphs": [{"context": "Ada", "qas": [
    {"id": "1", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]}]}]}]}  # fmt: skip
QA = {"text": "context", "question": "question", "answers": "answers"}
FORMATS: dict[str, tuple[dict[str, Any], str, str]] = {  # changes of the spec, a good file, a bad one
    "header": (
        {"format": "table", "options": {"header": True, "separator": ","}},
        "text,label\none,1\n",
        "te\udcfft,label\none,1\n",
    ),
    "no rows": (
        {"format": "json", "options": {"rows": ["rows[]"]}},
        '{"rows": [{"text": "one", "label": 1}]}',
        '{"other": 1}',
    ),
    "xml": (
        {"format": "xml", "options": {"rows": ["row[]"]}},
        "<a><row label='1' text='one'/></a>",
        "<a><row>",
    ),
    "another shape": (
        {"format": "squad", "task": "qa", "categories": {}, "map": QA},
        json.dumps(SQUAD),
        json.dumps({"rows": []}),
    ),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_its_format_cannot_read_is_one_reject(kind: str, world: World) -> None:
    changes, good, bad = FORMATS[kind]
    world.spec(files=[{"split": "train", "path": "*.x"}], **changes)
    for name, content in (("a", good), ("b", bad), ("c", good)):
        world.source(content.encode(errors="surrogateescape"), f"{name}.x")
    [counts] = world.ingest().splits
    assert (counts.files, counts.kept, counts.rejected) == (3, 2, 1)
    [reject] = world.rejects()
    assert (reject["path"], reject["reason"]) == ("b.x", "unreadable file") and reject["detail"]


def test_parallel_files_of_unequal_length_are_one_reject(world: World) -> None:
    world.spec(
        format="parallel",
        options={"beside": {"label": "labels"}},
        files=[{"split": "train", "path": "*/texts"}],
    )
    for folder, labels in (("a", "1\n1\n"), ("b", "1\n")):
        world.source("one\ntwo\n", f"{folder}/texts")
        world.source(labels, f"{folder}/labels")
    [counts] = world.ingest().splits
    assert (counts.kept, counts.rejected) == (2, 1)
    [reject] = world.rejects()
    assert reject["path"] == "b/texts" and "got text 2, label 1" in reject["detail"]


def test_a_companion_that_is_not_there_is_one_reject(world: World) -> None:
    world.spec(
        format="parallel",
        options={"beside": {"label": "labels"}},
        files=[{"split": "train", "path": "*/texts"}],
    )
    for folder in ("a", "b"):
        world.source("one\n", f"{folder}/texts")
    world.source("1\n", "a/labels")
    (world.data / "toy/b/labels").symlink_to("/etc/hostname")
    [counts] = world.ingest().splits
    assert (counts.kept, counts.rejected) == (1, 1)


@pytest.mark.parametrize(
    "target", ["absent.jsonl", "b.jsonl", "../../secret.jsonl"], ids=["dangling", "loop", "out"]
)
@pytest.mark.parametrize("pattern", ["*.jsonl", "**/*.jsonl"])
def test_a_link_that_leads_nowhere_or_out_of_the_mirror_is_one_reject(
    target: str, pattern: str, world: World
) -> None:
    world.spec(files=[{"split": "train", "path": pattern}])
    world.source(numbers([1, 2]), "a.jsonl")
    (world.folder / "secret.jsonl").write_text(numbers([3]))
    (world.data / "toy/b.jsonl").symlink_to(target)
    [counts] = world.ingest().splits
    assert (counts.files, counts.kept, counts.rejected) == (2, 2, 1)
    [reject] = world.rejects()
    assert (reject["path"], reject["reason"], reject["raw"]) == ("b.jsonl", "unreadable file", "")
    assert sql(world.root, "SELECT path FROM rejects")["path"].to_pylist() == ["b.jsonl"]


def test_a_folder_that_leads_out_of_the_mirror_is_not_read(world: World) -> None:
    world.spec(files=[{"split": "train", "path": "*/*.jsonl"}])
    world.source(numbers([1]), "here/a.jsonl")
    (world.folder / "elsewhere").mkdir()
    (world.folder / "elsewhere/secret.jsonl").write_text(numbers([3]))
    (world.data / "toy/there").symlink_to(world.folder / "elsewhere")
    assert [counts.kept for counts in world.ingest().splits] == [1]
    [reject] = world.rejects()
    assert "leads out of the mirror" in reject["detail"]


def test_links_inside_the_mirror_and_to_the_whole_of_a_dataset_are_followed(world: World) -> None:
    world.spec()
    elsewhere = world.folder / "disk/toy"
    elsewhere.mkdir(parents=True)
    (elsewhere / "numbers.jsonl").write_text(numbers([1, 2, 3]))
    (elsewhere / "train.jsonl").symlink_to("numbers.jsonl")
    world.data.mkdir()
    (world.data / "toy").symlink_to(elsewhere)
    assert [counts.kept for counts in world.ingest().splits] == [3]


def test_the_budget_names_every_bad_file(world: World) -> None:
    world.spec(files=[{"split": "train", "path": "*.jsonl"}], error_budget=0.3)
    world.source(numbers(range(20)), "a.jsonl")
    for name in ("b", "c"):
        (world.data / f"toy/{name}.jsonl").symlink_to("absent")
    with pytest.raises(UserError, match=r"2 of 3 files were rejected completely.*b\.jsonl, c\.jsonl"):
        world.ingest()
