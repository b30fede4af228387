"""Find the training records that share n-grams with evaluation records (`pipelines/audit/ngrams.py`).

The steps of the search, each of which writes relations for later ones (`pipelines/audit/exchange.py`):

    index     a group of evaluation parts  `evaluation`, a row for each n-gram of each evaluation record
    hash_     a group of training parts    `training`, a row for each n-gram of each training record
    join      a partition of n-grams       `shared`, the rows of `evaluation` for each group with the n-gram, and
                                           `wanted`, the group's records with it
    compare   a group of training parts    `matches`, the evidence

A training record is numbered within its group. `compare` reads only the wanted records again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.audit.evidence import CONTAMINATION
from pipelines.audit.exchange import Exchange, collect
from pipelines.audit.ngrams import Index, hits, index_of, ngrams
from pipelines.store.storage import StorePath, parquet_file

CHUNK = 1_000
_COLUMNS = ["record_id", "corpus", "split", "text", "pair"]
_EVALUATION = pa.schema(
    [
        pa.field("corpus", pa.string()),
        pa.field("split", pa.string()),
        pa.field("record_id", pa.string()),
        pa.field("ngrams", pa.list_(pa.uint64())),  # distinct hashes
    ]
)
_TRAINING = pa.schema([pa.field("ngram", pa.uint64()), pa.field("record", pa.uint32())])
_HITS = pa.schema(
    [
        pa.field("record_id", pa.string()),
        pa.field("corpus", pa.string()),
        pa.field("split", pa.string()),
        pa.field("evaluation", pa.uint32()),  # index of an evaluation record
        pa.field("ngrams", pa.int64()),
        pa.field("records", pa.int64()),
        pa.field("ngram", pa.string()),
    ]
)
_UNNESTED = "SELECT corpus, split, record_id, len(ngrams) AS size, unnest(ngrams) AS ngram FROM evaluation"
_SHARED = """
SELECT home, evaluation.* FROM (SELECT DISTINCT home, ngram FROM training) JOIN evaluation USING (ngram)
"""
_WANTED = "SELECT DISTINCT home, record FROM training SEMI JOIN evaluation USING (ngram)"
_SORTED = """
CREATE TABLE records AS
SELECT *, row_number() OVER (ORDER BY corpus, split, record_id) - 1 AS number
FROM (SELECT DISTINCT corpus, split, record_id, size FROM shared)
"""
_INDEX = """
SELECT ngram, number FROM shared JOIN records USING (corpus, split, record_id) ORDER BY ngram, number
"""


def find_shared(
    exchange: Exchange,
    held: Sequence[StorePath],
    trained: Sequence[StorePath],
    splits: Collection[tuple[str, str]],
    n: int,
) -> dict[str, int]:
    """Write the relation `matches`, rows of `CONTAMINATION`: the records of the parts `trained` that share n-grams
    with evaluation records of the parts `held`, in these splits (corpus, split).

    Returns:
        Counts: `evaluation_records`, `matches`, and `contaminated_records`, which have any match.

    Raises:
        UserError: a part of a corpus cannot be read.
    """
    found = exchange.run(index, [(*group, splits, n) for group in exchange.groups(held)], "evaluation splits")
    training = [(*group, n) for group in exchange.groups(trained)]
    exchange.run(hash_, training, "n-grams of training records")
    exchange.run_partitions(join, "partitions of n-grams")
    found |= exchange.run(compare, training, "training records")
    return {name: found[name] for name in ("evaluation_records", "matches", "contaminated_records")}


def index(
    exchange: Exchange, number: int, parts: Sequence[StorePath], splits: Collection[tuple[str, str]], n: int
) -> dict[str, int]:
    """Write `evaluation`, the n-grams of the records in these splits (corpus, split)."""
    with exchange.opened(number) as connection:
        tables = (_indexed(part, splits, n) for part in parts)
        count = collect(connection, "evaluation", _EVALUATION, tables)
        exchange.write(connection, "evaluation", number, _UNNESTED, exchange.by("ngram"))
    return {"evaluation_records": count}


def hash_(exchange: Exchange, number: int, parts: Sequence[StorePath], n: int) -> dict[str, int]:
    """Write `training`, the n-grams of the training records of a group."""
    with exchange.opened(number) as connection:
        collect(connection, "training", _TRAINING, _hashed(parts, n))
        rows = f"SELECT *, {number}::USMALLINT AS home FROM training"
        exchange.write(connection, "training", number, rows, exchange.by("ngram"))
    return {}


def join(exchange: Exchange, number: int) -> dict[str, int]:
    """Write `shared`, the n-grams of evaluation records that a group has, too, and `wanted`, its records."""
    with exchange.opened(number, "evaluation", "training") as connection:
        exchange.write(connection, "shared", number, _SHARED, "home")
        exchange.write(connection, "wanted", number, _WANTED, "home")
    return {}


def compare(exchange: Exchange, number: int, parts: Sequence[StorePath], n: int) -> dict[str, int]:
    """Write `matches`, the training records of a group that share n-grams with evaluation records."""
    with exchange.opened(number, "shared", "wanted") as connection:
        connection.execute(_SORTED)
        records = connection.sql("SELECT * FROM records ORDER BY number").to_arrow_table()
        found = index_of(connection.sql(_INDEX).to_arrow_table(), records)
        wanted = connection.sql("SELECT DISTINCT record FROM wanted ORDER BY record").fetchnumpy()["record"]
        tables = (_evidence(hits, records) for hits in contaminated(parts, wanted, found, n))
        matches = collect(connection, "matches", CONTAMINATION, tables)
        exchange.write(connection, "matches", number, "FROM matches")
        counted = "SELECT count(DISTINCT record_id) FROM matches"
        [(contaminated_records,)] = connection.execute(counted).fetchall()
    return {"matches": matches, "contaminated_records": contaminated_records}


def _indexed(part: StorePath, splits: Collection[tuple[str, str]], n: int) -> pa.Table:
    rows = [
        {"corpus": corpus, "split": split, "record_id": record_id, "ngrams": list(ngrams(text, pair, n))}
        for batch in _batches([part])
        for record_id, corpus, split, text, pair in _records(batch)
        if (corpus, split) in splits
    ]
    return pa.Table.from_pylist(rows, schema=_EVALUATION)


def _hashed(parts: Sequence[StorePath], n: int) -> Iterator[pa.Table]:
    """Yield rows of `_TRAINING`: the n-grams of the training records of parts."""
    number = 0
    for batch in _batches(parts):
        found = [
            list(ngrams(text, pair, n)) if split == "train" else [] for _, _, split, text, pair in _records(batch)
        ]
        hashes = np.fromiter(chain.from_iterable(found), np.uint64)
        numbers = np.repeat(np.arange(number, number + len(batch), dtype=np.uint32), [len(one) for one in found])
        yield pa.table([hashes, numbers], schema=_TRAINING)
        number += len(batch)


def contaminated(
    parts: Sequence[StorePath], wanted: npt.NDArray[np.uint32], index: Index, n: int
) -> Iterator[pa.Table]:
    """Yield rows of `_HITS` for the wanted records of parts, given in ascending order."""
    number = 0
    for batch in _batches(parts) if len(wanted) else ():
        first, last = np.searchsorted(wanted, [number, number + len(batch)])
        chosen = batch.take(pa.array(wanted[first:last] - number))
        number += len(batch)
        rows = [
            (record_id, corpus, split, *hit)
            for record_id, corpus, split, text, pair in _records(chosen)
            for hit in hits(text, pair, index, n)
        ]
        columns = zip(*rows, strict=True) if rows else ([] for _ in _HITS)
        yield pa.table([pa.array(column, f.type) for column, f in zip(columns, _HITS, strict=True)], _HITS)


def _evidence(hits: pa.Table, evaluation: pa.Table) -> pa.Table:
    """Return rows of `CONTAMINATION`: hits with the names of their evaluation records."""
    other = evaluation.take(hits.column("evaluation"))
    share = hits.column("ngrams").to_numpy() / other.column("size").to_numpy()
    columns = {
        **{name: hits.column(name) for name in hits.column_names if name != "evaluation"},
        "evaluation_id": other.column("record_id"),
        "evaluation_corpus": other.column("corpus"),
        "evaluation_split": other.column("split"),
        "share": pa.array(share.astype(np.float32)),
    }
    return pa.table([columns[name] for name in CONTAMINATION.names], schema=CONTAMINATION)


def _batches(parts: Sequence[StorePath]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        with parquet_file(part) as file:
            yield from file.iter_batches(CHUNK, columns=_COLUMNS)


def _records(batch: pa.RecordBatch) -> Iterator[tuple[str, str, str, str, str | None]]:
    return zip(*(batch.column(name).to_pylist() for name in _COLUMNS), strict=True)
