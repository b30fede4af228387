"""Signatures of texts, by which near ones find each other: MinHash, cut into bands of rows.

Two texts of similarity s have equal rows with probability s, and a band in common with 1 - (1 - s^rows)^bands
(Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, section 3.4).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pipelines.audit.shingles import shingles
from pipelines.store.storage import Place, parquet_file

ROWS = 128  # of a signature
FOUND = 0.99  # of the pairs of just the similarity asked for, at least
SEED = 0
CHUNK = 10_000


def rows_of_a_band(threshold: float) -> int:
    """As many as leave `FOUND` of the pairs of similarity `threshold` a band in common: the fewest candidates."""
    return max(rows for rows in range(1, ROWS + 1) if 1 - (1 - threshold**rows) ** (ROWS // rows) >= FOUND)


def band_schema(threshold: float) -> pa.Schema:
    """`content_hash` of a text, and the hashes of its bands, b0, b1, ..."""
    bands = ROWS // rows_of_a_band(threshold)
    return pa.schema(
        [pa.field("content_hash", pa.binary(16)), *(pa.field(f"b{i}", pa.uint64()) for i in range(bands))]
    )


def signatures(part: Place, threshold: float) -> pa.Table:
    """The bands of each different text of a part of a corpus."""
    batches = [_bands(hashes, texts, threshold) for hashes, texts in _different_texts(part)]
    return pa.Table.from_batches(batches, band_schema(threshold))


def _different_texts(part: Place) -> Iterator[tuple[list[bytes], list[set[str]]]]:
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
    # Bands of equal rows have one hash; others hardly ever, and what comes of it is compared in full anyway.
    factors = np.random.default_rng(SEED).integers(1 << 63, size=rows, dtype=np.uint64) | np.uint64(1)
    columns = [pa.array(matrix[:, i * rows : (i + 1) * rows] @ factors) for i in range(len(schema) - 1)]
    return pa.RecordBatch.from_arrays([pa.array(hashes, pa.binary(16)), *columns], schema=schema)
