"""Files to draft specs from, and what the drafts make of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from pipelines.drafting.draft import draft
from pipelines.drafting.preview import preview
from pipelines.drafting.write import text_of
from pipelines.specs import dataset_spec
from ubert.schema.record import Record
from ubert.schema.specs.dataset import DatasetSpec

NOUNS = ["kettle", "garden", "lamp", "river", "harbour", "engine", "window", "market", "bridge", "piano"]
PLACES = ["Ostrava", "Quillfen", "Brno", "Leeds", "Turin", "Malmö", "Porto"]
PEOPLE = ["Ada", "Bela", "Cyril", "Dora", "Edgar", "Flora"]


def sentence(rng: random.Random) -> str:
    return f"{rng.choice(PEOPLE)} left the {rng.choice(NOUNS)} in {rng.choice(PLACES)} on a rainy day"


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def mirror(tmp_path: Path) -> Path:
    return tmp_path / "raw" / "odd"


def spec_of(tmp_path: Path, *paths: Path, **given: Any) -> DatasetSpec:
    """The spec that is drafted, written and loaded as any other."""
    made = draft([*paths], **given)
    place = tmp_path / "specs" / "datasets" / f"{made.name}.yaml"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text_of(made), encoding="utf-8")
    return dataset_spec(made.name, tmp_path / "specs")


def records(spec: DatasetSpec, folder: Path, n: int = 1_000) -> list[Record]:
    rows = [row for _, row in preview(spec, folder, n).first]
    assert not [row for row in rows if not isinstance(row, Record)]
    return [row for row in rows if isinstance(row, Record)]
