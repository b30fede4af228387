"""Find pairs of near texts. Texts with an equal band of their signatures are candidates, and compared in full.

The input is the table `contents` of a connection (content_hash, id; ids in keeper order). The output is its table
`near` (a, b, similarity; a < b).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pipelines.audit.minhash import CHUNK, band_schema, signatures
from pipelines.audit.shingles import jaccard, shingles
from pipelines.progress import progress
from pipelines.store.storage import Place
from pipelines.tasks import completed
from ubert.schema.errors import UserError

# Each text is compared with at most this number of texts of the same band, the first in keeper order. If thousands
# are alike, the keeper is among them, and the work stays linear.
COMPARED = 64

_NEAR = pa.schema([("a", pa.uint32()), ("b", pa.uint32()), ("similarity", pa.float32())])
_BUCKETS = """
CREATE OR REPLACE TABLE buckets AS
WITH texts AS (SELECT DISTINCT id, {band} AS band FROM signatures JOIN contents USING (content_hash)),
     shared AS (SELECT band FROM texts GROUP BY band HAVING count(*) > 1)
SELECT band, id, row_number() OVER (PARTITION BY band ORDER BY id) AS place
FROM texts SEMI JOIN shared USING (band)
"""
_CANDIDATES = f"""
INSERT INTO candidates
SELECT one.id, other.id FROM buckets AS one JOIN buckets AS other USING (band)
WHERE one.place <= {COMPARED} AND one.id < other.id
"""
_LEFT_OUT = f"SELECT coalesce(sum(greatest(place - 1 - {COMPARED}, 0)), 0)::BIGINT FROM buckets"
_TEXTS = """
CREATE TABLE pairs AS SELECT DISTINCT a, b FROM candidates;
CREATE TABLE texts AS
SELECT id, any_value(text) AS text, any_value(pair) AS pair FROM records JOIN contents USING (content_hash)
WHERE id IN (SELECT a FROM pairs UNION SELECT b FROM pairs) GROUP BY id;
"""
_PAIRS = """
SELECT a, b, one.text, one.pair, other.text, other.pair
FROM pairs JOIN texts AS one ON one.id = a JOIN texts AS other ON other.id = b
"""


def find_near(
    connection: duckdb.DuckDBPyConnection,
    parts: Sequence[Place],
    threshold: float,
    scratch: Path,
    address: str | None,
) -> dict[str, int]:
    """Create `near` from the pairs of `contents` whose Jaccard similarity is at least `threshold`.

    Returns:
        Counts: `candidates`, pairs that were compared in full, and `left_out`, comparisons that were skipped
        because too many texts are alike.

    Raises:
        UserError: a part of a corpus cannot be read.
    """
    bands = band_schema(threshold).names[1:]
    file = _write_signatures(parts, threshold, scratch / "signatures.parquet", address)
    connection.register("signatures", ds.dataset(file, format="parquet"))
    connection.execute("CREATE TABLE candidates (a UINTEGER, b UINTEGER)")
    left_out = 0
    for band in progress(bands, len(bands), "bands"):
        connection.execute(_BUCKETS.format(band=band))
        connection.execute(_CANDIDATES)
        left_out += connection.execute(_LEFT_OUT).fetchall()[0][0]
    connection.execute(_TEXTS)
    candidates = connection.execute("SELECT count(*) FROM pairs").fetchall()[0][0]
    chunks = progress(_compared(connection, threshold), -(-candidates // CHUNK), "chunks of pairs")
    connection.register("verified", pa.Table.from_batches(chunks, _NEAR))
    connection.execute("CREATE TABLE near AS FROM verified")
    connection.execute("DROP TABLE texts; DROP TABLE pairs; DROP TABLE candidates; DROP TABLE buckets")
    return {"candidates": candidates, "left_out": left_out}


def _write_signatures(parts: Sequence[Place], threshold: float, path: Path, address: str | None) -> Path:
    jobs = [(part, threshold) for part in parts]
    with pq.ParquetWriter(path, band_schema(threshold)) as writer:
        for _, outcome in progress(completed(signatures, jobs, address), len(jobs), "signatures of parts"):
            if isinstance(outcome, UserError):
                raise outcome
            writer.write_table(outcome)
    return path


def _compared(connection: duckdb.DuckDBPyConnection, threshold: float) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `pairs` that are near enough, in chunks."""
    for batch in connection.sql(_PAIRS).to_arrow_reader(CHUNK):
        near = []
        for a, b, text, pair, other_text, other_pair in zip(*map(pa.Array.to_pylist, batch.columns), strict=True):
            similarity = jaccard(shingles(text, pair), shingles(other_text, other_pair))
            if similarity >= threshold:
                near.append((a, b, similarity))
        columns = zip(*near, strict=True) if near else ([], [], [])
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, _NEAR, strict=True)], schema=_NEAR
        )
