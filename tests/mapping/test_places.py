"""A row without a line is named by its locator wherever its place is printed."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner
from worlds import World

from pipelines.cli.commands import app
from pipelines.sources.places import REJECT_PLACE, record_place, reject_place
from ubert.schema.record import Record, Source


def test_a_list_names_the_items_and_not_line_1(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.spec(format="json", files=[{"split": "train", "path": "train.json"}])
    world.source(
        json.dumps([{"text": f"number {n}", "label": label} for n, label in enumerate("01x1")]), "train.json"
    )
    where = ["--specs", str(world.specs), "--data", str(world.data), "--root", str(world.root)]
    said = CliRunner().invoke(app, ["try", "toy", *where]).stdout
    assert "rejected: train.json#2: unknown category: 'x' is not" in said
    assert [line.split()[1] for line in said.splitlines() if line.startswith("source ")] == [
        f"train.json#{n}" for n in (0, 1, 3)
    ]
    assert "train.json:1" not in said


@pytest.mark.parametrize(
    ("line", "locator", "place"),
    [
        (12, "a.jsonl:12", "a.jsonl:12"),
        (1, "a.jsonl", "a.jsonl:1"),
        (1, "a.jsonl#3.0", "a.jsonl#3.0"),
        (17, "a.jsonl#3.0", "a.jsonl:17"),
    ],
)
def test_a_line_is_told_where_there_is_one(line: int, locator: str, place: str) -> None:
    source = Source("a.jsonl", line, "")
    record = Record(f"toy/train/{locator}", "toy", "train", "en", "text", "say", "a", source, None, ())
    assert record_place(record) == place


@pytest.mark.parametrize(
    ("line", "detail", "said"),
    [
        (1, "#b: c.2: no 'l': it has t", ("a#b", "c.2: no 'l': it has t")),
        (4, "#2: no 'l'", ("a:4", "#2: no 'l'")),
        (1, "column 3: Expecting value", ("a:1", "column 3: Expecting value")),
    ],
)
def test_a_reject_without_a_line_has_its_locator_once(line: int, detail: str, said: tuple[str, str]) -> None:
    assert reject_place("a", line, detail) == said
    quoted = detail.replace("'", "''")
    in_sql = duckdb.sql(f"SELECT {REJECT_PLACE} FROM (SELECT 'a' AS path, {line} AS line, '{quoted}' AS detail)")
    assert in_sql.fetchall() == [(said[0],)]
