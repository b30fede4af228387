"""Index the n-grams of evaluation records, and find the training records that have any of them.

The steps of the search, each of which writes relations for later ones (`pipelines/audit/exchange.py`):

    index     a group of evaluation parts  `evaluation`, a row for each n-gram of each evaluation record
    hash_     a group of training parts    `training`, the distinct n-grams of the group
    join      a partition of n-grams       `shared`, the rows of `evaluation` for each group that has the n-gram
    compare   a group of training parts    `matches`, the evidence

An n-gram is n words in sequence, or n characters in scripts without spaces (`pipelines/audit/shingles.py`). A text
with fewer words is a single n-gram. So it matches only another text of exactly these words, not a part of a longer
one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from pipelines.audit.evidence import CONTAMINATION
from pipelines.audit.exchange import Exchange, collect, groups
from pipelines.audit.shingles import BETWEEN, words
from pipelines.store.storage import Place, parquet_file

CHUNK = 1_000
_EVALUATION = pa.schema(
    [
        pa.field("corpus", pa.string()),
        pa.field("split", pa.string()),
        pa.field("record_id", pa.string()),
        pa.field("ngrams", pa.list_(pa.uint64())),  # distinct hashes
    ]
)
_TRAINING = pa.schema([pa.field("ngram", pa.uint64())])
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
_SHARED = "SELECT home, evaluation.* FROM training JOIN evaluation USING (ngram)"
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
    held: Sequence[Place],
    trained: Sequence[Place],
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
    found = exchange.run(index, [(*group, splits, n) for group in groups(held)], "evaluation splits")
    training = [(*group, n) for group in groups(trained)]
    exchange.run(hash_, training, "n-grams of training records")
    exchange.run_partitions(join, "partitions of n-grams")
    found |= exchange.run(compare, training, "training records")
    return {name: found[name] for name in ("evaluation_records", "matches", "contaminated_records")}


def index(
    exchange: Exchange, number: int, parts: Sequence[Place], splits: Collection[tuple[str, str]], n: int
) -> dict[str, int]:
    """Write `evaluation`, the n-grams of the records in these splits (corpus, split)."""
    with exchange.opened(number) as connection:
        tables = (_indexed(part, splits, n) for part in parts)
        count = collect(connection, "evaluation", _EVALUATION, tables)
        exchange.write(connection, "evaluation", number, _UNNESTED, exchange.by("ngram"))
    return {"evaluation_records": count}


def hash_(exchange: Exchange, number: int, parts: Sequence[Place], n: int) -> dict[str, int]:
    """Write `training`, the distinct n-grams of the training records of a group."""
    with exchange.opened(number) as connection:
        collect(connection, "training", _TRAINING, (_hashed(part, n) for part in parts))
        rows = f"SELECT DISTINCT ngram, {number}::USMALLINT AS home FROM training"
        exchange.write(connection, "training", number, rows, exchange.by("ngram"))
    return {}


def join(exchange: Exchange, number: int) -> dict[str, int]:
    """Write `shared`, the n-grams of evaluation records that a group has, too."""
    with exchange.opened(number, "evaluation", "training") as connection:
        exchange.write(connection, "shared", number, _SHARED, "home")
    return {}


def compare(exchange: Exchange, number: int, parts: Sequence[Place], n: int) -> dict[str, int]:
    """Write `matches`, the training records of a group that share n-grams with evaluation records."""
    with exchange.opened(number, "shared") as connection:
        connection.execute(_SORTED)
        records = connection.sql("SELECT * FROM records ORDER BY number").to_arrow_table()
        found = index_of(connection.sql(_INDEX).to_arrow_table(), records)
        tables = (_evidence(contaminated(part, found, n), records) for part in parts if len(records))
        matches = collect(connection, "matches", CONTAMINATION, tables)
        exchange.write(connection, "matches", number, "FROM matches")
        counted = "SELECT count(DISTINCT record_id) FROM matches"
        [(contaminated_records,)] = connection.execute(counted).fetchall()
    return {"matches": matches, "contaminated_records": contaminated_records}


class Index(NamedTuple):
    """N-grams of all evaluation records, sorted by hash. R records, N n-grams."""

    hashes_N: np.ndarray  # uint64, ascending; repeated if several records have the n-gram
    records_N: np.ndarray  # uint32, index of the record
    splits_R: np.ndarray  # int32, index of the record's evaluation split


def ngrams(text: str, pair: str | None, n: int) -> dict[int, str]:
    """Return the n-grams of a text and its pair by their hash; an empty dictionary if there is no word."""
    found = words(text, pair)
    if not set(found) - {BETWEEN}:
        return {}
    grams = (" ".join(found[i : i + n]) for i in range(max(1, len(found) - n + 1)))
    return {xxhash.xxh3_64_intdigest(gram.encode()): gram for gram in grams}


def _indexed(part: Place, splits: Collection[tuple[str, str]], n: int) -> pa.Table:
    rows = [
        {"corpus": corpus, "split": split, "record_id": record_id, "ngrams": list(ngrams(text, pair, n))}
        for record_id, corpus, split, text, pair in _records(part)
        if (corpus, split) in splits
    ]
    return pa.Table.from_pylist(rows, schema=_EVALUATION)


def _hashed(part: Place, n: int) -> pa.Table:
    found: set[int] = set()
    for _, _, split, text, pair in _records(part):
        if split == "train":
            found.update(ngrams(text, pair, n))
    return pa.table([np.fromiter(found, np.uint64, len(found))], schema=_TRAINING)


def index_of(ngrams: pa.Table, records: pa.Table) -> Index:
    """Build the index of n-grams (ngram, number of the record), sorted by both, and evaluation records."""
    names = list(zip(records.column("corpus").to_pylist(), records.column("split").to_pylist(), strict=True))
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    hashes, numbers = (ngrams.column(name).to_numpy() for name in ("ngram", "number"))
    return Index(hashes, numbers.astype(np.uint32), np.array([number[name] for name in names], np.int32))


def contaminated(part: Place, index: Index, n: int) -> pa.Table:
    """Return rows of `_HITS`: the training records of a part that share an n-gram with the index. There is one row
    for each evaluation split, with the record there that shares the most (the first in a tie)."""
    rows = []
    for record_id, corpus, split, text, pair in _records(part):
        if split != "train" or not (grams := ngrams(text, pair, n)):
            continue
        hashes = np.fromiter(grams, np.uint64, len(grams))
        first, last = (np.searchsorted(index.hashes_N, hashes, side) for side in ("left", "right"))
        hits = [(i, index.records_N[first[i] : last[i]]) for i in np.flatnonzero(last > first)]
        if hits:
            found, shared = np.unique(np.concatenate([records for _, records in hits]), return_counts=True)
            named = list(grams.values())
            for one, count, among in _most(found, shared, index.splits_R[found]):
                ngram = next(named[i] for i, records in hits if one in records).replace(BETWEEN, "|")
                rows.append((record_id, corpus, split, one, count, among, ngram))
    columns = zip(*rows, strict=True) if rows else ([] for _ in _HITS)
    return pa.table([pa.array(column, f.type) for column, f in zip(columns, _HITS, strict=True)], _HITS)


def _most(found: np.ndarray, shared: np.ndarray, splits: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yield for each split the record that shares the most n-grams, their number, and the number of records that
    share any."""
    for split in np.unique(splits):
        here = np.flatnonzero(splits == split)
        best = here[np.argmax(shared[here])]
        yield int(found[best]), int(shared[best]), len(here)


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


def _records(part: Place) -> Iterator[tuple[str, str, str, str, str | None]]:
    columns = ["record_id", "corpus", "split", "text", "pair"]
    with parquet_file(part) as file:
        for batch in file.iter_batches(CHUNK, columns=columns):
            yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
