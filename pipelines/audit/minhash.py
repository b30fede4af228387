"""Compute MinHash signatures of texts, in bands of rows, to find candidates of near duplicates.

A row of two texts of similarity s is equal with probability s. The texts have an equal band with probability
1 - (1 - s^rows)^bands (Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, section 3.4).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pipelines.audit.shingles import shingles
from pipelines.store.storage import StorePath, parquet_file

ROWS = 128  # rows of a signature
FOUND = 0.99  # least recall of pairs whose similarity is exactly the threshold
SEED = 0
CHUNK = 10_000


def rows_of_a_band(threshold: float) -> int:
    """Return the largest number of rows that keeps the recall `FOUND` at the threshold. More rows give fewer
    candidates."""
    return max(rows for rows in range(1, ROWS + 1) if 1 - (1 - threshold**rows) ** (ROWS // rows) >= FOUND)


def band_schema(threshold: float) -> pa.Schema:
    """Return the schema of signatures: `content_hash` of a text, and the hashes b0, b1, ... of its bands."""
    bands = ROWS // rows_of_a_band(threshold)
    return pa.schema(
        [pa.field("content_hash", pa.binary(16)), *(pa.field(f"b{i}", pa.uint64()) for i in range(bands))]
    )


def signatures(part: StorePath, threshold: float) -> pa.Table:
    """Compute the bands of each distinct text of a part of a corpus."""
    batches = [_bands(hashes, texts, threshold) for hashes, texts in _different_texts(part)]
    return pa.Table.from_batches(batches, band_schema(threshold))


def _different_texts(part: StorePath) -> Iterator[tuple[list[bytes], list[set[str]]]]:
    seen: set[bytes] = set()
    with parquet_file(part) as file:
        for batch in file.iter_batches(CHUNK, columns=["content_hash", "text", "pair"]):
            columns = (batch.column(name).to_pylist() for name in ("content_hash", "text", "pair"))
            hashes, sets = [], []
            for content, text, pair in zip(*columns, strict=True):
                if content not in seen:
                    seen.add(content)
                    hashes.append(content)
                    sets.append(shingles(text, pair))
            yield hashes, sets


def _bands(hashes: list[bytes], sets: list[set[str]], threshold: float) -> pa.RecordBatch:
    from rensa import RMinHash

    rows = rows_of_a_band(threshold)
    schema = band_schema(threshold)
    digests = RMinHash.digest_matrix_from_token_sets(sets, ROWS, SEED).to_rows()
    matrix = np.array(digests, np.uint64).reshape(len(hashes), ROWS)
    # Equal bands have equal hashes. Collisions are rare and harmless, because candidates are compared in full.
    factors = np.random.default_rng(SEED).integers(1 << 63, size=rows, dtype=np.uint64) | np.uint64(1)
    columns = [pa.array(matrix[:, i * rows : (i + 1) * rows] @ factors) for i in range(len(schema) - 1)]
    return pa.RecordBatch.from_arrays([pa.array(hashes, pa.binary(16)), *columns], schema=schema)
