"""Index the n-grams of evaluation records, and find the training records that have any of them.

An n-gram is n words in sequence, or n characters in scripts without spaces (`pipelines/audit/shingles.py`). A text
with fewer words is a single n-gram. So it matches only another text of exactly these words, not a part of a longer
one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from pipelines.audit.shingles import BETWEEN, words
from pipelines.store.storage import Place, parquet_file

CHUNK = 1_000
INDEXED = pa.schema(
    [
        pa.field("corpus", pa.string()),
        pa.field("split", pa.string()),
        pa.field("record_id", pa.string()),
        pa.field("ngrams", pa.list_(pa.uint64())),  # distinct hashes
    ]
)
HITS = pa.schema(
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


def indexed(part: Place, splits: Collection[tuple[str, str]], n: int) -> pa.Table:
    """Return rows of `INDEXED`: the records of a part in these splits (corpus, split), with their n-grams."""
    rows = [
        {"corpus": corpus, "split": split, "record_id": record_id, "ngrams": list(ngrams(text, pair, n))}
        for record_id, corpus, split, text, pair in _records(part)
        if (corpus, split) in splits
    ]
    return pa.Table.from_pylist(rows, schema=INDEXED)


def index_of(table: pa.Table) -> Index:
    """Build the index of rows of `INDEXED`. A record's index is that of its row."""
    lists = table.column("ngrams").combine_chunks()
    hashes = lists.flatten().to_numpy()
    records = np.repeat(np.arange(len(lists), dtype=np.uint32), np.diff(lists.offsets.to_numpy()))
    order = np.lexsort((records, hashes))
    names = list(zip(table.column("corpus").to_pylist(), table.column("split").to_pylist(), strict=True))
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return Index(hashes[order], records[order], np.array([number[name] for name in names], np.int32))


def contaminated(part: Place, index: Index, n: int) -> pa.Table:
    """Return rows of `HITS`: the training records of a part that share an n-gram with the index. There is one row
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
    columns = zip(*rows, strict=True) if rows else ([] for _ in HITS)
    return pa.table([pa.array(column, f.type) for column, f in zip(columns, HITS, strict=True)], HITS)


def _most(found: np.ndarray, shared: np.ndarray, splits: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yield for each split the record that shares the most n-grams, their number, and the number of records that
    share any."""
    for split in np.unique(splits):
        here = np.flatnonzero(splits == split)
        best = here[np.argmax(shared[here])]
        yield int(found[best]), int(shared[best]), len(here)


def _records(part: Place) -> Iterator[tuple[str, str, str, str, str | None]]:
    columns = ["record_id", "corpus", "split", "text", "pair"]
    with parquet_file(part) as file:
        for batch in file.iter_batches(CHUNK, columns=columns):
            yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
