"""Datasets in the hub's form: their rows in the mirror, pinned by content, without network or their code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, Features, Value
from worlds import World, numbers

from pipelines.mirror import fill, hub
from pipelines.specs import dataset_spec
from ubert.schema.errors import UserError

FEATURES = Features({"text": Value("string"), "label": ClassLabel(names=["even", "odd"])})
CARD = """---
configs:
- config_name: small
  data_files:
  - {split: train, path: small/train.parquet}
  - {split: test, path: small/test.parquet}
---
"""


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    yield


@pytest.fixture
def world(tmp_path: Path) -> World:
    write_hub(tmp_path / "hub", range(10))
    return World(tmp_path)


def write_hub(hub: Path, values: range, features: Features = FEATURES) -> None:
    (hub / "small").mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        rows = [{"text": f"{split} {n}", "label": n % 2} for n in values]
        Dataset.from_list(rows, features=features).to_parquet(hub / "small" / f"{split}.parquet")
    (hub / "README.md").write_text(CARD)


def bring(world: World, *, path: str = "small/train.parquet", **fetch: Any) -> dict[str, Any]:
    wanted = {"url": "hf:../hub", "config": "small", **fetch}
    world.spec(
        format="parquet",
        options={"class_names": True},
        fetch=[wanted],
        files=[{"split": "train", "path": path}],
        categories={"label": {"even": "even", "odd": "odd"}},
    )
    return fill(dataset_spec("toy", world.specs), world.data / "toy", world.specs, lambda *_: None)


def files(world: World) -> list[str]:
    folder = world.data / "toy"
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet"))


def test_a_config_becomes_a_parquet_file_a_split(world: World) -> None:
    [fetched] = bring(world).values()
    assert files(world) == ["small/test.parquet", "small/train.parquet"]
    rows = pq.read_table(world.data / "toy/small/train.parquet").to_pylist()
    assert rows == [{"text": f"train {n}", "label": n % 2} for n in range(10)]
    assert fetched.parts.keys() == {"small/test.parquet", "small/train.parquet"}
    assert not (world.data / "toy" / ".fetching").exists()


def test_one_split_in_a_folder_of_its_own(world: World) -> None:
    bring(world, splits=["test"], into="raw", path="raw/small/test.parquet")
    assert files(world) == ["raw/small/test.parquet"]


def test_other_forms_than_parquet(world: World) -> None:
    (world.folder / "lines").mkdir()
    (world.folder / "lines" / "train.jsonl").write_text(numbers(range(10)))
    bring(world, url="hf:../lines", config=None, path="train.parquet")
    rows = pq.read_table(world.data / "toy/train.parquet").to_pylist()
    assert rows[3] == {"text": "number 3", "label": 1}


def test_the_pin_is_of_the_rows_and_not_of_how_they_are_written(world: World) -> None:
    [first] = bring(world).values()
    path = world.folder / "hub" / "small" / "train.parquet"
    table = pq.read_table(path)
    pq.write_table(table, path, compression="none", row_group_size=3)
    (world.data / "toy/small/train.parquet").unlink()
    [second] = bring(world, blake3=first.blake3).values()
    assert second.blake3 == first.blake3


def test_the_rows_are_the_same_however_many_are_read_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    [first] = bring(world).values()
    monkeypatch.setattr(hub, "ROWS", 3)
    (world.data / "toy/small/train.parquet").unlink()
    [second] = bring(world, blake3=first.blake3).values()
    rows = pq.read_table(world.data / "toy/small/train.parquet").to_pylist()
    assert (second.parts, [row["text"] for row in rows]) == (first.parts, [f"train {n}" for n in range(10)])


def test_another_revision_replaces_the_rows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    bring(world)
    write_hub(world.folder / "hub", range(20))
    load, revisions = hub.load, list[Any]()

    def loading(*arguments: Any, **options: Any) -> Any:
        revisions.append(options.get("revision"))
        return load(*arguments, **options)

    monkeypatch.setattr(hub, "load", loading)
    bring(world, revision="v2")
    assert pq.read_table(world.data / "toy/small/train.parquet").num_rows == 20
    assert revisions == ["v2"]


@pytest.mark.parametrize("changed", ["rows", "names"])
def test_changed_rows_or_names_of_classes_are_an_error(world: World, changed: str) -> None:
    bring(world)
    if changed == "rows":
        write_hub(world.folder / "hub", range(11))
    else:
        swapped = Features({"text": Value("string"), "label": ClassLabel(names=["odd", "even"])})
        write_hub(world.folder / "hub", range(10), swapped)
    (world.data / "toy/small/train.parquet").unlink()
    with pytest.raises(UserError, match=r"hf:\.\./hub#small: changed since .* small/train\.parquet \(2\)"):
        bring(world)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"config": "large"}, r"large.* Available: \['small'\]"),
        ({"splits": ["dev"]}, "no split dev; expected one of train, test"),
        ({"url": "hf:../nowhere"}, "hf:../nowhere#small: "),
        ({"url": "hf://owner/nothing-like-this", "revision": "abc"}, "hf://owner/nothing-like-this#small: "),
    ],
)
def test_what_is_not_there_gives_one_clear_error(world: World, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        bring(world, **wrong)
    assert files(world) == []


@pytest.mark.parametrize("file", ["train.zip", "train.tar"])
def test_a_damaged_dataset_gives_one_clear_error(world: World, file: str) -> None:
    (world.folder / "damaged").mkdir()
    (world.folder / "damaged" / file).write_bytes(b"damaged " * 100)
    with pytest.raises(UserError, match=r"hf:\.\./damaged: (File is not a zip file|invalid header); correct"):
        bring(world, url="hf:../damaged", config=None)
    assert files(world) == []


def test_code_of_a_dataset_is_never_run(world: World) -> None:
    hub = world.folder / "hub"
    (hub / "hub.py").write_text(f"open({str(world.folder / 'ran')!r}, 'w')")
    for url in ("hf:../hub", "hf:../hub/hub.py"):
        with pytest.raises(UserError, match="scripts are no longer supported"):
            bring(world, url=url)
    assert not (world.folder / "ran").exists()


def test_a_local_folder_does_not_pass_for_the_hub(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.folder)
    write_hub(world.folder / "owner" / "data", range(10))
    with pytest.raises(UserError, match="hf://owner/data#small: "):
        bring(world, url="hf://owner/data")


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_ingest_from_the_hub(world: World) -> None:
    bring(world)
    world.ingest()
    assert [row["labels"] for row in world.records()] == [[n % 2] for n in range(10)]
