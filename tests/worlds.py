"""Small worlds: a folder of specs, one of raw sources, and a store."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from pipelines.ingest import ingest
from pipelines.store import Store
from ubert.schema.manifest import CorpusManifest


@dataclass(frozen=True)
class World:
    """`toy`, a classification of numbers as even or odd, unless `spec` changes it."""

    folder: Path

    @property
    def specs(self) -> Path:
        return self.folder / "specs"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def root(self) -> Path:
        return self.folder / "store"

    def spec(self, name: str = "toy", **changes: Any) -> None:
        spec = {
            "name": name,
            "description": "Whether a number is even.",
            "task": "classification",
            "language": "en",
            "licence": "CC0-1.0",
            "instruction": "parity",
            "format": "jsonl",
            "files": [{"split": "train", "path": "train.jsonl"}],
            "map": {"text": "text", "label": "label"},
            "categories": {"label": {"0": "even", "1": "odd"}},
            **changes,
        }
        path = self.specs / "datasets" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(spec, sort_keys=False))

    def source(self, content: str | bytes, path: str = "train.jsonl", name: str = "toy") -> Path:
        target = self.data / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return target

    def ingest(self, name: str = "toy", *, data: Path | None = None, strict: bool = False) -> CorpusManifest:
        [manifest] = ingest([name], specs=self.specs, data=data or self.data, root=self.root, strict=strict)
        return manifest

    def parts(self, name: str = "toy") -> list[Path]:
        directory, manifest = Store(self.root).current("corpora", name)
        return [directory / part for part in manifest.parts]

    def records(self, name: str = "toy") -> list[dict[str, Any]]:
        rows = pa.concat_tables(pq.read_table(part) for part in self.parts(name)).to_pylist()
        return sorted(rows, key=lambda row: (row["source"]["path"], row["source"]["line"]))

    def rejects(self, name: str = "toy") -> list[dict[str, Any]]:
        directory, manifest = Store(self.root).current("corpora", name)
        return [row for part in manifest.reject_parts for row in pq.read_table(directory / part).to_pylist()]


def numbers(values: Iterable[int]) -> str:
    """Rows of `toy` as JSON Lines."""
    return "".join(json.dumps({"text": f"number {n}", "label": n % 2}) + "\n" for n in values)
