"""The store at a glance, as tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from pipelines.place import Place
from pipelines.specs import dataset_names, dataset_spec
from pipelines.warehouse import sql

_SOURCES = """
SELECT corpus, split, task, language, licence, source_records AS rows, kept, rejected
FROM corpora ORDER BY corpus, split
"""
# Lengths are in characters. Duplicates have the same text but for case, width and white space.
_CONTENT = """
SELECT corpus, split, max(len(categories)) AS categories, sum(len(labels)) AS labels, sum(len(spans)) AS spans,
       sum(len(relations)) AS relations, sum(len(events)) AS events, round(avg(length(text)), 1) AS mean_length,
       max(length(text)) AS longest, count(*) - count(DISTINCT content_hash) AS duplicates
FROM records GROUP BY corpus, split ORDER BY corpus, split
"""
_REJECTS = """
SELECT corpus, split, reason, count(*) AS rows, arg_min(detail, line) AS example
FROM rejects GROUP BY corpus, split, reason ORDER BY corpus, split, rows DESC, reason
"""
_PLACED = """
SELECT *, row_number() OVER (PARTITION BY split, reason ORDER BY path, line) AS place FROM rejects
"""
_INGESTED = """
SELECT corpus, fingerprint, sum(kept) AS kept, sum(rejected) AS rejected
FROM corpora GROUP BY corpus, fingerprint
"""
_SPECS = pa.schema(
    {
        **dict.fromkeys(("corpus", "task", "language", "licence", "fingerprint"), pa.string()),
        **dict.fromkeys(("kept", "rejected"), pa.int64()),
    }
)


def overview(root: Place) -> dict[str, pa.Table]:
    """Tables `sources` and `content`, with a row for each corpus and split, and `rejects`, by reason too."""
    return {"sources": sql(root, _SOURCES), "content": sql(root, _CONTENT), "rejects": sql(root, _REJECTS)}


def refused(root: Place, corpus: str, limit: int) -> tuple[pa.Table, pa.Table]:
    """The reasons why rows of a corpus were refused, and the first `limit` rows of each.

    Raises:
        UserError: there is no such corpus.
    """
    rows = f"SELECT * EXCLUDE (place) FROM ({_PLACED}) WHERE place <= {limit} ORDER BY split, reason, place"
    return sql(root, _REJECTS, [corpus]), sql(root, rows, [corpus])


def catalogue(root: Place, specs: Path) -> pa.Table:
    """All specs and what is ingested of them: one row a spec; counts are null where nothing is.

    Raises:
        UserError: a spec is wrong.
    """
    found = {row["corpus"]: row for row in sql(root, _INGESTED).to_pylist()}
    described = [dataset_spec(name, specs) for name in dataset_names(specs)]
    rows = [
        {
            "corpus": spec.name,
            **spec.model_dump(include={"task", "language", "licence"}),
            **found.get(spec.name, {}),
        }
        for spec in described
    ]
    return pa.Table.from_pylist(rows, schema=_SPECS)
