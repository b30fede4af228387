"""Find contradictions: records of the same text and prompt with different annotations.

Annotations are compared as sets. Categories are compared by name, and spans by their words and by the number of
non-space characters before them in the normal form of the text. So the order of spans or categories, case and
white space make no difference. A different label, boundary, type or link is a contradiction.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import duckdb
import pyarrow as pa

from pipelines.audit.exchange import collect
from pipelines.audit.same import named
from ubert.schema.arrow import batch_to_records
from ubert.schema.checks import covered
from ubert.schema.record import RECORD_SCHEMA, Argument, Event, Record, Span, normal_form

_FIELDS = ("labels", "value", "target", "spans", "relations", "events")
_SAID = f"SELECT {', '.join(RECORD_SCHEMA.names)}, id FROM chosen WHERE repeated"
_ANNOTATIONS = pa.schema([("id", pa.string()), ("annotation", pa.string())])
_DIFFERING = f"""
SELECT one.id, {named("one.id")}, {named("keeper.id", "keeper")}, one.task,
       differs(one.annotation, keeper.annotation) AS differs, one.annotation,
       keeper.annotation AS keeper_annotation
FROM alike AS one JOIN firsts USING (content_hash, asked) JOIN alike AS keeper ON keeper.id = firsts.first
WHERE one.annotation <> keeper.annotation
"""


def write_annotations(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the table `annotations` (id, annotation) of the `repeated` records of the table `chosen`."""
    batches = connection.cursor().sql(_SAID).to_arrow_reader(1_000)
    collect(connection, "annotations", _ANNOTATIONS, map(_annotated, batches))


def _annotated(batch: pa.RecordBatch) -> pa.Table:
    records = batch_to_records(pa.Table.from_batches([batch]).select(RECORD_SCHEMA.names).cast(RECORD_SCHEMA))
    said = [json.dumps(annotation(record), ensure_ascii=False) for record in records]
    return pa.table([batch.column("id"), pa.array(said, pa.string())], schema=_ANNOTATIONS)


def contradictions(connection: duckdb.DuckDBPyConnection) -> str:
    """Return the query for the records of `alike` whose annotations differ from those of the first record of their
    text and prompt (`firsts`): columns `id`, then those of `CONTRADICTIONS`."""
    connection.create_function("differs", _differs, ["VARCHAR", "VARCHAR"], "VARCHAR")
    return _DIFFERING


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


def _differs(here: str, there: str) -> str:
    """List the fields in which two annotations differ."""
    one, other = json.loads(here), json.loads(there)
    return ", ".join(key for key in _FIELDS if one.get(key) != other.get(key))
