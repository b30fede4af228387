"""Shows a few rows of a dataset before and after mapping, without Ray."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path

from pipelines.drafting.sample import spec_rows
from pipelines.mapping.mapper import mapper
from pipelines.mapping.missing_labels import Census, merged
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
    """Read and map the first rows of each file, until the time is over, but at least the first `n`. Categories
    that the spec takes from the data are those of these rows.

    Raises:
        UserError: a file is missing or cannot be read.
    """
    most = None
    if spec.categories.from_data:
        spec, most = _filled(spec, folder, n)
    found, until = Preview(), time.monotonic() + SECONDS
    for raw, row in islice(_rows(spec, folder, None), most):
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


def _filled(spec: DatasetSpec, folder: Path, n: int) -> tuple[DatasetSpec, int]:
    """Fill in the open categories of a spec from the first rows. Also return the number of these rows."""
    census, rows, until = Census(), 0, time.monotonic() + SECONDS
    for _ in _rows(spec, folder, census):
        rows += 1
        if time.monotonic() > until and rows >= n:
            break
    found = merged([census])
    labels: dict[str, list[str]] = {kind: sorted(found.get(kind, ())) for kind in spec.categories.from_data}
    return spec.model_copy(update={"categories": spec.categories.filled(labels)}), rows


def _rows(spec: DatasetSpec, folder: Path, lacking: Census | None) -> Iterator[tuple[str, Record | Reject]]:
    """Yield each row, as it was and mapped. `lacking` counts the labels that are missing in the categories."""
    for entry, of_entry in groupby(spec_rows(spec, folder, ROWS), lambda found: found[0]):
        to_record = mapper(spec, entry.split, lacking=lacking)
        for _, path, row in of_entry:
            if isinstance(row, RawRow):
                piece = Slice(str(folder), path, 0, END, 1, entry.encoding, "0" * 64)
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
