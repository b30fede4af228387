"""`ubert check` and `ubert try` read rows as ingest does: cleaned, and with categories from the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from worlds import World, numbers

from pipelines.drafting.check import differences
from pipelines.drafting.preview import preview
from pipelines.specs import dataset_spec
from ubert.schema.specs.dataset import DatasetSpec


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def spec(world: World, **changes: Any) -> DatasetSpec:
    world.spec(**changes)
    return dataset_spec("toy", world.specs)


def test_labels_are_cleaned_before_they_are_counted(world: World) -> None:
    world.source('{"text": "fine", "label": " good"}\n{"text": "poor", "label": "bad "}\n' * 10)
    map_ = {"text": "text", "label": "label", "clean": {"label": {"strip": True}}}
    cleaned = spec(world, map=map_, categories={"label": {"good": "good", "bad": "bad"}})
    assert differences(cleaned, world.data / "toy") == ([], 20)
    assert preview(cleaned, world.data / "toy", 1).kept == 20


def test_labels_that_come_from_the_data_are_not_missing(world: World) -> None:
    world.source(numbers(range(20)))
    open_ = spec(world, categories={"label": "from_data"})
    assert differences(open_, world.data / "toy") == ([], 20)
    found = preview(open_, world.data / "toy", 1)
    assert (found.kept, found.reasons.total()) == (20, 0)
    assert found.categories == {("label", "0"): 10, ("label", "1"): 10}


def test_entities_that_come_from_the_data_are_not_missing(world: World) -> None:
    world.source('{"w": ["Ada", "left"], "t": ["B-PER", "O"]}\n{"w": ["In", "Brno"], "t": ["O", "B-LOC"]}\n')
    map_ = {"tokens": "w", "tags": "t", "scheme": "BIO"}
    open_ = spec(world, task="ner", map=map_, categories={"entity": "from_data"})
    assert differences(open_, world.data / "toy") == ([], 2)
    assert preview(open_, world.data / "toy", 1).categories == {("entity", "PER"): 1, ("entity", "LOC"): 1}


def test_an_empty_table_has_no_rows(world: World) -> None:
    world.source("")
    empty = spec(world, format="table", options={"header": True})
    assert differences(empty, world.data / "toy")[1] == preview(empty, world.data / "toy", 1).kept == 0
