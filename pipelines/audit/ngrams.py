"""The n-grams of a text, and the evaluation records that share the most of them.

An n-gram is n words in sequence, or n characters in scripts without spaces (`pipelines/audit/shingles.py`). A text
with fewer words is a single n-gram. So it matches only another text of exactly these words, not a part of a longer
one.

Shapes: R evaluation records, N n-grams of all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from pipelines.audit.shingles import BETWEEN, words


class Index(NamedTuple):
    """N-grams of all evaluation records, sorted by hash."""

    hashes_N: np.ndarray  # uint64, ascending; repeated if several records have the n-gram
    records_N: np.ndarray  # uint32, index of the record
    splits_R: np.ndarray  # int32, index of the record's evaluation split


class Hit(NamedTuple):
    """The evaluation record of a split that shares the most n-grams with a text (the first in a tie).

    `evaluation` is its index, `ngrams` their number, and `ngram` the first of them. `records` is the number of
    records of the split that share any.
    """

    evaluation: int
    ngrams: int
    records: int
    ngram: str


def ngrams(text: str, pair: str | None, n: int) -> dict[int, str]:
    """Return the n-grams of a text and its pair by their hash; an empty dictionary if there is no word."""
    found = words(text, pair)
    if not set(found) - {BETWEEN}:
        return {}
    grams = (" ".join(found[i : i + n]) for i in range(max(1, len(found) - n + 1)))
    return {xxhash.xxh3_64_intdigest(gram.encode()): gram for gram in grams}


def index_of(ngrams: pa.Table, records: pa.Table) -> Index:
    """Build the index of n-grams (ngram, number of the record), sorted by both, and evaluation records."""
    names = list(zip(records.column("corpus").to_pylist(), records.column("split").to_pylist(), strict=True))
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    hashes, numbers = (ngrams.column(name).to_numpy() for name in ("ngram", "number"))
    return Index(hashes, numbers.astype(np.uint32), np.array([number[name] for name in names], np.int32))


def hits(text: str, pair: str | None, index: Index, n: int) -> Iterator[Hit]:
    """Yield a hit for each evaluation split of which a record shares an n-gram with a text."""
    grams = ngrams(text, pair, n)
    hashes = np.fromiter(grams, np.uint64, len(grams))
    first, last = (np.searchsorted(index.hashes_N, hashes, side) for side in ("left", "right"))
    shared = [(i, index.records_N[first[i] : last[i]]) for i in np.flatnonzero(last > first)]
    found, count = np.unique(np.concatenate([records for _, records in shared]), return_counts=True)
    named = list(grams.values())
    for split in np.unique(index.splits_R[found]):
        here = np.flatnonzero(index.splits_R[found] == split)
        best = here[np.argmax(count[here])]
        ngram = next(named[i] for i, records in shared if found[best] in records).replace(BETWEEN, "|")
        yield Hit(int(found[best]), int(count[best]), len(here), ngram)
