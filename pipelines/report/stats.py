"""Summarise the store in tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from pipelines.sources.places import REJECT_PLACE
from pipelines.specs import readable_specs
from pipelines.store.storage import StorePath
from pipelines.store.warehouse import sql

EMPTY = "the store has no corpus yet; make one with `ubert ingest NAME`, or name another --root"

# Each table fits a terminal of 80 characters.
_RECORDS = """
SELECT corpus, task, (sum(kept) FILTER (split = 'train'))::BIGINT AS train,
       (sum(kept) FILTER (split = 'validation'))::BIGINT AS validation,
       (sum(kept) FILTER (split = 'test'))::BIGINT AS test, sum(rejected)::BIGINT AS rejected
FROM corpora GROUP BY corpus, task ORDER BY corpus
"""
_LICENCES = """
SELECT licence, language, count(DISTINCT corpus) AS corpora, sum(kept)::BIGINT AS kept
FROM corpora GROUP BY licence, language ORDER BY kept DESC, licence, language
"""
_ANNOTATIONS = """
SELECT corpus, max(len(categories)) AS categories, sum(len(labels))::BIGINT AS labels,
       sum(len(spans))::BIGINT AS spans, sum(len(relations))::BIGINT AS relations,
       sum(len(events))::BIGINT AS events
FROM records GROUP BY corpus ORDER BY corpus
"""
# Lengths are in characters. Repeated: records whose text equals an earlier one of the corpus, except for case,
# width and white space.
_TEXTS = """
SELECT corpus, min(length(text)) AS shortest, quantile_disc(length(text), 0.5) AS median,
       round(avg(length(text)), 1) AS mean, max(length(text)) AS longest,
       count(*) - count(DISTINCT content_hash) AS repeated
FROM records GROUP BY corpus ORDER BY corpus
"""
_REJECTS = f"""
SELECT corpus, split, reason, count(*) AS rows,
       arg_min({REJECT_PLACE}, {{path: path, line: line}}) AS first
FROM rejects GROUP BY corpus, split, reason ORDER BY corpus, rows DESC, split, reason
"""
_PLACED = """
SELECT *, row_number() OVER (PARTITION BY split, reason ORDER BY path, line) AS place FROM rejects
"""
_INGESTED = """
SELECT corpus, task, language, licence, sum(kept)::BIGINT AS kept, sum(rejected)::BIGINT AS rejected
FROM corpora GROUP BY ALL ORDER BY corpus
"""
_SPECS = pa.schema(
    {
        **dict.fromkeys(("corpus", "task", "language", "licence"), pa.string()),
        **dict.fromkeys(("kept", "rejected"), pa.int64()),
    }
)


def overview(root: StorePath) -> dict[str, pa.Table]:
    """Return tables by title, with a row for each corpus, each licence and language, or each reason of rejects."""
    queries = {
        "records": _RECORDS,
        "annotations": _ANNOTATIONS,
        "texts": _TEXTS,
        "licences": _LICENCES,
        "rejects": _REJECTS,
    }
    return {title: sql(root, query) for title, query in queries.items()}


def rejected(root: StorePath, corpus: str, limit: int) -> tuple[pa.Table, pa.Table]:
    """Return the reasons of a corpus's rejects, and the first `limit` rows of each. They come from its last
    ingest, even if that was not published.

    Raises:
        UserError: there is no such corpus.
    """
    rows = f"SELECT * EXCLUDE (place) FROM ({_PLACED}) WHERE place <= {limit} ORDER BY split, reason, place"
    return sql(root, _REJECTS, [corpus], attempted=True), sql(root, rows, [corpus], attempted=True)


def catalogue(root: StorePath, specs: Path) -> tuple[pa.Table, list[str]]:
    """Return one row for each spec with the counts of its corpus, which are null if it is not ingested, and then
    one for each corpus without a spec. Also return the errors of specs."""
    ingested = {row["corpus"]: row for row in sql(root, _INGESTED).to_pylist()}
    described, problems = readable_specs(specs)
    rows = [
        ingested.pop(spec.name, {})
        | {"corpus": spec.name, **spec.model_dump(include={"task", "language", "licence"})}
        for spec in described
    ]
    rows += ingested.values()
    return pa.Table.from_pylist(rows, schema=_SPECS), problems
