"""Compute the numbers of the report with SQL over the store's views.

Queries group only by columns with few values, so that their memory is limited to their groups.
"""

from __future__ import annotations

from typing import Any

from duckdb import DuckDBPyConnection

from pipelines.progress import progress
from pipelines.store.warehouse import explained
from ubert.schema.arrow import batch_to_records
from ubert.schema.record import Record

Row = dict[str, Any]
TOP = 12  # categories of one kind that are shown by name
BINS = 30  # bins of a histogram; values beyond the 99th percentile share the last one
STEPS = 25  # bins between the least and the greatest value of a regression

_CORPORA = """
SELECT corpus, min(task) AS task, min(language) AS language, min(licence) AS licence,
       min(fingerprint) AS fingerprint,
       (sum(kept) FILTER (split = 'train'))::BIGINT AS train,
       (sum(kept) FILTER (split = 'validation'))::BIGINT AS validation,
       (sum(kept) FILTER (split = 'test'))::BIGINT AS test,
       sum(kept)::BIGINT AS kept, sum(rejected)::BIGINT AS rejected
FROM corpora GROUP BY corpus ORDER BY corpus
"""
_GROUPS = """
SELECT aspect, name, count(DISTINCT corpus) AS corpora, sum(kept)::BIGINT AS kept,
       sum(rejected)::BIGINT AS rejected
FROM (UNPIVOT (SELECT corpus, task, split, language, licence, licence_class AS class, kept, rejected FROM corpora)
      ON task, split, language, licence, class INTO NAME aspect VALUE name)
GROUP BY aspect, name ORDER BY aspect, kept DESC, name
"""
# Integers for each record. Characters: of text and pair. Density: spans per 10,000 characters.
_PER_RECORD = """
SELECT corpus, unnest([
    {'measure': 'characters', 'n': characters}, {'measure': 'labels', 'n': labels},
    {'measure': 'spans', 'n': spans}, {'measure': 'density', 'n': 10000 * spans // characters},
    {'measure': 'relations', 'n': relations}, {'measure': 'events', 'n': events}], recursive := true)
FROM (SELECT corpus, greatest(1, length(text) + coalesce(length(pair), 0)) AS characters, len(labels) AS labels,
             len(spans) AS spans, len(relations) AS relations, len(events) AS events FROM records)
"""
_PER_SPAN = """
SELECT corpus, 'span length' AS measure, span."end" - span.start AS n
FROM (SELECT corpus, unnest(spans) AS span FROM records)
"""
# Quantiles are exact: the smallest value that is not exceeded by the given share of values.
_MEASURES = f"""
WITH counted AS MATERIALIZED (
    SELECT corpus, measure, n::BIGINT AS n, count(*) AS times FROM ({{values}}) GROUP BY ALL
), running AS (
    SELECT *, sum(times) OVER (PARTITION BY corpus, measure ORDER BY n) AS upto,
           sum(times) OVER (PARTITION BY corpus, measure) AS total
    FROM counted
), summary AS (
    SELECT corpus, measure, sum(times)::BIGINT AS items, sum(n * times)::BIGINT AS total,
           (sum(times) FILTER (n > 0))::BIGINT AS positive, min(n) AS least,
           min(n) FILTER (upto >= 0.05 * total) AS p5, min(n) FILTER (upto >= 0.25 * total) AS p25,
           min(n) FILTER (upto >= 0.5 * total) AS median, min(n) FILTER (upto >= 0.75 * total) AS p75,
           min(n) FILTER (upto >= 0.95 * total) AS p95, min(n) FILTER (upto >= 0.99 * total) AS p99,
           max(n) AS most, greatest(1, ceil((p99 + 1) / {BINS}))::BIGINT AS width
    FROM running GROUP BY corpus, measure
), binned AS (
    SELECT corpus, measure, least(n // width, p99 // width + 1) AS bin, sum(times)::BIGINT AS times
    FROM counted JOIN summary USING (corpus, measure) GROUP BY ALL
)
SELECT summary.*, bins FROM summary
JOIN (SELECT corpus, measure, list({{{{'bin': bin, 'times': times}}}} ORDER BY bin) AS bins
      FROM binned GROUP BY corpus, measure) USING (corpus, measure)
ORDER BY corpus, measure
"""
_VALUES = f"""
WITH ends AS (SELECT corpus, min(value) AS least, max(value) AS most FROM records
              WHERE value IS NOT NULL GROUP BY corpus)
SELECT corpus, min(least) AS least, max(most) AS most, bin, count(*) AS times
FROM (SELECT corpus, least, most,
             coalesce(round({STEPS} * (value - least) / nullif(most - least, 0)), 0)::INTEGER AS bin
      FROM records JOIN ends USING (corpus) WHERE value IS NOT NULL)
GROUP BY corpus, bin ORDER BY corpus, bin
"""
# Questions and options differ between records. So for qa the query counts whether there is an answer, and for
# choice the position of the answer. One query reads the categories only once, because reading them is slow.
_CATEGORIES = f"""
WITH used AS (SELECT corpus, unnest(flatten([
    CASE task
        WHEN 'qa' THEN [{{'kind': 'answer', 'category': if(len(spans) > 0, 'in the text', 'none')}}]
        WHEN 'choice' THEN [{{'kind': 'answer', 'category': 'option ' || (label + 1)}} FOR label IN labels]
        ELSE [{{'kind': 'label', 'category': categories[label + 1].name}} FOR label IN labels] || [
              {{'kind': 'span', 'category': categories[span.category + 1].name}}
              FOR span IN spans IF span.category IS NOT NULL] END,
    [{{'kind': 'relation', 'category': categories[relation.category + 1].name}} FOR relation IN relations],
    [{{'kind': 'event', 'category': categories[event.category + 1].name}} FOR event IN events],
    [{{'kind': 'role', 'category': categories[argument.role + 1].name}}
     FOR argument IN flatten([event.arguments FOR event IN events])]
]), recursive := true) FROM records
), counted AS (
    SELECT corpus, kind, category, count(*) AS times,
           row_number() OVER (PARTITION BY corpus, kind ORDER BY times DESC, category) AS place
    FROM used GROUP BY corpus, kind, category
)
SELECT corpus, kind, name, count(*) AS members, sum(times)::BIGINT AS times
FROM (SELECT *, if(place <= {TOP}, category, NULL) AS name FROM counted) GROUP BY corpus, kind, name
ORDER BY corpus, kind, name IS NULL, times DESC, name
"""
_REJECTS = """
SELECT corpus, split, reason, count(*) AS times, min({path: path, line: line, detail: detail[:300]}) AS first
FROM rejects GROUP BY corpus, split, reason ORDER BY corpus, times DESC, split, reason
"""
# Mentions whose words were not at their offsets: they were moved to their words, or rejected.
_MISMATCHES = """
SELECT corpus, split, kind, count(found) AS moved, count(*) - count(found) AS lost,
       min({path: path, line: line, words: words[:200]}) AS first
FROM mismatches GROUP BY corpus, split, kind ORDER BY corpus, split, kind
"""
_MATCHES = """
SELECT 'duplicates' AS what, corpus, split, keeper_corpus AS other_corpus, keeper_split AS other_split, kind,
       count(*) AS times FROM duplicates GROUP BY ALL
UNION ALL SELECT 'contradictions', corpus, split, keeper_corpus, keeper_split, differs, count(*)
    FROM contradictions GROUP BY ALL
UNION ALL SELECT 'leaks', corpus, split, evaluation_corpus, evaluation_split, kind, count(*)
    FROM leaks GROUP BY ALL
UNION ALL SELECT 'contamination', corpus, split, evaluation_corpus, evaluation_split, 'n-gram', count(*)
    FROM contamination GROUP BY ALL
ORDER BY what, times DESC, corpus, split, other_corpus, other_split, kind
"""
# Without an audit: texts that are equal except for case, width and white space. The keeper is the first by corpus
# and split.
_EXACT = """
WITH repeated AS (SELECT content_hash, min({corpus: corpus::VARCHAR, split: split::VARCHAR}) AS keeper
                  FROM records GROUP BY content_hash HAVING count(*) > 1),
copies AS (SELECT records.corpus, records.split, keeper, count(*) AS times
           FROM records JOIN repeated USING (content_hash) GROUP BY ALL),
kept AS (SELECT keeper, count(*) AS times FROM repeated GROUP BY keeper)
SELECT 'duplicates' AS what, copies.corpus, copies.split, keeper.corpus AS other_corpus,
       keeper.split AS other_split, 'exact' AS kind,
       copies.times - if(copies.corpus = keeper.corpus AND copies.split = keeper.split, kept.times, 0) AS times
FROM copies JOIN kept USING (keeper)
WHERE copies.times > kept.times OR copies.corpus <> keeper.corpus OR copies.split <> keeper.split
ORDER BY times DESC, copies.corpus, copies.split, other_corpus, other_split
"""
_SUSPECTS = """
SELECT corpus, rank, record_id, kind, said, predicted, confidence, flagged, records.text, suspects.source,
       count(*) FILTER (flagged) OVER same AS all_flagged, count(*) OVER same AS times
FROM suspects JOIN records USING (corpus, record_id) WINDOW same AS (PARTITION BY corpus)
QUALIFY rank <= 5 ORDER BY corpus, rank, score DESC, kind
"""
_AFFINITY = """
SELECT mixture, corpus, added, cluster, avg(change) AS change, count(*) AS seeds
FROM affinity GROUP BY ALL ORDER BY mixture, cluster, added, corpus
"""
_MIXTURES = """
SELECT mixture, corpus, split, available,
       dropped_leaks + dropped_duplicates + dropped_held_out + dropped_suspects AS dropped, records, draws,
       draws / records AS epochs, draws / sum(draws) OVER (PARTITION BY mixture) AS share
FROM mixtures ORDER BY mixture, draws DESC, corpus, split
"""

_FIRST = """
SELECT corpus, min(key, {count}) FILTER (annotated) AS annotated, min(key, {count}) AS all
FROM (SELECT corpus, key, len(labels) + len(spans) + len(relations) + len(events) > 0 AS annotated FROM records)
GROUP BY corpus ORDER BY corpus
"""
_CHOSEN = "SELECT * FROM records WHERE key IN (SELECT unnest(?)) ORDER BY corpus, key, record_id"


def numbers(connection: DuckDBPyConnection) -> dict[str, list[Row]]:
    """Return the rows of all queries, by the name of the query. Rare categories share one row, whose name is None
    and which has their number in `members`.

    Raises:
        UserError: a query takes too long or too much memory.
    """
    queries = {
        "corpora": _CORPORA,
        "groups": _GROUPS,
        "measures": _MEASURES.format(values=_PER_RECORD),
        "span lengths": _MEASURES.format(values=_PER_SPAN),
        "values": _VALUES,
        "categories": _CATEGORIES,
        "rejects": _REJECTS,
        "mismatches": _MISMATCHES,
        "matches": _MATCHES,
        "suspects": _SUSPECTS,
        "affinity": _AFFINITY,
        "mixtures": _MIXTURES,
    }
    found = {
        name: _rows(connection, name, query) for name, query in progress(queries.items(), len(queries), "count")
    }
    if not any(row["what"] == "duplicates" for row in found["matches"]):
        found["matches"] += _rows(connection, "duplicates", _EXACT)
    return found


def records(connection: DuckDBPyConnection, count: int) -> dict[str, list[Record]]:
    """Return the first `count` records of each corpus by sampling key, preferring those with annotations."""
    keys = [
        key
        for row in _rows(connection, "records", _FIRST.format(count=count))
        for key in list(dict.fromkeys((row["annotated"] or []) + row["all"]))[:count]
    ]
    with explained(connection, "report: records"):
        chosen = connection.sql(_CHOSEN, params=[keys]).to_arrow_table()
    found: dict[str, list[Record]] = {}
    for record in batch_to_records(chosen):
        found.setdefault(record.corpus, []).append(record)
    return found


def _rows(connection: DuckDBPyConnection, name: str, query: str) -> list[Row]:
    with explained(connection, f"report: {name}"):
        rows: list[Row] = connection.sql(query).to_arrow_table().to_pylist()
    return rows
