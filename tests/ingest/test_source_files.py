"""A folder of raw files that is not there: the error names the folder that the user meant, and how to name it."""

from __future__ import annotations

from pathlib import Path

import pytest
from worlds import World

from pipelines.ingest.source_files import source_folder
from pipelines.specs import dataset_spec
from ubert.schema.errors import UserError


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.spec(dataset="workshop")
    return world


def refused(world: World, mirror: Path) -> str:
    with pytest.raises(UserError) as caught:
        source_folder(dataset_spec("toy", world.specs), mirror, world.specs)
    return str(caught.value)


def test_a_mirror_without_the_folder_says_what_it_lacks(world: World) -> None:
    world.data.mkdir()
    assert refused(world, world.data) == (
        f"toy: no folder {world.data}/workshop; name the folder that holds 'workshop' with --data (UBERT_DATA)"
    )


def test_a_mirror_that_does_not_exist_is_told(world: World) -> None:
    assert "no folder nope/workshop (nope does not exist); name" in refused(world, Path("nope"))


def test_an_upstream_tells_where_the_files_are(world: World) -> None:
    world.spec(upstream={"url": "https://host/toy"})
    assert refused(world, world.data).endswith("(UBERT_DATA); its files are at https://host/toy")


def test_the_mirror_comes_before_the_samples(world: World) -> None:
    sample = world.specs / "samples" / "workshop"
    sample.mkdir(parents=True)
    spec = dataset_spec("toy", world.specs)
    assert source_folder(spec, world.data, world.specs) == sample
    (world.data / "workshop").mkdir(parents=True)
    assert source_folder(spec, world.data, world.specs) == world.data / "workshop"
