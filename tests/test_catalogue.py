"""The page of datasets: one row a spec, from what the store holds."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner
from worlds import World, corpus, put_corpus

from pipelines.catalogue import main, markdown
from pipelines.specs import dataset_names, specs_folder
from ubert.schema.errors import UserError
from ubert.schema.record import Mismatch


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two specs of one dataset, one of them with refused rows; and a spec that is not ingested."""
    world = World(tmp_path)
    unlabelled = {"split": "test", "path": "test.jsonl", "labelled": False}
    files = [{"split": "train", "path": "train.jsonl"}, unlabelled]
    world.spec("numbers", files=files, licence="CC0-1.0 | MIT", licence_class="permissive")
    world.spec("numbers_zh", dataset="numbers", language="zh")
    world.spec("absent")
    records = corpus("numbers", 1200) + corpus("numbers", 1, "validation")
    rejected = [("train", "empty text"), *[("test", "missing field")] * 3, ("train", "empty text")]
    moved = [Mismatch("mention", "a", "Ann", 3, "Bob", 2, place) for place in (None, 5, 7)]
    put_corpus(world.root, "numbers", records, rejected, moved)  # type: ignore[arg-type]
    put_corpus(world.root, "numbers_zh", corpus("numbers_zh", 2, "test"))
    return world


def cells(page: str, name: str) -> list[str]:
    (line,) = (line for line in page.splitlines() if f" | {name} | " in line or line.startswith(f"| {name} | "))
    return [cell.strip() for cell in line.replace("\\|", "/").strip("|").split(" | ")]


def test_the_project_s_page_has_every_spec_of_a_real_dataset() -> None:
    folder = specs_folder(None)
    page = (folder.parent / "docs" / "datasets.md").read_text(encoding="utf-8")
    real = [name for name in dataset_names(folder) if not name.startswith("sample_")]
    assert [name for name in real if f" | {name} | " not in page] == []  # `make datasets` writes it anew


def test_a_row_tells_what_became_of_a_dataset(world: World) -> None:
    page = markdown(world.root, world.specs)
    assert cells(page, "numbers_zh") == [
        "numbers", "numbers_zh", "classification", "zh", "CC0-1.0", "", "", "2", "", ""
    ]  # fmt: skip
    assert cells(page, "numbers | classification") == [
        "numbers", "numbers", "classification", "en", "CC0-1.0 / MIT", "1,200", "1", "0",
        "missing field (unlabelled) 3, empty text 2", "mention 3 (2 placed)",
    ]  # fmt: skip


def test_totals_are_by_task_by_language_and_of_all(world: World) -> None:
    page = markdown(world.root, world.specs)
    assert cells(page, "classification | 1") == ["classification", "1", "2", "1,208", "1,203", "5"]
    assert cells(page, "zh | 1") == ["zh", "1", "1", "2", "2", "0"]
    assert cells(page, "all") == ["all", "1", "2", "1,208", "1,203", "5"]


def test_a_spec_without_a_corpus_is_named(world: World) -> None:
    page = markdown(world.root, world.specs)
    assert page.endswith("so not in the tables: absent.\n")


def test_the_same_store_gives_the_same_page(world: World) -> None:
    assert markdown(world.root, world.specs) == markdown(world.root, world.specs)


def test_a_store_without_corpora_is_an_error(world: World, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no corpus of these specs here; make one with `ubert ingest"):
        markdown(tmp_path / "none", world.specs)


def test_the_page_is_printed_or_written(world: World, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(main)
    given = ["--root", str(world.root), "--specs", str(world.specs)]
    page = markdown(world.root, world.specs)
    assert CliRunner().invoke(app, given).stdout == page
    assert CliRunner().invoke(app, [*given, "--out", str(tmp_path / "page.md")]).exit_code == 0
    assert (tmp_path / "page.md").read_text() == page
