"""Find the records whose text occurs again, exactly or nearly, and the first record of each text and prompt.

The steps continue those of `near.py`:

    repeat     a partition of texts   `same`, exact leaks, and `repeated`, texts for the groups that have them
    look_up    a group of parts       `alike`, the records of `repeated` and `ends`
    gather     a partition of texts   `copies` and `contradictions`
"""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.audit.contradictions import contradictions, write_annotations
from pipelines.audit.exchange import Exchange
from pipelines.audit.same import ASKED, ID, place_of
from pipelines.store.storage import StorePath, parquet
from ubert.schema.record import RECORD_SCHEMA

# For each record whose text is in an evaluation split that ranks before its own: the first such record there.
_SAME = f"""
SELECT id, other, 1::FLOAT AS similarity
FROM records JOIN (
    SELECT text_hash, min(id) AS other FROM records WHERE id < '3' GROUP BY text_hash, {place_of("id")}
) USING (text_hash) WHERE other[1] < id[1]
"""
_REPEATED = """
SELECT DISTINCT content_hash, home
FROM records SEMI JOIN (SELECT content_hash FROM records GROUP BY ALL HAVING count(*) > 1) USING (content_hash)
"""
_CHOSEN = f"""
CREATE TABLE chosen AS
SELECT read.*, {ID} AS id, ({ASKED})::VARCHAR AS asked, repeated, near
FROM read JOIN (
    SELECT content_hash, bool_or(repeated) AS repeated, bool_or(NOT repeated) AS near
    FROM (SELECT content_hash, true AS repeated FROM repeated UNION ALL SELECT content_hash, false FROM ends)
    GROUP BY ALL
) USING (content_hash)
"""
_ANNOTATED = """
SELECT content_hash, id, asked, task::VARCHAR AS task, near, annotation
FROM chosen LEFT JOIN annotations USING (id)
"""
# Only the group of a text's first record knows that the text is near to another.
_FIRSTS = """
CREATE TABLE firsts AS SELECT content_hash, asked, min(id) AS first FROM alike GROUP BY ALL;
CREATE TABLE near_texts AS SELECT DISTINCT content_hash FROM alike WHERE near;
"""
_COPIES = """
SELECT id, first, asked, content_hash, content_hash IN (FROM near_texts) AS near
FROM alike JOIN firsts USING (content_hash, asked) WHERE id <> first OR content_hash IN (FROM near_texts)
"""


def find_copies(exchange: Exchange, parts: Sequence[StorePath]) -> dict[str, int]:
    """Write the relations `same` (id, other, similarity), `contradictions`, and `copies` (id, first, asked,
    content_hash, near): records that are not the first of their text and prompt, or whose text is near another.

    Returns:
        Counts: `records`, and `texts`, the distinct ones.

    Raises:
        UserError: a part of a corpus cannot be read.
    """
    counts = exchange.run_partitions(repeat, "partitions of texts")
    exchange.run(look_up, exchange.groups(parts), "similar records of parts")
    exchange.run_partitions(gather, "partitions of similar records")
    return {name: counts[name] for name in ("records", "texts")}


def repeat(exchange: Exchange, number: int) -> dict[str, int]:
    """Write `same` and `repeated` of a partition of `records`."""
    with exchange.opened(number, "records") as connection:
        exchange.write(connection, "same", number, _SAME)
        exchange.write(connection, "repeated", number, _REPEATED, "home")
        counted = "SELECT count(*), count(DISTINCT content_hash) FROM records"
        [(records, texts)] = connection.execute(counted).fetchall()
    return {"records": records, "texts": texts}


def look_up(exchange: Exchange, number: int, parts: Sequence[StorePath]) -> dict[str, int]:
    """Write `alike`, the similar records of a group of parts, with prompts and annotations."""
    with exchange.opened(number, "repeated", "ends") as connection:
        connection.register("read", parquet(parts, RECORD_SCHEMA))
        connection.execute(_CHOSEN)
        write_annotations(connection)
        exchange.write(connection, "alike", number, _ANNOTATED, exchange.by("content_hash"))
    return {}


def gather(exchange: Exchange, number: int) -> dict[str, int]:
    """Write `copies` and `contradictions` of a partition of `alike`."""
    with exchange.opened(number, "alike") as connection:
        connection.execute(_FIRSTS)
        exchange.write(connection, "copies", number, _COPIES)
        exchange.write(connection, "contradictions", number, contradictions(connection))
    return {}
