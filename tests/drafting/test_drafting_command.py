"""What `ubert draft` says after it has written a spec."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from drafts import mirror, put, sentence
from typer.testing import CliRunner

from pipelines.cli.commands import app
from pipelines.specs import SPECS, dataset_spec


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    rng = random.Random(1)
    rows = [{"text": sentence(rng), "label": "ab"[n % 2]} for n in range(40)]
    return put(mirror(tmp_path), "train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def said(*words: str) -> str:
    """What the command says, without the line ends and spaces that depend on the width of the terminal."""
    done = CliRunner().invoke(app, ["draft", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return re.sub(r"\s", "", done.output)


@pytest.mark.parametrize(
    ("out", "moved"),
    [
        ("specs/datasets/shop.yaml", ""),
        ("specs/datasets/shop.yml", "move it to specs/datasets/shop.yaml, "),
        ("shop.yaml", "move it to specs/datasets/shop.yaml, "),
    ],
)
def test_the_next_command_finds_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Path, out: str, moved: str
) -> None:
    monkeypatch.chdir(tmp_path)
    told = f"comments, {moved}then run `ubert ingest shop --data {tmp_path / 'raw'} --specs specs`"
    assert told.replace(" ", "") in said(str(lines), "--out", out, "--specs", "specs")
    if moved:
        (tmp_path / "specs" / "datasets").mkdir(parents=True, exist_ok=True)
        (tmp_path / out).rename("specs/datasets/shop.yaml")
    assert dataset_spec("shop", tmp_path / "specs").task == "classification"


def test_a_spec_outside_a_folder_of_specs_is_moved_to_those_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Path
) -> None:
    monkeypatch.delenv("UBERT_SPECS", raising=False)
    told = f"move it to {SPECS / 'datasets' / 'shop.yaml'}, then run `ubert ingest shop --data {tmp_path / 'raw'}`"
    assert told.replace(" ", "") in said(str(lines), "--out", str(tmp_path / "shop.yaml"))
