"""Run one unit of work: read its slices, map the rows, and write records and rejects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from operator import attrgetter

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from pipelines.ingest.hashes import LONGEST_ROW, range_hash
from pipelines.ingest.publish import COUNTS, LACKING, NOTICES, UNREADABLE
from pipelines.ingest.units import Unit
from pipelines.mapping.conditions import row_filter
from pipelines.mapping.mapper import mapper
from pipelines.mapping.missing_labels import Census
from pipelines.mapping.notices import LEFT_OUT, ONE_ROW
from pipelines.sources import Slice, joined_hash, reader
from pipelines.specs import file_options
from pipelines.store.storage import StorePath
from pipelines.store.store import parquet_writer
from ubert.schema.arrow import mismatches_to_batch, records_to_batch, rejects_to_batch
from ubert.schema.errors import UserError
from ubert.schema.garbage_collection import collector_paused
from ubert.schema.record import (
    CATEGORY,
    LONGEST_RAW,
    MISMATCH_SCHEMA,
    RECORD_SCHEMA,
    REJECT_SCHEMA,
    Misplaced,
    Record,
    Reject,
)
from ubert.schema.specs.dataset import DatasetSpec

# Limits of rows that are converted to columns at once, so that memory doesn't grow with the source.
CHUNK_ROWS = 10_000
CHUNK_CHARACTERS = 4 << 20
MANY_LINES = 100  # one row from more lines is suspicious, in formats that can be cut at lines

# Only columns with few values get dictionaries, and only columns that queries filter by get statistics. For other
# columns both cost time without a benefit.
_CATEGORIES = [f"categories.list.element.{field.name}" for field in CATEGORY]
_WORDS = ["corpus", "split", "language", "task", "instruction", "source.path", "source.sha", "path", "reason"]
_DICTIONARIES = [
    *_WORDS,
    *_CATEGORIES,
    "labels.list.element",
    "spans.list.element.category",
    "spans.list.element.side",
]
_STATISTICS = [*_WORDS, "record_id", "key", "source.line", "line"]


def run_unit(unit: Unit, spec: DatasetSpec, directory: StorePath) -> int:
    """Read, map and write one unit. Return the number of rows read.

    Rejects and mismatches go to files of their own. The part is written last, atomically: if it exists, the unit
    is done.

    Raises:
        UserError: a source file cannot be read or has changed, or the store cannot be written.
    """
    kept_of, rejected_of = Counter[str](), Counter[str]()
    slices = unit.slices
    with collector_paused(), ExitStack() as files:
        opened: dict[str, pq.ParquetWriter] = {}

        def writer(name: str, schema: pa.Schema) -> pq.ParquetWriter:
            if name not in opened:
                file = parquet_writer(
                    directory / name, schema, use_dictionary=_DICTIONARIES, write_statistics=_STATISTICS
                )
                opened[name] = files.enter_context(file)
            return opened[name]

        part = writer(unit.part, RECORD_SCHEMA)  # entered first, so closed last
        mismatches: list[Misplaced] = []
        noticed, lacking = Counter[str](), Census()
        for kept, rejects in _chunks(mapped(unit, slices, spec, noticed, lacking, mismatches.append)):
            kept_of.update(map(attrgetter("source.path"), kept))
            rejected_of.update(reject.path for reject in rejects)
            if kept:
                part.write_batch(records_to_batch(kept))
            if rejects:
                refused = rejects_to_batch(rejects, spec.name, unit.entry.split)
                writer(unit.reject_part, REJECT_SCHEMA).write_batch(refused)
            if mismatches:
                moved = mismatches_to_batch(mismatches, spec.name, unit.entry.split)
                writer(unit.mismatch_part, MISMATCH_SCHEMA).write_batch(moved)
                mismatches.clear()
        counts = {piece.path: [kept_of[piece.path], rejected_of[piece.path]] for piece in slices}
        part.add_key_value_metadata(
            {COUNTS: json.dumps(counts), NOTICES: json.dumps(noticed), LACKING: json.dumps(lacking)}
        )
    return kept_of.total() + rejected_of.total()


def mapped(
    unit: Unit,
    slices: Iterable[Slice],
    spec: DatasetSpec,
    noticed: Counter[str],
    lacking: Census,
    misplaced: Callable[[Misplaced], None],
) -> Iterator[Record | Reject]:
    """Yield a record or a reject for each row of a unit's slices, but none for rows that `when` leaves out. A row
    that is too long, or a file that can't be read, is one reject.

    Args:
        noticed: counts warnings about the rows.
        lacking: counts the labels that are missing in the categories.
        misplaced: called with each mention that is not at its offsets.

    Raises:
        UserError: a file has changed.
    """
    form, options = reader(spec.format), file_options(spec, unit.entry)
    to_record = mapper(spec, unit.entry.split, misplaced, noticed, lacking)
    wanted = row_filter(spec.map)
    for piece in slices:
        if piece.too_long:
            yield _too_long(piece)
            continue
        if piece.problem:
            yield Reject(piece.path, 1, UNREADABLE, piece.problem, "")
            continue
        rows = 0
        try:
            for row in form.read(piece, options):
                rows += 1
                if isinstance(row, Reject):
                    yield row
                elif wanted(row):
                    yield to_record(piece, row)
                else:
                    noticed[LEFT_OUT] += 1
        except UserError as error:  # only this file is rejected
            yield _unreadable(piece, str(error))
        if rows == 1 and form.split_at(options) is not None and _has_many_lines(piece):
            noticed[ONE_ROW] += 1
        _check_unchanged(piece)


def _has_many_lines(piece: Slice) -> bool:
    return piece.stop - piece.start > 2 * MANY_LINES and piece.read_bytes().count(b"\n") > MANY_LINES


def _check_unchanged(piece: Slice) -> None:
    """Check that the bytes of a slice still have the hash of the plan.

    Raises:
        UserError: they differ, or cannot be read.
    """
    found = piece.hashes
    try:
        for path in (piece.path, *piece.beside):
            if path not in found:
                range_ = piece if path == piece.path else piece.whole(path)
                found[path] = range_hash(f"{piece.folder}/{path}", range_.start, range_.stop)
    except OSError as error:
        problem = f"{error.strerror or error} while it was being ingested"
        raise UserError(f"{piece.place}: {problem}; run again") from None
    if joined_hash(found) != piece.sha:
        raise UserError(f"{piece.place}: changed while it was being ingested; run again")
    found.clear()  # there may be very many slices


def _unreadable(piece: Slice, problem: str) -> Reject:
    """Return the reject of a file, or of the rest of a file, that its format can't read."""
    start = replace(piece, stop=min(piece.stop, piece.start + LONGEST_RAW), hashes={}).read_bytes()
    raw = start.decode(piece.encoding, "backslashreplace")
    return Reject(piece.path, piece.line, UNREADABLE, problem.removeprefix(f"{piece.folder}/"), raw)


def _too_long(piece: Slice) -> Reject:
    """Return the reject of a row that is too long. Only its beginning is read."""
    size = piece.stop - piece.start
    start = replace(piece, stop=piece.start + LONGEST_RAW).read_bytes().decode(piece.encoding, "backslashreplace")
    start = start[: LONGEST_RAW // 2]
    detail = f"{size:,} bytes, expected at most {LONGEST_ROW:,}"
    return Reject(piece.path, piece.line, "row too long", detail, f"{start} [... {size:,} bytes in all]")


def _chunks(rows: Iterable[Record | Reject]) -> Iterator[tuple[list[Record], list[Reject]]]:
    """Group rows into chunks that are converted to columns together, as lists of records and of rejects."""
    kept: list[Record] = []
    rejects: list[Reject] = []
    characters = 0
    for row in rows:
        if isinstance(row, Record):
            kept.append(row)
            characters += len(row.text)
        else:
            rejects.append(row)
            characters += len(row.raw)
        if characters >= CHUNK_CHARACTERS or len(kept) + len(rejects) >= CHUNK_ROWS:
            yield kept, rejects
            kept, rejects, characters = [], [], 0
    yield kept, rejects
