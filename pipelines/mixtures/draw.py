"""Plan the draws of each source of a mixture, and draw its members.

The records of a source are sorted by a key that is computed from the seed and their stored key. A quota that is
no larger than the number of records takes that many from the front. A larger quota repeats all records equally
often, and the first ones once more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.mixtures.shares import balanced, quotas
from pipelines.mixtures.sql import (
    Edge,
    Edges,
    Stratum,
    copies_sql,
    draw_sql,
    inside_sql,
    literal,
    ranges_sql,
    source_name,
    strata_sql,
    text_sql,
)
from pipelines.progress import progress
from pipelines.store.warehouse import explained
from ubert.model.tokenizer import load_tokenizer
from ubert.schema.manifest import CorpusManifest, DrawnCategory, MixtureManifest
from ubert.schema.specs.mixture import Mixture, MixtureSource

MEMBERS = pa.schema(
    [
        pa.field("record_id", pa.string(), nullable=False),
        pa.field("corpus", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("phase", pa.int32(), nullable=False),
        pa.field("copies", pa.int32(), nullable=False),
        pa.field("key", pa.uint64(), nullable=False),  # the draw key
    ]
)
SAMPLE = 256  # texts of a source that are tokenised to estimate tokens per character


@dataclass(slots=True, frozen=True)
class Planned:
    """The planned draws of one source: `pool` records may be drawn, and `sql` draws from its strata."""

    leaf: MixtureSource
    pool: int
    strata: list[Stratum]
    sql: str


def plan(
    connection: duckdb.DuckDBPyConnection,
    mixture: Mixture,
    corpora: Mapping[str, CorpusManifest],
    left: Mapping[str, int],
) -> list[Planned]:
    """Apply the policy to the records that are `left` in each leaf. The plans are sorted by the name of the leaf.

    Args:
        left: number of records that may be drawn, by name of the leaf.

    Raises:
        UserError: a quota cannot be met.
    """
    pools = {leaf.name: min(left[leaf.name], leaf.cap or left[leaf.name]) for leaf in mixture.leaves}
    draws = quotas(mixture, pools, lambda inside, source: _group(inside, source, corpora))
    leaves = sorted(mixture.leaves, key=lambda leaf: leaf.name)
    planned = []
    for leaf in progress(leaves, len(leaves), "plan"):
        pool = pools[leaf.name]
        with explained(connection, source_name(mixture, leaf), seconds=None):
            cap = None
            if pool < left[leaf.name]:
                any_category = leaf.model_copy(update={"balance": None})
                cap = _edges(connection, mixture, any_category, [Stratum("", left[leaf.name], [pool])])["", pool]
            strata = [Stratum("", pool, draws[leaf.name])]
            if leaf.balance:
                sizes = dict(connection.execute(strata_sql(mixture, leaf, cap)).fetchall())
                shared = balanced(draws[leaf.name], sizes, leaf.balance, leaf.max_copies)
                strata = [Stratum(category, size, shared[category]) for category, size in sizes.items()]
            edges = _edges(connection, mixture, leaf, strata, cap)
        planned.append(Planned(leaf, pool, strata, draw_sql(mixture, leaf, copies_sql(strata, edges), cap)))
    return planned


def _edges(
    connection: duckdb.DuckDBPyConnection,
    mixture: Mixture,
    leaf: MixtureSource,
    strata: Sequence[Stratum],
    cap: Edge | None = None,
) -> Edges:
    """Find the last record of each phase. Only the key ranges that hold such records are sorted."""
    places = {one.category: {upto % one.records for upto in accumulate(one.draws)} - {0} for one in strata}
    if not any(places.values()):
        return {}
    ends: dict[str, list[tuple[int, int]]] = {}  # by category: ranges, and the number of records before each
    rows = connection.execute(ranges_sql(mixture, leaf, cap)).fetchall()
    for category, of_category in groupby(rows, itemgetter(0)):
        before = 0
        for _, number, size in of_category:
            ends.setdefault(category, []).append((before, number))
            before += size
    wanted = {
        (category, place): ends[category][bisect_left(ends[category], (place,)) - 1]
        for category, of_category in places.items()
        for place in of_category
    }
    ranges = {(category, number) for (category, _), (_, number) in wanted.items()}
    words = ", ".join(f"({literal(category)}, {number})" for category, number in sorted(ranges))
    inside: dict[tuple[str, int], list[Edge]] = {}
    rows = connection.execute(inside_sql(mixture, leaf, words, cap)).fetchall()
    for category, number, key, record_id in rows:
        inside.setdefault((category, number), []).append(Edge(key, record_id))
    return {
        (category, place): inside[category, number][place - before - 1]
        for (category, place), (before, number) in wanted.items()
    }


def _group(mixture: Mixture, source: MixtureSource, corpora: Mapping[str, CorpusManifest]) -> tuple[str, str]:
    """Return the kind and name of a source's group under `by`. A nested mixture is its own group, whatever its
    name."""
    if source.mixture or mixture.by == "source":
        return "source", source.name
    corpus = corpora[source.corpus]
    return mixture.by, {"corpus": corpus.name, "task": corpus.task, "language": corpus.language}[mixture.by]


def draw(
    connection: duckdb.DuckDBPyConnection, mixture: Mixture, planned: Planned, file: pq.ParquetWriter | None
) -> dict[str, Any]:
    """Draw from one source, and write the members if there is a file. Return the draw's fields of the manifest."""
    characters = 0
    with explained(connection, source_name(mixture, planned.leaf), seconds=None):
        for batch in connection.sql(planned.sql).to_arrow_reader():
            of_copies = pc.multiply(batch.column("characters").cast(pa.int64()), batch.column("copies"))
            characters += pc.sum(of_copies).as_py() or 0
            if file is not None:
                file.write_batch(batch.select(MEMBERS.names).cast(MEMBERS))
    draws = sum(sum(stratum.draws) for stratum in planned.strata)
    return {
        "records": sum(min(stratum.records, sum(stratum.draws)) for stratum in planned.strata),
        "draws": draws,
        "epochs": round(draws / planned.pool, 4),
        "characters": characters,
        "phases": [sum(of_phase) for of_phase in zip(*(stratum.draws for stratum in planned.strata), strict=True)],
        "categories": [
            DrawnCategory(category=category, records=records, draws=sum(draws))
            for category, records, draws in planned.strata
            if planned.leaf.balance
        ],
    }


def count_tokens(
    connection: duckdb.DuckDBPyConnection, mixture: Mixture, manifest: MixtureManifest, encoder: str
) -> MixtureManifest:
    """Add estimated token counts for an encoder to the manifest. The rate of tokens per character comes from the
    first texts of each source.

    Raises:
        UserError: there is no such encoder.
    """
    tokenizer = load_tokenizer(encoder)
    leaves = {(leaf.corpus, leaf.split): leaf for leaf in mixture.leaves}
    sources = []
    for source in manifest.sources:
        leaf = leaves[source.corpus, source.split]
        with explained(connection, source_name(mixture, leaf), seconds=None):
            rows = connection.execute(text_sql(mixture, leaf, SAMPLE)).fetchall()
        texts = [text for row in rows for text in row]
        tokens = sum(len(encoding.ids) for encoding in tokenizer.encode(texts))
        rate = tokens / max(1, sum(map(len, texts)))
        sources.append(source.model_copy(update={"tokens": round(source.characters * rate)}))
    return manifest.model_copy(update={"sources": sources, "encoder": encoder})
