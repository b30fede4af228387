"""Every command with tables can print JSON. The help of every command is short and has an example."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from handmade import sentiment
from msgspec.structs import replace
from tiny_run import make_encoder, make_recipe, write_recipe
from typer.main import get_command
from typer.testing import CliRunner
from worlds import put_corpus

import pipelines.jobs
import pipelines.mixtures.mix
import pipelines.models.evaluate
import pipelines.models.find
import pipelines.models.thresholds
import pipelines.probe.probe
import pipelines.shards.shard
import pipelines.suspects.suspects
import pipelines.training.pretrain
import pipelines.tuning.affinity
import pipelines.tuning.page
import pipelines.tuning.tune
from pipelines.cli.commands import app
from pipelines.cli.stages import STAGES
from pipelines.samples.generate import generate_files
from pipelines.training import compare

COMMANDS = get_command(app).commands  # type: ignore[attr-defined]
RESULT = {"corpus": "reviews", "split": "test", "records": 2, "seconds": 1.0, "metrics": {"accuracy": 0.5}}
PROBED = {"name": "one", "corpus": "reviews", "shots": 5, "metric": "accuracy", "seed": 0, "value": 0.5}
RANK = SimpleNamespace(correlation=0.9, chance=0.01)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a corpus, a mirror, a mixture and its recipe."""
    folder = tmp_path_factory.mktemp("world")
    generate_files(6, 0, folder / "raw")
    records = [replace(sentiment(i), corpus="reviews") for i in range(20)]
    put_corpus(folder / "store", "reviews", records, rejected=[("train", "bad row")])
    for kind in ("datasets", "mixtures", "recipes"):
        (folder / "specs" / kind).mkdir(parents=True)
    (folder / "specs/mixtures/tiny.yaml").write_text("name: tiny\nsources: [{corpus: reviews, balance: 2.0}]\n")
    write_recipe(make_recipe(make_encoder(folder / "encoder")), folder / "specs/recipes/tiny.yaml")
    return folder


def given(result: Any) -> Callable[..., Any]:
    """A job that has nothing to do."""
    return lambda *_, **__: result


@pytest.fixture(autouse=True)
def jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Jobs that train or measure are done already; the commands print what they return."""
    checkpoint = tmp_path / "runs/tiny/checkpoints/step-000008"
    checkpoint.mkdir(parents=True)
    alignment = {"corpus": "reviews", "tokens": 9, "spans": 3}
    shards = SimpleNamespace(
        alignment=[
            SimpleNamespace(
                **alignment, links=0, lost={"cut": 1}, lost_links={}, model_dump=lambda exclude: alignment
            )
        ],
        cut_categories=1,
        shards=[],
        fingerprint="0",
    )
    affinity = SimpleNamespace(
        corpora=["reviews"],
        sources=["reviews/train", "people/train"],
        change_CK=np.array([[np.nan, -0.2]]),
        clusters=[["reviews/train"]],
        died={"0": "the loss is nan"},
    )
    tuned = SimpleNamespace(
        setup=SimpleNamespace(mixture=SimpleNamespace(name="tiny")),
        space=SimpleNamespace(names=["reviews/train"], natural_K=np.array([1.0]), own_K=np.array([1.0])),
        fit=SimpleNamespace(held_back=RANK, kind="linear", is_chance=False),
        confirmed=SimpleNamespace(change=0.1, chance=0.5),
        shares=[1.0],
        trials=3,
        is_better=False,
        died={},
    )
    found = SimpleNamespace(counts={"records": 0, "flagged": 0}, parameters={"source": "folds"})
    for module, name, result in (
        (pipelines.training.pretrain, "pretrain", checkpoint),
        (compare, "comparison_table", pa.table({"corpus": ["reviews"], "before": [0.1]})),
        (pipelines.models.find, "find_checkpoint", checkpoint),
        (pipelines.models.evaluate, "evaluate", RESULT),
        (
            pipelines.models.thresholds,
            "fit",
            ("ner", SimpleNamespace(threshold=0.4, records=2), {0.4: {"span_f1": 0.5}}),
        ),
        (pipelines.suspects.suspects, "suspects", found),
        (pipelines.probe.probe, "probe", [PROBED]),
        (pipelines.tuning.affinity, "affinity", affinity),
        (pipelines.tuning.tune, "tune", tuned),
        (pipelines.tuning.page, "write", [tmp_path / "tiny-tuned.yaml"]),
        (pipelines.jobs, "connect", None),
        (pipelines.jobs, "listed", pa.table({"job": ["ingest-1"], "minutes": [1.5]})),
    ):
        monkeypatch.setattr(module, name, given(result))
    monkeypatch.setattr("pipelines.cli.tuning._setup", given(None))

    def shard(*_: Any, report: Callable[[Any], None], **__: Any) -> Any:
        report(SimpleNamespace(reused=0))
        return shards

    monkeypatch.setattr(pipelines.shards.shard, "shard", shard)


CASES: dict[str, tuple[str, list[str] | None]] = {  # arguments, and the titles where there are several tables
    "corpora": ("--specs SPECS", None),
    "rejects": ("reviews", ["reasons", "rows"]),
    "stats": ("", ["records", "annotations", "texts", "licences", "rejects"]),
    "sql": ("SELECT-corpus,-split-FROM-corpora", None),
    "try": ("sample_reviews --data RAW", ["categories", "rejects"]),
    "draft": ("--check sample_reviews --data RAW", None),
    "mix": ("tiny --dry-run --encoder ENCODER --specs SPECS", ["sources", "categories"]),
    "shard": ("tiny --specs SPECS", ["alignment", "losses"]),
    "pretrain": ("tiny --specs SPECS", None),
    "threshold": ("tiny --corpus reviews", ["ner"]),
    "suspects": ("reviews", None),
    "affinity": ("tiny", None),
    "tune": ("tiny", None),
    "probe": ("one --corpora reviews --against=", None),
    "jobs": ("", None),
}


def invoked(world: Path, command: str, arguments: str, *options: str) -> str:
    places = {"SPECS": "specs", "RAW": "raw", "ENCODER": "encoder"}
    words = [
        str(world / places[word])
        if word in places
        else word.replace("-", " ")
        if word.startswith("SELECT")
        else word
        for word in arguments.split()
    ]
    root = [] if command == "jobs" else ["--root", str(world / "store")]
    done = CliRunner().invoke(app, [command, *words, *root, *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("command", CASES)
def test_tables_are_printed_as_json_and_nothing_else_with_them(command: str, world: Path) -> None:
    arguments, titles = CASES[command]
    printed = json.loads(invoked(world, command, arguments, "--json"))
    if titles is None:
        assert isinstance(printed, list)
    else:
        assert list(printed) == titles
    rows = printed if titles is None else [row for of_title in printed.values() for row in of_title]
    assert all(isinstance(row, dict) for row in rows)
    if command == "mix":
        assert rows[1]["source"] == "(all)" and rows[1]["share"] == 1.0


def test_numbers_are_numbers_in_json(world: Path) -> None:
    [row] = json.loads(invoked(world, "affinity", "tiny", "--json"))
    assert row == {"corpus": "reviews", "reviews/train": None, "people/train": -0.2}
    assert "-20.0%" in invoked(world, "affinity", "tiny")


def test_metrics_go_to_a_file_or_to_the_standard_output(world: Path, tmp_path: Path) -> None:
    file = tmp_path / "metrics.json"
    assert "accuracy" in invoked(world, "evaluate", "tiny --corpus reviews", "--json", str(file))
    printed = invoked(world, "evaluate", "tiny --corpus reviews", "--json", "-")
    assert json.loads(printed) == json.loads(file.read_text()) == RESULT


def test_every_command_with_tables_is_tried_here() -> None:
    showing = {name for name, one in COMMANDS.items() if "--wide" in options_of(one)}
    assert showing == {*CASES, "evaluate"}
    assert all("--json" in options_of(COMMANDS[name]) for name in showing)


def options_of(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def test_commands_are_listed_by_stage() -> None:
    assert list(COMMANDS) == [name for names in STAGES.values() for name in names]
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout
    assert [shown.index(f"─ {stage} ") for stage in STAGES] == sorted(
        shown.index(f"─ {stage} ") for stage in STAGES
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_a_short_sentence_with_details_and_an_example_below(name: str) -> None:
    command = COMMANDS[name]
    first, *below = inspect.cleandoc(command.help).split("\n\n")
    assert len(first.split()) <= 10 and first.endswith(".")
    assert any(part.startswith(f"Example: ubert {name}") for part in below if "UBERT_" not in part)
    for parameter in command.params:
        assert parameter.help, f"{name}: {parameter.name}"
        sentence = re.split("[;:] ", parameter.help)[0]
        assert len(sentence.split()) <= 10, parameter.help
        assert sentence[0].isupper()
    shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "80"}).stdout
    assert "…" not in shown, "an option is cut"
