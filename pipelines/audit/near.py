"""Find pairs of near texts. Texts with an equal band of their signatures are candidates, and compared in full.

The steps of the search, each of which writes relations for later ones (`pipelines/audit/exchange.py`):

    sign       a group of parts      bands, and `records` for duplicates.py
    pair_up    a partition of bands  pairs of candidates, and the texts that are wanted to compare them
    send       a group of parts      these texts
    compare    a partition of pairs  near pairs, and `ends`, their texts, for the groups that have them

A row of a band has the id of the text's first record (`ID` in same.py), and `home`, the group of parts that has
this record.
"""

from __future__ import annotations

from collections.abc import Sequence

from duckdb.func import FunctionNullHandling

from pipelines.audit.exchange import Exchange, collect
from pipelines.audit.minhash import band_schema, signatures
from pipelines.audit.same import ID, TEXT_HASH
from pipelines.audit.shingles import jaccard, shingles
from pipelines.store.storage import StorePath, parquet
from ubert.schema.record import RECORD_SCHEMA

# Each text is compared with at most this number of texts of the same band, the first in keeper order. If thousands
# are alike, the keeper is among them, and the work stays linear.
COMPARED = 64

_BANDS = """
SELECT generate_subscripts(bands, 1)::UTINYINT AS band, unnest(bands) AS value, content_hash, id, home
FROM (SELECT content_hash, [{bands}] AS bands FROM signatures)
JOIN (SELECT content_hash, min(id) AS id, any_value(home) AS home FROM ids GROUP BY ALL) USING (content_hash)
"""
_PAIRS = f"""
CREATE TABLE texts AS
SELECT band, value, content_hash, min(id) AS id, arg_min(home, id) AS home
FROM bands SEMI JOIN (SELECT band, value FROM bands GROUP BY ALL HAVING count(*) > 1) USING (band, value)
GROUP BY ALL;

CREATE TABLE places AS
SELECT *, row_number() OVER (PARTITION BY band, value ORDER BY id) AS place FROM texts;

CREATE TABLE candidates AS
SELECT DISTINCT one.id AS a, other.id AS b, one.content_hash AS a_hash, other.content_hash AS b_hash,
       one.home AS a_home, other.home AS b_home
FROM places AS one JOIN places AS other USING (band, value)
WHERE one.place <= {COMPARED} AND one.place < other.place
"""
_LEFT_OUT = f"SELECT coalesce(sum(greatest(place - 1 - {COMPARED}, 0)), 0)::BIGINT FROM places"
_ENDS = (
    "SELECT DISTINCT unnest([a_hash, b_hash]) AS content_hash, unnest([a_home, b_home]) AS home{more} FROM {pairs}"
)
_TEXTS = """
SELECT content_hash, reader_of_pair, any_value(text) AS text, any_value(pair) AS pair
FROM records JOIN wanted USING (content_hash) GROUP BY ALL
"""
# Similarities are computed once for all rows, before they are filtered.
_COMPARED = """
CREATE TABLE pairs AS SELECT DISTINCT * FROM candidates;

CREATE TABLE compared AS
SELECT pairs.*, similarity(one.text, one.pair, other.text, other.pair) AS similarity
FROM pairs JOIN texts AS one ON one.content_hash = a_hash JOIN texts AS other ON other.content_hash = b_hash;

CREATE TABLE near AS
SELECT * REPLACE (similarity::FLOAT AS similarity) FROM compared WHERE similarity >= {threshold}::DOUBLE
"""


def find_near(exchange: Exchange, parts: Sequence[StorePath], threshold: float) -> dict[str, int]:
    """Write the relation `near` (a, b, a_hash, b_hash, a_home, b_home, similarity; a < b): the pairs of texts
    whose Jaccard similarity is at least `threshold`.

    Returns:
        Counts: `candidates`, pairs that were compared in full, and `left_out`, comparisons that were skipped
        because too many texts are alike.

    Raises:
        UserError: a part of a corpus cannot be read.
    """
    exchange.run(sign, [(*group, threshold) for group in exchange.groups(parts)], "signatures of parts")
    counts = exchange.run_partitions(pair_up, "partitions of bands")
    exchange.run(send, exchange.groups(parts), "texts of parts")
    compared = exchange.run_partitions(compare, "partitions of pairs", threshold)
    return {"candidates": compared["candidates"], "left_out": counts["left_out"]}


def sign(exchange: Exchange, number: int, parts: Sequence[StorePath], threshold: float) -> dict[str, int]:
    """Write `records`, a row for each record, and `bands`, a row for each band of each text."""
    with exchange.opened(number) as connection:
        tables = (signatures(part, threshold) for part in parts)
        collect(connection, "signatures", band_schema(threshold), tables)  # first, because it names a damaged part
        connection.register("read", parquet(parts, RECORD_SCHEMA))
        connection.execute(
            f"CREATE TABLE ids AS SELECT {TEXT_HASH} AS text_hash, content_hash, {ID} AS id, "
            f"{number}::USMALLINT AS home FROM read"
        )
        exchange.write(connection, "records", number, "FROM ids", exchange.by("text_hash"))
        bands = _BANDS.format(bands=", ".join(band_schema(threshold).names[1:]))
        exchange.write(connection, "bands", number, bands, exchange.by("value"))
    return {}


def pair_up(exchange: Exchange, number: int) -> dict[str, int]:
    """Write `candidates`, pairs of texts with an equal band, and `wanted`, their texts."""
    with exchange.opened(number, "bands") as connection:
        connection.execute(_PAIRS)
        # By the later text: a text may be the earlier one of very many pairs.
        reader = exchange.by("b_hash")
        exchange.write(connection, "candidates", number, "FROM candidates", reader)
        ends = _ENDS.format(pairs="candidates", more=f", ({reader})::USMALLINT AS reader_of_pair")
        exchange.write(connection, "wanted", number, ends, "home")
        return {"left_out": connection.execute(_LEFT_OUT).fetchall()[0][0]}


def send(exchange: Exchange, number: int, parts: Sequence[StorePath]) -> dict[str, int]:
    """Write `texts`, those of a group of parts that are wanted."""
    with exchange.opened(number, "wanted") as connection:
        connection.register("records", parquet(parts, RECORD_SCHEMA))
        exchange.write(connection, "texts", number, _TEXTS, "reader_of_pair")
    return {}


def compare(exchange: Exchange, number: int, threshold: float) -> dict[str, int]:
    """Write `near`, the candidates that are near enough, and `ends`, their texts."""
    with exchange.opened(number, "candidates", "texts") as connection:
        words, null = ["VARCHAR"] * 4, FunctionNullHandling.SPECIAL
        connection.create_function("similarity", _similarity, [*words], "DOUBLE", null_handling=null)
        connection.execute(_COMPARED.format(threshold=threshold))
        exchange.write(connection, "near", number, "FROM near")
        exchange.write(connection, "ends", number, _ENDS.format(pairs="near", more=""), "home")
        return {"candidates": connection.execute("SELECT count(*) FROM pairs").fetchall()[0][0]}


def _similarity(text: str, pair: str | None, other_text: str, other_pair: str | None) -> float:
    return jaccard(shingles(text, pair), shingles(other_text, other_pair))
