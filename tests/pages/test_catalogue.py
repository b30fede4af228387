"""The page of datasets: one row per spec, from the content of the store."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner
from worlds import World, corpus, put_corpus

from pipelines.pages.catalogue import main, markdown
from pipelines.specs import dataset_names, specs_folder
from ubert.schema.errors import UserError
from ubert.schema.record import Mismatch


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two specs of one dataset, one of them with refused rows; and a spec that is not ingested."""
    world = World(tmp_path_factory.mktemp("world"))
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


@pytest.fixture(scope="module")
def page(world: World) -> str:
    return markdown(world.root, world.specs)


def cells(page: str, name: str) -> list[str]:
    (line,) = (line for line in page.splitlines() if line.startswith(f"| {name} | "))
    return [cell.strip() for cell in line.replace("\\|", "/").strip("|").split(" | ")]


def test_the_project_s_page_has_every_spec_of_a_real_dataset() -> None:
    folder = specs_folder(None)
    page = (folder.parent / "docs" / "datasets.md").read_text(encoding="utf-8")
    real = [name for name in dataset_names(folder) if not name.startswith("sample_")]
    assert [name for name in real if f" | {name} | " not in page] == []  # `make datasets` writes it anew


def test_a_row_tells_what_a_dataset_holds(page: str) -> None:
    assert cells(page, "numbers | numbers_zh") == [
        "numbers", "numbers_zh", "classification", "zh", "public-domain", "2", "2: even, odd",
        "number 1 / <em>odd</em>",
    ]  # fmt: skip
    assert cells(page, "numbers | numbers") == [
        "numbers", "numbers", "classification", "en", "permissive", "1,201", "2: even, odd", "*licence*"
    ]  # fmt: skip


def test_the_counts_tell_what_became_of_a_dataset(page: str) -> None:
    assert cells(page, "numbers_zh") == ["numbers_zh", "CC0-1.0", "", "", "2", "", ""]
    assert cells(page, "numbers | CC0-1.0 \\| MIT") == [
        "numbers", "CC0-1.0 / MIT", "1,200", "1", "0",
        "missing field (unlabelled) 3, empty text 2", "mention 3 (2 placed)",
    ]  # fmt: skip


def test_totals_are_by_task_by_language_and_of_all(page: str) -> None:
    assert cells(page, "classification | 1") == ["classification", "1", "2", "1,208", "1,203", "5"]
    assert cells(page, "zh | 1") == ["zh", "1", "1", "2", "2", "0"]
    assert cells(page, "all") == ["all", "1", "2", "1,208", "1,203", "5"]


def test_a_spec_without_a_corpus_is_named(page: str) -> None:
    assert page.endswith("so not in the tables: absent.\n")


def test_a_store_without_corpora_is_an_error(world: World, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no corpus of these specs here; make one with `ubert ingest"):
        markdown(tmp_path / "none", world.specs)


def test_the_same_store_gives_the_same_page_printed_or_written(world: World, page: str, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(main)
    given = ["--root", str(world.root), "--specs", str(world.specs)]
    assert CliRunner().invoke(app, given).stdout == page
    assert CliRunner().invoke(app, [*given, "--out", str(tmp_path / "page.md")]).exit_code == 0
    assert (tmp_path / "page.md").read_text() == page
