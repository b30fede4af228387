"""Find contradictions: records of the same text and prompt with different annotations.

Annotations are compared as sets. Categories are compared by name, and spans by their words and by the number of
non-space characters before them in the normal form of the text. So the order of spans or categories, case and
white space make no difference. A different label, boundary, type or link is a contradiction.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pipelines.audit.evidence import CONTRADICTIONS
from ubert.schema.arrow import batch_to_records
from ubert.schema.checks import covered
from ubert.schema.record import RECORD_SCHEMA, Argument, Event, Record, Span, normal_form

_REPEATED = """
SELECT id, first, records.* FROM records JOIN (
    SELECT id, first, record_id FROM alike QUALIFY count(*) OVER (PARTITION BY first) > 1
) USING (record_id)
"""
_DIFFERING = """
SELECT one.record_id, one.corpus, one.split, keeper.record_id, keeper.corpus, keeper.split, here.task,
       here.annotation, there.annotation
FROM annotations AS here JOIN annotations AS there ON there.id = here.first
JOIN numbered AS one ON one.id = here.id JOIN numbered AS keeper ON keeper.id = here.first
WHERE here.annotation <> there.annotation ORDER BY one.id
"""
_ANNOTATIONS = pa.schema(
    [("id", pa.uint32()), ("first", pa.uint32()), ("task", pa.string()), ("annotation", pa.string())]
)


_FIELDS = ("labels", "value", "target", "spans", "relations", "events")


def contradictions(connection: duckdb.DuckDBPyConnection, scratch: Path) -> pa.Table:
    """Return the records of the table `alike` whose annotations differ from those of their text's first record."""
    path = scratch / "annotations.parquet"
    with pq.ParquetWriter(path, _ANNOTATIONS) as writer:
        for batch in connection.sql(_REPEATED).to_arrow_reader(1_000):
            table = pa.Table.from_batches([batch])
            records = list(batch_to_records(table.select(RECORD_SCHEMA.names).cast(RECORD_SCHEMA)))
            said = [json.dumps(annotation(record), ensure_ascii=False) for record in records]
            columns = [table.column("id"), table.column("first"), [record.task for record in records], said]
            writer.write_table(pa.table(columns, schema=_ANNOTATIONS))
    connection.register("annotations", ds.dataset(path, format="parquet"))
    rows = connection.sql(_DIFFERING).to_arrow_table()
    columns = [*rows.columns[:7], pa.array(_differs(rows), pa.string()), *rows.columns[7:]]
    return pa.table(
        [column.cast(f.type) for column, f in zip(columns, CONTRADICTIONS, strict=True)], CONTRADICTIONS
    )


def annotation(record: Record) -> dict[str, Any]:
    """Return a canonical form of a record's annotations, which is equal for equivalent annotations."""
    names = [normal_form(category.name) for category in record.categories]
    spans = _spans(record, names)

    def of_event(event: Event) -> tuple[Any, ...]:
        return names[event.category], None if event.trigger is None else spans[event.trigger]

    def filler(argument: Argument) -> tuple[Any, ...]:
        return of_event(record.events[argument.event]) if argument.event is not None else spans[argument.span or 0]

    said: dict[str, list[Any]] = {
        "labels": [names[label] for label in record.labels],
        "value": [] if record.value is None else [record.value],
        "target": [] if record.target is None else [record.target],
        "spans": spans,
        "relations": [(names[link.category], spans[link.head], spans[link.tail]) for link in record.relations],
        "events": [
            (*of_event(event), _ordered((names[each.role], filler(each)) for each in event.arguments))
            for event in record.events
        ],
    }
    return {key: _ordered(values) for key, values in said.items() if values}


def _spans(record: Record, names: list[str]) -> list[tuple[Any, ...]]:
    """Return the category, words and place of each span, and the places of all spans of its group."""
    places = [_place(record, span) for span in record.spans]
    groups: dict[int | None, list[tuple[str, int, int]]] = defaultdict(list)
    for span, place in zip(record.spans, places, strict=True):
        groups[span.group].append(place)
    return [
        (
            None if span.category is None else names[span.category],
            normal_form(covered(record, span)),
            *place,
            *([] if span.group is None else [_ordered(groups[span.group])]),
        )
        for span, place in zip(record.spans, places, strict=True)
    ]


def _place(record: Record, span: Span) -> tuple[str, int, int]:
    """Return the span's side, start and end, in non-space characters of the normal form."""
    text = record.text if span.side == "text" else record.pair or ""
    start, end = (len(normal_form(text[:offset]).replace(" ", "")) for offset in (span.start, span.end))
    return span.side, start, end


def _ordered(values: Iterable[Any]) -> list[Any]:
    """Return the distinct values, sorted by their `repr`."""
    return [value for _, value in sorted({repr(value): value for value in values}.items())]


def _differs(rows: pa.Table) -> list[str]:
    """List for each row the fields in which both annotations differ."""
    pairs = zip(*(map(json.loads, column.to_pylist()) for column in rows.columns[7:]), strict=True)
    return [", ".join(key for key in _FIELDS if here.get(key) != there.get(key)) for here, there in pairs]
