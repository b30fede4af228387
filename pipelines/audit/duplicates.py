"""Find duplicates within and across corpora and splits, with one row of evidence for each match.

First, distinct texts (text and pair) are compared, then records. A duplicate has the same or nearly the same text
as its keeper, and the same prompt (`pipelines/audit/same.py`). The keeper is the first one by split (test,
validation, train), corpus and record_id.

Matches are stars, not chains: each duplicate is itself near enough to its keeper, and no keeper is a duplicate. So
each row of evidence is valid on its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from pipelines.audit.audited import audited
from pipelines.audit.copies import find_copies
from pipelines.audit.evidence import CONTRADICTIONS, DUPLICATES, LEAKS
from pipelines.audit.exchange import HEAD, ROWS, Exchange, database, exchange, write
from pipelines.audit.near import find_near
from pipelines.audit.same import named, place_of
from pipelines.ray_tasks import session
from pipelines.store.storage import StorePath, parquet
from pipelines.store.store import Store
from ubert.schema.errors import UserError
from ubert.schema.manifest import AuditManifest

# The first records of near texts, numbered in keeper order, and their pairs.
_FIRSTS = """
CREATE TABLE firsts AS
SELECT content_hash, asked, first, row_number() OVER (ORDER BY first) - 1 AS number
FROM (SELECT DISTINCT content_hash, asked, first FROM copies WHERE near)
"""
_NEAR_FIRSTS = """
SELECT least(one.number, other.number) AS earlier, greatest(one.number, other.number) AS later, similarity
FROM near JOIN firsts AS one ON one.content_hash = a_hash
JOIN firsts AS other ON other.content_hash = b_hash AND other.asked = one.asked
ORDER BY later, similarity DESC, earlier
"""
_STARS = pa.schema([("later", pa.int64()), ("keeper", pa.int64()), ("similarity", pa.float32())])
_MATCHES = """
CREATE TABLE matches AS
SELECT id, coalesce(keeper, copies.first) AS keeper, if(keeper IS NULL, 'exact', 'near') AS kind,
       coalesce(similarity, 1)::FLOAT AS similarity
FROM copies LEFT JOIN (
    SELECT one.first, other.first AS keeper, similarity
    FROM stars JOIN firsts AS one ON one.number = later JOIN firsts AS other ON other.number = stars.keeper
) AS star ON star.first = copies.first
WHERE id <> coalesce(keeper, copies.first)
"""
_MATCHED = f"SELECT {named('id')}, {named('keeper', 'keeper')}, kind, similarity FROM matches ORDER BY id"
# For each record whose text is in an evaluation split that ranks before its own: the nearest record of that split.
_LEAKS = f"""
WITH nearest AS (
    SELECT content_hash, min(id) AS other FROM copies WHERE near AND id < '3'
    GROUP BY content_hash, {place_of("id")}),
pairs AS (SELECT a_hash, b_hash, similarity FROM near UNION ALL SELECT b_hash, a_hash, similarity FROM near),
found AS (
    SELECT id, other, true AS exact, similarity FROM same
    UNION ALL
    SELECT id, other, false, similarity
    FROM copies JOIN pairs ON a_hash = copies.content_hash JOIN nearest ON nearest.content_hash = b_hash)
SELECT {named("id")}, {named("other", "evaluation")}, if(exact, 'exact', 'near') AS kind, similarity
FROM found WHERE other[1] < id[1]
QUALIFY row_number() OVER (
    PARTITION BY id, {place_of("other")} ORDER BY exact DESC, similarity DESC, other) = 1
ORDER BY id, other
"""
_CONTRADICTIONS = f"SELECT {', '.join(CONTRADICTIONS.names)} FROM contradictions ORDER BY id"
_EVIDENCE = {
    "matches": (_MATCHED, DUPLICATES),
    "leaks": (_LEAKS, LEAKS),
    "contradictions": (_CONTRADICTIONS, CONTRADICTIONS),
}


def duplicates(
    names: Sequence[str] = (), *, root: StorePath, near: float = 0.8, address: str | None = None
) -> AuditManifest:
    """Find duplicates, leaks and contradictions among corpora. An existing audit of the same versions is reused.

    Args:
        names: the corpora; default: all of the store.
        near: least Jaccard similarity of shingles (`pipelines/audit/shingles.py`) of near texts, 0.3 to 1.

    Raises:
        UserError: a corpus is not in the store, the store has no corpus, or it cannot be written.
    """
    if not 0.3 <= near <= 1:
        raise UserError(f"--near {near:g}: expected a similarity from 0.3 to 1")
    store = Store(root.absolute())
    current = {name: store.current("corpora", name) for name in sorted({*names})} or store.currents("corpora")
    if not current:
        raise UserError(f"{store.root}: no corpus in the store; run `ubert ingest` first")
    corpora = {name: manifest.fingerprint for name, (_, manifest) in current.items()}
    parts = [place / part for place, manifest in current.values() for part in manifest.parts]
    manifests = [manifest for _, manifest in current.values()]

    def search(directory: StorePath) -> dict[str, int]:
        with session(address), exchange(directory, manifests) as between:
            compared = find_near(between, parts, near)
            return {**find_copies(between, parts), **compared, **_write_evidence(between, directory)}

    return audited(store, "duplicates", corpora, {"near": near}, search, module=__name__)


def _write_evidence(exchange: Exchange, directory: StorePath) -> dict[str, int]:
    """Join what the tasks found to evidence, in a DuckDB on disk, and write it in order. Return its counts."""
    with database(HEAD) as (connection, scratch):
        for relation in ("near", "copies", "same", "contradictions"):
            exchange.load(connection, relation)
        connection.execute(_FIRSTS)
        [(firsts,)] = connection.execute("SELECT count(*) FROM firsts").fetchall()
        write(_stars(connection.sql(_NEAR_FIRSTS).to_arrow_reader(), firsts), _STARS, scratch / "stars.parquet")
        connection.register("stars", parquet([scratch / "stars.parquet"], _STARS))
        connection.execute(_MATCHES)
        kinds = dict(connection.execute("SELECT kind, count(*) FROM matches GROUP BY kind").fetchall())
        counts = {kind: kinds.get(kind, 0) for kind in ("exact", "near")}
        for name, (query, schema) in _EVIDENCE.items():
            rows = connection.sql(query).to_arrow_reader(ROWS)
            counts[name] = write(rows, schema, directory / f"{name}.parquet")
        return {kind: counts[kind] for kind in ("exact", "near", "leaks", "contradictions")}


def _stars(pairs: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """Yield the near duplicates among `size` first records, each with the nearest earlier one that is not a
    duplicate. It needs one byte of memory for each first record.

    Args:
        pairs: (earlier, later, similarity), sorted by later and then by descending similarity.
    """
    fallen = bytearray(size)
    for batch in pairs:
        found = []
        for earlier, later, similarity in zip(*map(pa.Array.to_pylist, batch.columns), strict=True):
            if not fallen[later] and not fallen[earlier]:
                fallen[later] = True
                found.append((later, earlier, similarity))
        columns = zip(*found, strict=True) if found else ([], [], [])
        yield pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, _STARS, strict=True)], _STARS)
