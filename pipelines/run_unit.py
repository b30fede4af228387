"""One unit of work: read its slices, map the rows, and write what is kept and what is refused."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq

from pipelines.mapping import mapper
from pipelines.publish import COUNTS
from pipelines.sources import reader
from pipelines.specs import file_options
from pipelines.store import atomic
from pipelines.units import Unit, check_unchanged
from ubert.schema.arrow import mismatches_to_batch, records_to_batch, rejects_to_batch
from ubert.schema.record import MISMATCH_SCHEMA, RECORD_SCHEMA, REJECT_SCHEMA, Misplaced, Record, Reject
from ubert.schema.spec import DatasetSpec

CHUNK = 10_000  # rows that are built into columns at a time


def run_unit(unit: Unit, spec: DatasetSpec, directory: Path) -> int:
    """Read, map and write one unit; returns the number of rows read.

    The part appears last and whole, with its rejects beside it: a unit is done when its part is there.

    Raises:
        UserError: a source file cannot be read or has changed, or the store cannot be written.
    """
    counts: dict[str, list[int]] = {piece.path: [0, 0] for piece in unit.slices}
    with (
        _collector_paused(),
        atomic(directory / unit.part) as part,
        atomic(directory / unit.reject_part) as reject_part,
        atomic(directory / unit.mismatch_part) as mismatch_part,
        pq.ParquetWriter(part, RECORD_SCHEMA, compression="zstd") as kept_file,
        pq.ParquetWriter(reject_part, REJECT_SCHEMA, compression="zstd") as rejects_file,
        pq.ParquetWriter(mismatch_part, MISMATCH_SCHEMA, compression="zstd") as mismatches_file,
    ):
        mismatches: list[Misplaced] = []
        rows = _rows(unit, spec, mismatches)
        while chunk := list(islice(rows, CHUNK)):
            kept = [row for row in chunk if isinstance(row, Record)]
            rejects = [row for row in chunk if isinstance(row, Reject)]
            for record in kept:
                counts[record.source.path][0] += 1
            for reject in rejects:
                counts[reject.path][1] += 1
            if kept:
                kept_file.write_batch(records_to_batch(kept))
            if rejects:
                rejects_file.write_batch(rejects_to_batch(rejects, spec.name, unit.entry.split))
            if mismatches:
                mismatches_file.write_batch(mismatches_to_batch(mismatches, spec.name, unit.entry.split))
                mismatches.clear()
        kept_file.add_key_value_metadata({COUNTS: json.dumps(counts)})
    return sum(map(sum, counts.values()))


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Rows and records hold no cycles; looking for some among them takes more than a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _rows(unit: Unit, spec: DatasetSpec, mismatches: list[Misplaced]) -> Iterator[Record | Reject]:
    read, options = reader(spec.format).read, file_options(spec, unit.entry)
    for piece in unit.slices:
        check_unchanged(piece, spec, unit.entry)
        to_record = mapper(spec, unit.entry.split, piece, mismatches.append)
        for row in read(piece, options):
            yield row if isinstance(row, Reject) else to_record(row)
