"""Every command gives the same results and output for a store in an object store as for a folder."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace
from object_store import ObjectStore
from tiny_run import losses, make_encoder, make_recipe, write_recipe
from typer.testing import CliRunner
from worlds import World, corpus, numbers, put_corpus

from pipelines.audit.contamination import contamination
from pipelines.audit.duplicates import duplicates
from pipelines.cli.commands import app
from pipelines.pages.catalogue import markdown
from pipelines.report.page import html
from pipelines.store.storage import ObjectPath, StorePath, on_disk
from pipelines.store.warehouse import sql
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Recipe
from ubert.training.__main__ import main as training
from ubert.training.logs import log

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]

FOX = "the quick brown fox jumps over the lazy dog and then goes on to sleep in the deep green wood for a day"
EVIDENCE = ["duplicates", "leaks", "contradictions", "contamination"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def ubert(*arguments: object) -> str:
    """What a command prints."""
    done = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def audited(root: StorePath) -> dict[str, Any]:
    """Two corpora whose texts repeat, leak and contradict each other; what the audits find."""
    texts = [FOX, FOX, f"{FOX} and a night", "Nothing of this is anywhere else."]
    records = [replace(one, text=text) for one, text in zip(corpus("fox", 4), texts, strict=True)]
    put_corpus(root, "fox", records, rejected=[("train", "bad row")])
    put_corpus(root, "held", [replace(one, text=FOX) for one in corpus("held", 1, "test")])
    found = [duplicates(root=root), contamination(root=root, n=5)]
    return {
        "manifests": [manifest.model_dump(exclude={"created"}) for manifest in found],
        **{view: sql(root, f"SELECT * FROM {view}").to_pylist() for view in EVIDENCE},
    }


def anywhere(root: StorePath) -> str:
    """The report without what differs between two stores of the same content: where and when."""
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "then", html(root).replace(str(root), "here"))


def test_audits_and_the_report_are_those_of_a_folder(
    remote: ObjectPath, object_store: ObjectStore, tmp_path: Path
) -> None:
    faults = iter(["500", None, None, "503", None, "drop", None, None] * 10_000)
    with object_store.failing(lambda method, path: next(faults)):
        there, page = audited(remote), anywhere(remote)
    assert there == audited(tmp_path)
    assert all(there[view] for view in EVIDENCE)
    assert page == anywhere(tmp_path)


def told(world: World, root: StorePath) -> dict[str, str]:
    """What commands say of `toy`, once it is ingested."""
    ubert("ingest", "toy", "--specs", world.specs, "--data", world.data, "--root", root)
    page = markdown(root, world.specs)
    return {
        "catalogue": page,
        **{
            name: ubert(name, *more, "--root", root)
            for name, *more in (
                ["rejects", "toy"],
                ["stats"],
                ["corpora", "--specs", world.specs],
                ["sql", "SELECT * FROM rejects", "--format", "json"],
                ["peek", "corpus", "toy"],
            )
        },
    }


def test_commands_say_what_they_say_of_a_folder(remote: ObjectPath, world: World) -> None:
    world.spec()
    world.source(numbers(range(5)) + '{"text": "number 5", "label": 5}\n')
    there = told(world, remote)
    assert there == told(world, world.root)
    assert "5" in there["rejects"] and "train.jsonl:6" in there["rejects"]


@pytest.mark.parametrize("from_objects", [True, False])
def test_sources_are_fetched_to_the_disk_and_once(
    from_objects: bool, remote: ObjectPath, object_store: ObjectStore, world: World, tmp_path: Path
) -> None:
    source = tmp_path / "afar" / "train.jsonl"
    source.parent.mkdir()
    source.write_text(numbers(range(5)), encoding="utf-8")
    object_store.put(f"{remote.key}/afar/train.jsonl", source.read_bytes())
    world.spec(fetch=[{"url": f"{remote if from_objects else tmp_path}/afar/"}])
    where = ("toy", "--specs", world.specs, "--root", remote)
    assert "1 files" in ubert("fetch", *where)
    mirrored = on_disk(remote) / "raw" / "toy" / "train.jsonl"
    assert mirrored.read_bytes() == source.read_bytes()
    source.unlink()
    object_store.files.delete_file(f"{remote.key}/afar/train.jsonl")
    assert "1 files" in ubert("fetch", *where)
    assert "5 records kept" in ubert("ingest", *where)
    mirrored.unlink()
    with pytest.raises(UserError, match=r"no object under this prefix|a folder with no files"):
        ubert("fetch", *where)


def test_a_mirror_is_a_folder(world: World) -> None:
    world.spec()
    with pytest.raises(
        UserError, match=r"^s3://bucket/raw: expected a local folder for the mirror of raw sources"
    ):
        ubert("ingest", "toy", "--specs", world.specs, "--data", "s3://bucket/raw")


def test_without_ray_the_root_is_a_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["training", "tiny", "--root", "s3://bucket/store"])
    with pytest.raises(SystemExit):
        training()
    assert (
        "s3://bucket/store: expected a folder; from an object store, use `ubert pretrain`"
        in capsys.readouterr().err
    )


def parity(world: World, **changed: object) -> Recipe:
    """Sources, their spec, a mixture, an encoder and a recipe `parity` of it, which is written."""
    world.spec(files=[{"split": split, "path": f"{split}.jsonl"} for split in ("train", "test")])
    world.source(numbers(range(50)))
    world.source(numbers(range(50, 70)), "test.jsonl")
    drawn = {"name": "parity", "sources": [{"corpus": "toy"}]}
    (world.specs / "mixtures").mkdir()
    (world.specs / "mixtures" / "parity.yaml").write_text(yaml.safe_dump(drawn), encoding="utf-8")
    encoder = make_encoder(world.folder / "encoder")
    recipe = make_recipe(encoder, name="parity", mixture="parity", evaluate=[{"corpus": "toy"}], **changed)
    write_recipe(recipe, world.folder / "parity.yaml")
    return recipe


@pytest.mark.slow
def test_from_sources_to_predictions(remote: ObjectPath, world: World) -> None:
    """Trained, gone on with, measured and asked, a store in an object store has the model that a folder has."""
    recipe = parity(world, steps=3)
    encoder, file = recipe.encoder, world.folder / "parity.yaml"
    longer = recipe.model_copy(update={"steps": 5})

    def run(root: StorePath) -> list[Any]:
        specs = ("--specs", world.specs, "--root", root)
        ubert("ingest", "toy", "--data", world.data, *specs)
        ubert("mix", "parity", *specs)
        ubert("shard", "parity", "--encoder", encoder, "--max-tokens", 32, "--root", root)
        write_recipe(recipe, file)
        first = ubert("pretrain", file, *specs)
        assert ubert("pretrain", file, *specs) == first
        write_recipe(longer, file)
        ubert("pretrain", file, "--resume", "parity", *specs)
        ubert("evaluate", "parity", "--corpus", "toy", "--json", world.folder / "metrics.json", "--root", root)
        metrics = json.loads((world.folder / "metrics.json").read_text(encoding="utf-8"))
        asked = ("--task", "classification", "--categories", "even,odd", "number was good")
        return [
            losses(on_disk(root) / "runs" / "parity"),
            {**metrics, "seconds": None},
            ubert("predict", "parity", *asked, "--root", root),
            ubert("peek", "shard", "parity", "--root", root),
        ]

    there = run(remote)
    assert len(there[0]) == 5
    assert there == run(world.root)


@pytest.mark.slow
def test_a_run_waits_for_a_store_that_is_away_for_a_minute(
    remote: ObjectPath, object_store: ObjectStore, world: World
) -> None:
    """Its steps are on the disk; what it is measured on is in the store."""
    parity(world, steps=6, evaluate_every=2)
    file, specs = world.folder / "parity.yaml", ("--specs", world.specs)
    for root in (world.root, remote):
        ubert("ingest", "toy", "--data", world.data, "--root", root, *specs)
    ubert("pretrain", file, "--root", world.root, *specs)
    run, until = on_disk(remote) / "runs" / "parity", list[float]()

    def away(method: str, path: str) -> str | None:
        if not until and log.read(run)[0]:
            until.append(time.monotonic() + 60)
        return "503" if until and time.monotonic() < until[0] else None

    with object_store.failing(away):
        ubert("pretrain", file, "--root", remote, *specs)
    assert until and time.monotonic() > until[0]
    rows, expected = log.read(run)[0], log.read(world.root / "runs" / "parity")[0]
    assert [row.loss for row in rows] == pytest.approx([row.loss for row in expected], abs=1e-6)
    assert [row.metrics for row in rows] == [row.metrics for row in expected] and rows[1].metrics
