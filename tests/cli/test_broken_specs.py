"""A spec with an error does not hide the other specs, but a command that needs it fails before it starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result
from worlds import World, corpus, numbers, put_corpus

from pipelines.cli.commands import app
from pipelines.specs import dataset_spec
from ubert.schema.errors import UserError

GARBLED = "name: garbled\nalso: {more: [\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """The specs of an ingested corpus, and of two that have a typing error each."""
    world = World(tmp_path)
    for name in ("fine", "one", "two"):
        world.spec(name)
        world.source(numbers(range(3)), name=name)
    put_corpus(world.root, "fine", corpus("fine", 3))
    for name in ("one", "two"):
        path = world.specs / "datasets" / f"{name}.yaml"
        path.write_text(path.read_text().replace("format:", "formt:"))
    return world


def ubert(world: World, *arguments: str) -> Result:
    folders = {"--root": world.root, "--specs": world.specs, "--data": world.data}
    wanted = {name: path for name, path in folders.items() if name != "--data" or arguments[0] != "corpora"}
    given = [str(part) for pair in wanted.items() for part in pair]
    return CliRunner().invoke(app, [*arguments, *given])


def test_the_other_specs_are_listed_with_a_warning_for_each_broken_one(world: World) -> None:
    folder = world.specs / "datasets"
    (folder / "garbled.yaml").write_text(GARBLED)
    done = ubert(world, "corpora", "--json")
    assert done.exit_code == 0
    assert [(row["corpus"], row["kept"]) for row in json.loads(done.stdout)] == [("fine", 3)]
    warnings = done.stderr.splitlines()
    assert warnings[0].startswith(f"warning: {folder}/garbled.yaml: not valid YAML")
    for name in ("one", "two"):
        assert any(line.startswith(f"warning: {folder}/{name}.yaml: formt: unknown key") for line in warnings)


def test_a_corpus_without_a_spec_is_listed_last(world: World) -> None:
    """Such as one that came with a store from elsewhere, or whose spec is broken."""
    put_corpus(world.root, "adopted", corpus("adopted", 2), licence="MIT")
    rows = json.loads(ubert(world, "corpora", "--json").stdout)
    assert [(row["corpus"], row["licence"], row["kept"]) for row in rows] == [
        ("fine", "CC0-1.0", 3),
        ("adopted", "MIT", 2),
    ]


@pytest.mark.parametrize("arguments", [["ingest", "--all"], ["fetch", "--all"], ["ingest", "fine", "one", "two"]])
def test_a_command_that_needs_them_names_all_and_does_nothing(world: World, arguments: list[str]) -> None:
    before = sorted(world.root.rglob("*"))
    problem = ubert(world, *arguments).exception
    assert isinstance(problem, UserError)
    assert {Path(line.split(":")[0]).stem for line in str(problem).splitlines()} == {"one", "two"}
    assert sorted(world.root.rglob("*")) == before


def test_a_spec_under_also_is_found_beside_a_file_that_is_not_yaml(world: World) -> None:
    world.spec("fine", also={"digits": {"task": "classification", "instruction": "digits"}})
    (world.specs / "datasets" / "garbled.yaml").write_text(GARBLED)
    assert dataset_spec("digits", world.specs).instruction == "digits"
    with pytest.raises(UserError, match=r"garbled\.yaml: not valid YAML"):
        dataset_spec("more", world.specs)  # may be among the names under its `also`
