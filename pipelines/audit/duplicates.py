"""Find duplicates within and across corpora and splits, with one row of evidence for each match.

First, distinct texts (text and pair) are compared, then records. A duplicate has the same or nearly the same text
as its keeper, and the same prompt (`pipelines/audit/same.py`). The keeper is the first one by split (test,
validation, train), corpus and record_id.

Matches are stars, not chains: each duplicate is itself near enough to its keeper, and no keeper is a duplicate. So
each row of evidence is valid on its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines.audit.audited import Found, audited
from pipelines.audit.contradictions import contradictions
from pipelines.audit.evidence import DUPLICATES, LEAKS
from pipelines.audit.near import find_near
from pipelines.audit.same import ASKED, KEEPER_ORDER, TEXT_HASH, rank
from pipelines.store.storage import Place
from pipelines.store.store import Store
from pipelines.store.warehouse import connect, explained
from ubert.schema.errors import UserError
from ubert.schema.manifest import AuditManifest

SECONDS = 24 * 3600.0  # a longer audit is interrupted

# Records are numbered in keeper order. The id of a text is the number of its first record.
_NUMBERED = f"""
CREATE TABLE numbered AS
SELECT row_number() OVER (ORDER BY {KEEPER_ORDER})::UINTEGER AS id,
       record_id, corpus, split, content_hash, text_hash
FROM (SELECT record_id, corpus::VARCHAR AS corpus, split::VARCHAR AS split, content_hash, {TEXT_HASH} AS text_hash
      FROM records);

CREATE TABLE contents AS
SELECT content_hash, min(id) AS id, count(*) AS copies FROM numbered GROUP BY content_hash;
"""
# Records whose text occurs again, exactly or nearly. `first` is the first record of the same text and prompt.
_ALIKE = f"""
CREATE TABLE alike AS
SELECT id, record_id, text_id, asked, min(id) OVER (PARTITION BY text_id, asked) AS first
FROM (
    SELECT id, record_id, text_id, {ASKED} AS asked
    FROM records JOIN (
        SELECT numbered.id, record_id, contents.id AS text_id FROM numbered JOIN contents USING (content_hash)
        WHERE copies > 1 OR contents.id IN (SELECT a FROM near UNION SELECT b FROM near)
    ) USING (record_id)
)
"""
_NEAR_FIRSTS = """
WITH firsts AS (SELECT DISTINCT text_id, asked, first FROM alike)
SELECT least(one.first, other.first), greatest(one.first, other.first) AS later, similarity
FROM near JOIN firsts AS one ON one.text_id = a
JOIN firsts AS other ON other.text_id = b AND other.asked = one.asked
ORDER BY later, similarity DESC, 1
"""
_MATCHES = """
SELECT one.record_id, one.corpus, one.split,
       keeper.record_id AS keeper_id, keeper.corpus AS keeper_corpus, keeper.split AS keeper_split,
       if(star.later IS NULL, 'exact', 'near') AS kind, coalesce(star.similarity, 1)::FLOAT AS similarity
FROM alike LEFT JOIN stars AS star ON star.later = alike.first
JOIN numbered AS one USING (id) JOIN numbered AS keeper ON keeper.id = coalesce(star.keeper, alike.first)
WHERE alike.id <> keeper.id ORDER BY one.id
"""
# For each record whose text is in an evaluation split that ranks before its own: the nearest record of that split.
_LEAKS = f"""
WITH same AS (
    SELECT text_hash, corpus, split, min(id) AS id FROM numbered WHERE split <> 'train' GROUP BY ALL),
nearest AS (
    SELECT text_id, corpus, split, min(id) AS id FROM alike JOIN numbered USING (id)
    WHERE split <> 'train' GROUP BY ALL),
pairs AS (SELECT a, b, similarity FROM near UNION ALL SELECT b, a, similarity FROM near),
found AS (
    SELECT numbered.id, same.id AS evaluation, true AS exact, 1 AS similarity
    FROM numbered JOIN same USING (text_hash)
    UNION ALL
    SELECT alike.id, nearest.id, false, similarity
    FROM alike JOIN pairs ON a = alike.text_id JOIN nearest ON nearest.text_id = b)
SELECT one.record_id, one.corpus, one.split,
       other.record_id AS evaluation_id, other.corpus AS evaluation_corpus, other.split AS evaluation_split,
       if(exact, 'exact', 'near') AS kind, similarity::FLOAT AS similarity
FROM found JOIN numbered AS one USING (id) JOIN numbered AS other ON other.id = evaluation
WHERE {rank("other.split")} < {rank("one.split")}
QUALIFY row_number() OVER (
    PARTITION BY one.id, other.corpus, other.split ORDER BY exact DESC, similarity DESC, other.id) = 1
ORDER BY one.id, other.id
"""


def duplicates(
    names: Sequence[str] = (), *, root: Place, near: float = 0.8, address: str | None = None
) -> AuditManifest:
    """Find duplicates, leaks and contradictions among corpora. An existing audit of the same versions is reused.

    Args:
        names: the corpora; default: all of the store.
        near: least Jaccard similarity of shingles (`pipelines/audit/shingles.py`) of near texts, 0.3 to 1.

    Raises:
        UserError: a corpus is not in the store, or there is none; the store cannot be written.
    """
    if not 0.3 <= near <= 1:
        raise UserError(f"--near {near:g}: expected a similarity from 0.3 to 1")
    store = Store(root.absolute())
    chosen = sorted({*names} or store.names("corpora"))
    if not chosen:
        raise UserError(f"{store.root}: no corpus in the store; run `ubert ingest` first")
    current = {name: store.current("corpora", name) for name in chosen}
    corpora = {name: manifest.fingerprint for name, (_, manifest) in current.items()}
    parts = [place / part for place, manifest in current.values() for part in manifest.parts]

    def search() -> Found:
        with (
            tempfile.TemporaryDirectory(prefix="ubert-") as folder,
            connect(store.root, chosen, Path(folder)) as connection,
            explained(connection, "duplicates", SECONDS),
        ):
            counts = _compare(connection, parts, near, Path(folder), address)
            tables = {
                "matches": connection.sql(_MATCHES).to_arrow_table().cast(DUPLICATES),
                "leaks": connection.sql(_LEAKS).to_arrow_table().cast(LEAKS),
                "contradictions": contradictions(connection, Path(folder)),
            }
        kinds = tables["matches"].column("kind").to_pylist()
        counts |= {kind: kinds.count(kind) for kind in ("exact", "near")}
        return tables, counts | {name: len(tables[name]) for name in ("leaks", "contradictions")}

    return audited(store, "duplicates", corpora, {"near": near}, search)


def _compare(
    connection: duckdb.DuckDBPyConnection, parts: list[Place], near: float, scratch: Path, address: str | None
) -> dict[str, int]:
    """Create the tables of similar records: `numbered`, `contents`, `near`, `alike` and `stars`."""
    connection.execute(_NUMBERED)
    [(records,)] = connection.execute("SELECT count(*) FROM numbered").fetchall()
    [(texts,)] = connection.execute("SELECT count(*) FROM contents").fetchall()
    compared = find_near(connection, parts, near, scratch, address)
    connection.execute(_ALIKE)
    connection.register("stars", _stars(connection.sql(_NEAR_FIRSTS).to_arrow_reader()))
    return {"records": records, "texts": texts, **compared}


def _stars(pairs: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return the near duplicates among first records, each with the nearest earlier one that is no duplicate.

    Args:
        pairs: (earlier, later, similarity), sorted by later and then by descending similarity.
    """
    found: dict[int, tuple[int, float]] = {}
    for batch in pairs:
        for one, later, similarity in zip(*map(pa.Array.to_pylist, batch.columns), strict=True):
            if later not in found and one not in found:
                found[later] = one, similarity
    keepers, similarities = zip(*found.values(), strict=True) if found else ((), ())
    schema = pa.schema([("later", pa.uint32()), ("keeper", pa.uint32()), ("similarity", pa.float32())])
    return pa.table([list(found), list(keepers), list(similarities)], schema=schema)
