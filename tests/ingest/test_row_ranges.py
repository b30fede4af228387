"""One file serves several splits by ranges of its rows, however large it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from worlds import World, numbers

from pipelines.ingest import change_detection

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]


def test_a_file_of_json_lines_serves_two_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_detection, "UNIT_BYTES", 1000)  # a larger file is cut, unless it needs row numbers
    world = World(tmp_path)
    world.source(numbers(range(500)))
    ranges = {"train": range(400), "test": range(400, 500)}
    world.spec(
        files=[
            {"split": split, "path": "train.jsonl", "options": {"only": [rows.start, rows.stop]}}
            for split, rows in ranges.items()
        ]
    )
    world.ingest()
    found = {(record["split"], record["source"]["line"]) for record in world.records()}
    assert found == {(split, row + 1) for split, rows in ranges.items() for row in rows}
