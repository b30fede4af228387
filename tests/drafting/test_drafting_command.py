"""What `ubert draft` says about the next steps: where a spec goes, and how to get a test split."""

from __future__ import annotations

import json
import random
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest
from drafts import mirror, put, sentence
from tiny_run import full_disk
from typer.testing import CliRunner

from pipelines.cli.commands import app
from pipelines.drafting import sample
from pipelines.drafting.draft import draft
from pipelines.drafting.sample import spec_rows
from pipelines.drafting.write import text_of
from pipelines.sources import reader
from pipelines.specs import SPECS, dataset_spec
from ubert.schema.errors import UserError


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


def test_the_next_command_can_be_pasted_where_folders_have_spaces_in_their_names(
    tmp_path: Path, lines: Path
) -> None:
    raw, specs = tmp_path / "my raw", tmp_path / "my specs"
    lines.parents[1].rename(raw)
    given = [str(raw / lines.parent.name), "--out", str(specs / "datasets" / "shop.yaml")]
    done = CliRunner().invoke(app, ["draft", *given], catch_exceptions=False)
    *_, command = re.findall(r"`(ubert .*)`", done.output)
    assert shlex.split(command) == ["ubert", "ingest", "shop", "--data", str(raw), "--specs", str(specs)]


def test_half_a_spec_is_not_left_on_a_full_disk(tmp_path: Path, lines: Path) -> None:
    out = tmp_path / "specs" / "datasets" / "shop.yaml"
    with pytest.raises(UserError, match=r"shop\.yaml: cannot be written"), full_disk(100):
        said(str(lines), "--out", str(out))
    assert not out.exists()


def test_a_spec_outside_a_folder_of_specs_is_moved_to_those_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Path
) -> None:
    monkeypatch.delenv("UBERT_SPECS", raising=False)
    told = f"move it to {SPECS / 'datasets' / 'shop.yaml'}, then run `ubert ingest shop --data {tmp_path / 'raw'}`"
    assert told.replace(" ", "") in said(str(lines), "--out", str(tmp_path / "shop.yaml"))


def divided(text: str) -> str:
    """Take the two entries that a draft suggests."""
    suggested = re.sub(r"^  # (?=  options|- )", "  ", text, flags=re.MULTILINE)
    assert suggested != text
    return suggested


@pytest.mark.parametrize(("name", "encoding"), [("all.jsonl", "utf-8"), ("all.csv", "latin-1")])
def test_a_draft_tells_how_to_divide_a_file(tmp_path: Path, name: str, encoding: str) -> None:
    rng = random.Random(2)
    rows = [(f"{sentence(rng)} at the café", "ab"[n % 2]) for n in range(40)]
    content = "".join(json.dumps(dict(zip(("text", "label"), row, strict=True))) + "\n" for row in rows)
    if name == "all.csv":
        content = "text,label\n" + "".join(f"{text},{label}\n" for text, label in rows)
    out = tmp_path / "specs" / "datasets" / "shop.yaml"
    said(str(put(mirror(tmp_path), name, content.encode(encoding))), "--out", str(out))
    out.write_text(divided(out.read_text()))
    spec = dataset_spec("shop", tmp_path / "specs")
    found = Counter(entry.split for entry, _, _ in spec_rows(spec, mirror(tmp_path), None))
    assert found == {"train": 36, "test": 4}
    assert [entry.encoding for entry in spec.files] == [encoding, encoding]


def test_a_draft_tells_to_make_a_test_file_where_rows_have_no_numbers(tmp_path: Path) -> None:
    rng = random.Random(3)
    rows = [{"text": sentence(rng), "label": "ab"[n % 2]} for n in range(40)]
    path = put(mirror(tmp_path), "all.json", json.dumps(rows))
    assert "move some of the data into another file, such as test.json." in text_of(draft([path]))
    train = put(tmp_path / "raw" / "named", "train.json", json.dumps(rows))
    assert "To measure a model" not in text_of(draft([train]))


def test_a_range_of_rows_is_shown_from_a_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "MAX_BYTES", 1_000)
    monkeypatch.setattr(sample, "WHOLE", 2_000)
    put(mirror(tmp_path), "all.jsonl", "".join(f'{{"n": {n}}}\n' for n in range(900)))
    options = reader("jsonl").Options.model_validate({"only": [800, 900]})
    found = list(sample.rows("jsonl", options, mirror(tmp_path), "all.jsonl", "utf-8", 5))
    assert [row.line for row in found] == [801, 802, 803, 804, 805]
