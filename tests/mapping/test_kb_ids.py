"""Knowledge-base ids of mentions: kept in records, shown by SQL and `peek`, null in older stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from test_mapping import kept, spec_of
from test_notices import ingested

from pipelines.report.described import described
from pipelines.store.warehouse import sql
from ubert.schema.arrow import batch_to_records, records_to_batch

MAP: dict[str, Any] = {
    "text": "text",
    "spans": {"each": "found[]", "label": "type", "start": "at", "words": "words", "kb_id": "mesh?"},
}
CATEGORIES = {"entity": {"Chemical": "chemical", "Disease": "disease"}}
ROW: dict[str, Any] = {
    "text": "Famotidine, delirium and dyspepsia; gout",
    "found": [
        {"type": "Chemical", "at": 0, "words": "Famotidine", "mesh": "MESH:D015738"},
        {"type": "Disease", "at": 12, "words": "delirium", "mesh": ["MESH:D003693", "OMIM:1", 7]},
        {"type": "Disease", "at": 25, "words": "dyspepsia", "mesh": None},
        {"type": "Disease", "at": 25, "words": "dyspepsia", "mesh": "MESH:D004415"},
        {"type": "Disease", "at": 36, "words": "gout", "mesh": []},
    ],
}
IDS = ["MESH:D015738", "MESH:D003693|OMIM:1|7", "MESH:D004415", None]


def test_a_mention_keeps_its_ids() -> None:
    record = kept(spec_of("ner", MAP, CATEGORIES), ROW)
    assert [span.kb_id for span in record.spans] == IDS
    assert list(batch_to_records(records_to_batch([record]))) == [record]
    assert "[0, 10) chemical: 'Famotidine' MESH:D015738\n" in described(record).plain


def test_sql_sees_the_ids_and_reads_stores_that_lack_the_field(tmp_path: Path) -> None:
    manifest = ingested(tmp_path, {"task": "ner", "map": MAP, "categories": CATEGORIES}, [ROW])
    query = "SELECT kb_id FROM spans ORDER BY start"
    assert sql(tmp_path / "store", query).column(0).to_pylist() == IDS

    part = tmp_path / "store" / "corpora" / "toy" / manifest.fingerprint / manifest.parts[0]
    table = pq.read_table(part)
    place = table.schema.get_field_index("spans")
    lists = table.column(place).combine_chunks()
    old = lists.type.value_type
    fields = [field for field in old if field.name != "kb_id"]
    structs = pa.StructArray.from_arrays([lists.values.field(f.name) for f in fields], fields=fields)
    without = pa.ListArray.from_arrays(lists.offsets, structs)
    pq.write_table(table.set_column(place, "spans", without), part)
    assert sql(tmp_path / "store", query).column(0).to_pylist() == [None] * 4


def test_a_mention_that_is_repeated_keeps_its_first_ids() -> None:
    row = {**ROW, "found": [{**ROW["found"][4], "mesh": mesh} for mesh in (None, "a", None, "b")]}
    assert [span.kb_id for span in kept(spec_of("ner", MAP, CATEGORIES), row).spans] == ["a"]


def test_each_fragment_of_a_mention_that_is_repeated_gets_its_ids() -> None:
    given = {"each": "found[]", "label": "type", "fragments": "at", "kb_id": "mesh?"}
    found = [{"type": "Disease", "at": [[0, 10], [25, 34]], "mesh": mesh} for mesh in (None, "a")]
    record = kept(spec_of("ner", {"text": "text", "spans": given}, CATEGORIES), {**ROW, "found": found})
    assert [span.kb_id for span in record.spans] == ["a", "a"]


def test_a_row_is_rejected_if_an_id_has_half_of_a_surrogate_pair(tmp_path: Path) -> None:
    row = {**ROW, "found": [{**ROW["found"][0], "mesh": "D\ud800"}]}
    spec = {"task": "ner", "map": MAP, "categories": CATEGORIES, "error_budget": 0.5}
    [counts] = ingested(tmp_path, spec, [ROW, row], strict=False).splits
    assert (counts.kept, counts.rejected) == (1, 1)
    query = "SELECT reason, detail LIKE '%the id of a mention%' AS named FROM rejects"
    assert sql(tmp_path / "store", query).to_pylist() == [{"reason": "lone surrogate", "named": True}]
