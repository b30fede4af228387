"""Small worlds: a folder with specs, raw sources and a store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from pipelines.ingest.ingest import Work, ingest
from pipelines.store.storage import StorePath
from pipelines.store.store import Store, atomic, now
from ubert.schema.arrow import mismatches_to_batch, records_to_batch, rejects_to_batch
from ubert.schema.manifest import FILES, CorpusManifest, SplitCounts, fingerprint
from ubert.schema.record import (
    FILE_SCHEMA,
    REJECT_SCHEMA,
    Category,
    Mismatch,
    Misplaced,
    Record,
    Reject,
    Source,
    Split,
)


@dataclass(frozen=True)
class World:
    """A world with the dataset `toy`, which classifies numbers as even or odd unless `spec` changes it."""

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
            "error_budget": 1.0,
            **changes,
        }
        path = self.specs / "datasets" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        stated = {key: value for key, value in spec.items() if value is not None}
        path.write_text(yaml.safe_dump(stated, sort_keys=False))

    def source(self, content: str | bytes, path: str = "train.jsonl", name: str = "toy") -> Path:
        target = self.data / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return target

    def ingest(self, name: str = "toy", *, data: Path | None = None, strict: bool = False) -> CorpusManifest:
        [manifest] = ingest([name], specs=self.specs, data=data or self.data, root=self.root, strict=strict)
        return manifest

    def read(self, *, strict: bool = False) -> Work:
        """Ingest `toy`; return the work that this took."""
        works: list[Work] = []
        ingest(
            ["toy"],
            specs=self.specs,
            data=self.data,
            root=self.root,
            strict=strict,
            report=lambda manifest, work: works.append(work),
        )
        return works[0]

    def parts(self, name: str = "toy") -> list[Path]:
        directory, manifest = Store(self.root).current("corpora", name)
        return [directory / part for part in manifest.parts]

    def files(self) -> list[dict[str, Any]]:
        """Return the source files of `toy`."""
        directory, _ = Store(self.root).current("corpora", "toy")
        return pq.read_table(directory / FILES).to_pylist()  # type: ignore[no-any-return]

    def records(self, name: str = "toy") -> list[dict[str, Any]]:
        rows = pa.concat_tables(pq.read_table(part) for part in self.parts(name)).to_pylist()
        return sorted(rows, key=lambda row: (row["source"]["path"], row["source"]["line"]))

    def rejects(self, name: str = "toy") -> list[dict[str, Any]]:
        directory, manifest = Store(self.root).current("corpora", name)
        return [row for part in manifest.reject_parts for row in pq.read_table(directory / part).to_pylist()]


def numbers(values: Iterable[int]) -> str:
    """Format rows of `toy` as JSON Lines."""
    return "".join(json.dumps({"text": f"number {n}", "label": n % 2}) + "\n" for n in values)


def corpus(name: str, size: int, split: Split = "train") -> list[Record]:
    """Make records that classify numbers as even or odd."""
    categories = (Category("even", "label"), Category("odd", "label"))
    return [
        Record(
            record_id=f"{name}/{split}/{number}",
            corpus=name,
            split=split,
            language="en",
            task="classification",
            instruction="parity",
            text=f"number {number}",
            source=Source("numbers.jsonl", number + 1, "00"),
            categories=categories,
            labels=[number % 2],
        )
        for number in range(size)
    ]


def put_corpus(
    root: StorePath,
    name: str,
    records: list[Record],
    rejected: Sequence[tuple[Split, str]] = (),
    misplaced: Sequence[Mismatch] = (),
    **stated: Any,
) -> None:
    """Publish records as the current state of a corpus, like ingest.

    Args:
        rejected: split and reason of each reject.
        stated: further fields of the manifest, such as a licence.
    """
    store = Store(root)
    manifest = CorpusManifest(
        name=name,
        fingerprint=fingerprint([record.record_id for record in records]),
        created=now(),
        **{"task": records[0].task, "language": "en", "licence": "CC0-1.0", **stated},
        upstream=None,
        splits=[
            SplitCounts(split=split, files=1, bytes=1, records=kept + lost, kept=kept, rejected=lost)
            for split in dict.fromkeys([*(record.split for record in records), *(split for split, _ in rejected)])
            for kept in [sum(record.split == split for record in records)]
            for lost in [sum(where == split for where, _ in rejected)]
        ],
        parts=["part-0.parquet"],
        reject_parts=["rejects-0.parquet"],
        mismatch_parts=["mismatches-0.parquet"],
    )
    rejects = [
        rejects_to_batch([Reject("source", line, reason, "a detail", "a row")], name, split)
        for line, (split, reason) in enumerate(rejected, 1)
    ]
    moved = [Misplaced("source", line, f"source:{line}", one) for line, one in enumerate(misplaced, 1)]
    files = [
        {
            "corpus": name,
            "labelled": True,
            "path": "source",
            "blake3": "00",
            **counts.model_dump(exclude={"files"}),
        }
        for counts in manifest.splits
    ]
    tables = {
        FILES: pa.Table.from_pylist(files, FILE_SCHEMA),
        "part-0.parquet": pa.Table.from_batches([records_to_batch(records)]),
        "rejects-0.parquet": pa.Table.from_batches(rejects, REJECT_SCHEMA).unify_dictionaries(),
        "mismatches-0.parquet": pa.Table.from_batches([mismatches_to_batch(moved, name, "train")]),
    }
    for file, table in tables.items():
        with atomic(store.directory("corpora", name, manifest.fingerprint) / file) as path:
            pq.write_table(table, path)
    store.publish("corpora", manifest)
