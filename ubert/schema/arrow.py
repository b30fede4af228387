"""Convert records to Arrow columns and back.

Columns are built flat (offsets and values), several times faster than from nested Python dicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec.structs import astuple

from ubert.schema.record import (
    ARGUMENT,
    CATEGORY,
    EVENT,
    LONGEST_RAW,
    MISMATCH_SCHEMA,
    RECORD_SCHEMA,
    REJECT_SCHEMA,
    RELATION,
    SOURCE,
    SPAN,
    Argument,
    Category,
    Event,
    Misplaced,
    Record,
    Reject,
    Relation,
    Source,
    Span,
    content_hash,
    sampling_key,
)


def records_to_batch(records: Sequence[Record]) -> pa.RecordBatch:
    """Build one record batch of `RECORD_SCHEMA`."""
    columns = {
        "record_id": pa.array([r.record_id for r in records], pa.string()),
        "key": pa.array([sampling_key(r.record_id) for r in records], pa.uint64()),
        "corpus": _words([r.corpus for r in records]),
        "split": _words([r.split for r in records]),
        "language": _words([r.language for r in records]),
        "task": _words([r.task for r in records]),
        "instruction": _strings([r.instruction for r in records]),
        "text": pa.array([r.text for r in records], pa.string()),
        "pair": pa.array([r.pair for r in records], pa.string()),
        "categories": _categories([r.categories for r in records]),
        "labels": _lists([r.labels for r in records], lambda flat: pa.array(flat, pa.int32())),
        "value": pa.array([r.value for r in records], pa.float32()),
        "target": pa.array([r.target for r in records], pa.string()),
        "spans": _lists([r.spans for r in records], lambda flat: _structs(flat, SPAN)),
        "relations": _lists([r.relations for r in records], lambda flat: _structs(flat, RELATION)),
        "events": _lists([r.events for r in records], _events),
        "source": _sources([r.source for r in records]),
        "characters": pa.array([len(r.text) + len(r.pair or "") for r in records], pa.int32()),
        "content_hash": pa.array([content_hash(r.text, r.pair) for r in records], pa.binary(16)),
        "text_hash": pa.array(
            [content_hash(r.text, None) if r.pair is not None else None for r in records], pa.binary(16)
        ),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in RECORD_SCHEMA.names], schema=RECORD_SCHEMA)


def rejects_to_batch(rejects: Sequence[Reject], corpus: str, split: str) -> pa.RecordBatch:
    """Build one record batch of `REJECT_SCHEMA`."""
    rows = [(r.path, r.line, r.reason, r.detail, _beginning(r.raw)) for r in rejects]
    return _evidence_batch(rows, corpus, split, REJECT_SCHEMA)


def _beginning(raw: str) -> str:
    """Truncate a rejected row to `LONGEST_RAW` characters; its path and line lead to the rest."""
    return raw if len(raw) <= LONGEST_RAW else f"{raw[:LONGEST_RAW]} [... {len(raw):,} characters in all]"


def mismatches_to_batch(misplaced: Sequence[Misplaced], corpus: str, split: str) -> pa.RecordBatch:
    """Build one record batch of `MISMATCH_SCHEMA`."""
    rows = [(m.path, m.line, m.locator, *astuple(m.mismatch)) for m in misplaced]
    return _evidence_batch(rows, corpus, split, MISMATCH_SCHEMA)


def _evidence_batch(rows: Sequence[tuple[Any, ...]], corpus: str, split: str, schema: pa.Schema) -> pa.RecordBatch:
    """Build a batch of rows that have the columns of a schema after corpus and split."""
    same = [_words([name] * len(rows)) for name in (corpus, split)]
    columns = [_evidence([row[i] for row in rows], field.type) for i, field in enumerate(list(schema)[2:])]
    return pa.RecordBatch.from_arrays([*same, *columns], schema=schema)


def _evidence(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Build a column that is only displayed; lone surrogates, which UTF-8 can't encode, are escaped."""
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        return pa.array([v and v.encode(errors="backslashreplace").decode() for v in values], kind)


def batch_to_records(table: pa.RecordBatch | pa.Table) -> Iterator[Record]:
    """Read rows of `RECORD_SCHEMA`; the derived columns (key, characters, hashes) may be absent."""
    rows = table.drop_columns(["categories"]).to_pylist()
    for row, categories in zip(rows, _shared_categories(table.column("categories")), strict=True):
        yield Record(
            record_id=row["record_id"],
            corpus=row["corpus"],
            split=row["split"],
            language=row["language"],
            task=row["task"],
            instruction=row["instruction"],
            text=row["text"],
            source=Source(**row["source"]),
            pair=row["pair"],
            categories=categories,
            labels=row["labels"],
            value=row["value"],
            target=row["target"],
            spans=[Span(**span) for span in row["spans"]],
            relations=[Relation(**relation) for relation in row["relations"]],
            events=[
                Event(e["category"], e["trigger"], [Argument(**a) for a in e["arguments"]]) for e in row["events"]
            ],
        )


def _shared_categories(lists: pa.ListArray | pa.ChunkedArray) -> Iterator[tuple[Category, ...]]:
    """Yield the categories of each row; consecutive rows with equal categories share one tuple."""
    last: pa.Array | None = None
    categories: tuple[Category, ...] = ()
    for row in lists:
        if last is None or not row.values.equals(last):
            last = row.values
            categories = tuple(Category(**category) for category in last.to_pylist())
        yield categories


def _words(values: list[str]) -> pa.Array:
    """Build a dictionary column, fast if all rows share one value."""
    if values and values.count(values[0]) == len(values):
        return pa.DictionaryArray.from_arrays(np.zeros(len(values), np.int32), values[:1])
    return pa.array(values, pa.string()).dictionary_encode()


def _strings(values: list[str]) -> pa.Array:
    """Build a column of strings, fast if all rows share one value."""
    if values and values.count(values[0]) == len(values):
        return pa.repeat(pa.scalar(values[0], pa.string()), len(values))
    return pa.array(values, pa.string())


def _sources(sources: list[Source]) -> pa.StructArray:
    lines = pa.array([source.line for source in sources], pa.int64())
    paths, hashes = _strings([source.path for source in sources]), _strings([source.sha for source in sources])
    return pa.StructArray.from_arrays([paths, lines, hashes], fields=list(SOURCE))


def _structs(items: Sequence[Any], kind: pa.StructType) -> pa.StructArray:
    """Convert msgspec structs to a struct array, field by field."""
    columns = [pa.array(list(map(attrgetter(f.name), items)), f.type) for f in kind]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _lists(rows: Sequence[Sequence[Any]], build: Any) -> pa.ListArray:
    """Build a list column from offsets and the column that `build` makes of all rows' items."""
    offsets = np.zeros(len(rows) + 1, np.int32)
    if any(rows):  # most kinds of annotation are empty in every row
        np.cumsum(list(map(len, rows)), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), build(list(chain.from_iterable(rows))))


def _events(events: list[Event]) -> pa.StructArray:
    arguments = _lists([e.arguments for e in events], lambda flat: _structs(flat, ARGUMENT))
    columns = [
        pa.array([e.category for e in events], pa.int32()),
        pa.array([e.trigger for e in events], pa.int32()),
        arguments,
    ]
    return pa.StructArray.from_arrays(columns, fields=list(EVENT))


def _categories(rows: Sequence[tuple[Category, ...]]) -> pa.Array:
    """Build each distinct tuple of categories once; most records of a corpus share one.

    Tuples are compared by identity, because hashing them costs more than building their columns.
    """
    distinct = {id(row): row for row in rows}
    if len(distinct) == 1:
        return _repeated(rows[0], len(rows))
    place = {identity: i for i, identity in enumerate(distinct)}
    lists = _lists(list(distinct.values()), lambda flat: _structs(flat, CATEGORY))
    return lists.take(pa.array([place[id(row)] for row in rows], pa.int32()))


@lru_cache(maxsize=1)
def _repeated(categories: tuple[Category, ...], times: int) -> pa.ListArray:
    """Build a column that repeats one tuple; consecutive batches share the cached column."""
    lists = _lists([categories], lambda flat: _structs(flat, CATEGORY))
    return lists.take(pa.array(np.zeros(times, np.int32)))
