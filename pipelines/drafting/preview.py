"""Shows a few rows of a dataset before and after mapping, without Ray."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.drafting.sample import spec_rows
from pipelines.ingest.source_files import source_files
from pipelines.mapping.mapper import mapper
from pipelines.mapping.refused import as_json
from pipelines.sources import END, RawRow, Slice
from ubert.schema.record import Record, Reject
from ubert.schema.specs.dataset import DatasetSpec

ROWS, SECONDS = 1_000, 0.7  # maximum rows of a file; seconds for all files


@dataclass
class Preview:
    """The first rows with their records or rejects, and counts over more rows."""

    first: list[tuple[str, Record | Reject]] = field(default_factory=list)
    kept: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    categories: Counter[tuple[str, str]] = field(default_factory=Counter)  # by kind and name


def preview(spec: DatasetSpec, folder: Path, n: int) -> Preview:
    """Read and map the first rows of each file, until the time is over, but at least the first `n`.

    Raises:
        UserError: a file is missing or cannot be read.
    """
    found, until = Preview(), time.monotonic() + SECONDS
    for raw, row in _rows(spec, folder):
        if len(found.first) < n:
            found.first.append((raw, row))
        if isinstance(row, Reject):
            found.reasons[row.reason] += 1
        else:
            found.kept += 1
            found.categories.update(_named(row))
        if time.monotonic() > until and len(found.first) >= n:
            break
    return found


def _rows(spec: DatasetSpec, folder: Path) -> Iterator[tuple[str, Record | Reject]]:
    for entry, paths in zip(spec.files, source_files(spec, folder), strict=True):
        to_record = mapper(spec, entry.split)
        for path in paths:
            piece = Slice(str(folder), path, 0, END, 1, entry.encoding, "0" * 64)
            for row in spec_rows(spec, entry, folder, path, ROWS):
                if isinstance(row, RawRow):
                    yield as_json(row.content), to_record(piece, row)
                else:
                    yield row.raw, row


def _named(record: Record) -> Iterator[tuple[str, str]]:
    """Yield the kind and name of each annotation's category."""
    categories = record.categories
    places = [
        *record.labels,
        *(span.category for span in record.spans if span.category is not None),
        *(relation.category for relation in record.relations),
        *(event.category for event in record.events),
        *(argument.role for event in record.events for argument in event.arguments),
    ]
    named = (categories[place] for place in places)
    yield from ((one.kind, one.name) for one in named if one.kind != "question")
