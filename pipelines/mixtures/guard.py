"""Find the records that a mixture must not draw: leaks, duplicates, held-out records and suspects.

A leak is a record whose text also occurs in a split that ranks before its own (test, validation, train), in any
corpus of the store. The task, categories and pair of the other record don't matter. Splits that the mixture
itself draws from don't count.

A duplicate has the text, pair and prompt (`ASKED` in `pipelines/audit/same.py`) of another record that the mixture
may draw. The first one in keeper order is kept. With `evidence: audited`, near duplicates and shared n-grams that
audits found count, too.

With `suspects: drop`, records that `ubert suspects` flagged are not drawn. If `suspects` is a number, that share
of them is drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.audit.evidence import DROPPED, SUSPECT_TASKS, SUSPECTS_OF, audit_of_all
from pipelines.audit.held_out import held_out
from pipelines.audit.same import ASKED, KEEPER_ORDER, TEXT_HASH, rank
from pipelines.progress import progress
from pipelines.store.store import Store
from pipelines.store.warehouse import connect
from ubert.schema.errors import UserError
from ubert.schema.specs.mixture import Mixture

PART = 1 << 25  # hashes in memory at a time
_OTHER = "other_id, other_corpus, other_split"
_EARLIER = f"{rank('other_split')} < {rank('split')}"
_LEAKS = f"""
    SELECT record_id, corpus, split, {_OTHER}, 'leak' AS reason, 'exact' AS kind, 0 AS place
    FROM pool JOIN evaluation USING (text_hash) WHERE {_EARLIER}
"""
_AUDITED_LEAKS = """
    UNION ALL
    SELECT record_id, corpus, split, evaluation_id, evaluation_corpus, evaluation_split, 'leak', kind, 1
    FROM leaks SEMI JOIN pool USING (record_id) WHERE kind = 'near' AND {outside}
    UNION ALL
    SELECT record_id, corpus, split, evaluation_id, evaluation_corpus, evaluation_split, 'leak', 'n-gram', 2
    FROM contamination SEMI JOIN pool USING (record_id) WHERE {outside}
"""
_DUPLICATES = f"""
    SELECT record_id, corpus, split, {_OTHER}, 'duplicate' AS reason, 'exact' AS kind, 3 AS place FROM (
        SELECT record_id, corpus, split, first_value(record_id) OVER same AS other_id,
               first_value(corpus) OVER same AS other_corpus, first_value(split) OVER same AS other_split
        FROM rest WINDOW same AS (PARTITION BY content_hash, asked ORDER BY {KEEPER_ORDER}))
    WHERE record_id <> other_id
"""
_AUDITED_DUPLICATES = """
    UNION ALL
    SELECT record_id, corpus, split, keeper_id, keeper_corpus, keeper_split, 'duplicate', kind, 4
    FROM duplicates SEMI JOIN rest USING (record_id)
    SEMI JOIN rest AS kept ON kept.record_id = keeper_id WHERE kind = 'near'
"""
_SUSPECTS = """
    SELECT DISTINCT ON (record_id) record_id, corpus, split, record_id AS other_id, corpus AS other_corpus,
           split AS other_split, 'suspect' AS reason, kind, 5 AS place
    FROM suspects WHERE {wrong} AND record_id IN (SELECT record_id FROM pool)
    ORDER BY record_id, score DESC, kind
"""
_NONE = f"""
    SELECT record_id, corpus, split, {_OTHER}, '' AS reason, '' AS kind, 0 AS place FROM pool, evaluation LIMIT 0
"""


def dropped(
    connection: duckdb.DuckDBPyConnection,
    store: Store,
    mixture: Mixture,
    matching: Mapping[str, tuple[str, int]],
    held: Mapping[str, str],
) -> pa.Table:
    """Return rows of `DROPPED`, one for each record that is not drawn.

    Args:
        matching: the SQL of each source's records (`FROM ... WHERE ...`) and their number, by name of the source.
        held: fingerprints of the held-out corpora, by name.

    Raises:
        UserError: there is a leak and the mixture refuses leaks, or an audit that it needs is missing.
    """
    if not mixture.guarded:
        return DROPPED.empty_table()
    never = DROPPED.empty_table()
    if held:
        with connect(store.root, versions=held) as others:
            never = held_out(connection, others, mixture, matching)
    if mixture.suspects != "keep":
        _check_suspects(store, mixture)
    if mixture.evidence == "audited":
        for audit in ("duplicates", "contamination"):
            audit_of_all(store, audit)
    with connect(store.root) as whole:
        connection.register("evaluation", whole.sql(evaluation_sql(mixture)).to_arrow_table())
    connection.register("never", never)
    connection.register("repeated", _repeated(connection, matching))
    connection.execute(
        "CREATE TEMP TABLE pool("
        "record_id VARCHAR, corpus VARCHAR, split VARCHAR, content_hash BLOB, text_hash BLOB, asked UHUGEINT)"
    )
    for records, _ in progress(matching.values(), len(matching), "guard"):
        connection.execute(f"INSERT INTO pool {pool_sql(mixture, records)}")
    rows = connection.sql(dropped_sql(mixture)).to_arrow_table().cast(DROPPED)
    rows = rows.filter(pc.invert(pc.is_in(rows.column("record_id"), never.column("record_id"))))
    connection.execute("DROP TABLE pool")
    leaks = rows.filter(pc.equal(rows.column("reason"), "leak"))
    if mixture.leaks == "refuse" and len(leaks):
        [one] = leaks.slice(0, 1).to_pylist()
        raise UserError(
            f"mixture {mixture.name}: {len(leaks)} records are in an evaluation split too, such as "
            f"{one['record_id']} ({one['kind']}: {one['kept_id']}); `leaks: drop` leaves them out, `leaks: allow` "
            "draws them"
        )
    return pa.concat_tables([never, rows])


def _check_suspects(store: Store, mixture: Mixture) -> None:
    """Check that suspects were computed for the current version of each corpus whose task can have suspects.

    Raises:
        UserError: no corpus has such a task; `ubert suspects` never ran for one, or ran for another version.
    """
    said = f"mixture {mixture.name}: suspects: {mixture.suspects}"
    learned = dict.fromkeys(leaf.corpus for leaf in mixture.leaves if leaf.split == "train")
    manifests = [store.current("corpora", corpus)[1] for corpus in learned]
    checked = [manifest for manifest in manifests if manifest.task in SUSPECT_TASKS]
    if not checked:
        raise UserError(
            f"{said}: `ubert suspects` checks training splits of the tasks {', '.join(SUSPECT_TASKS)}, and no "
            "source is one; remove `suspects`"
        )
    known = {name: audit.corpora for name, (_, audit) in store.currents("audits").items()}
    for manifest in checked:
        of_corpus = known.get(f"{SUSPECTS_OF}{manifest.name}", {})
        if of_corpus.get(manifest.name) != manifest.fingerprint:
            raise UserError(
                f"{said}: `ubert suspects` has not run for the current version of {manifest.name}; run `ubert "
                f"suspects {manifest.name}`, or set `suspects: keep`"
            )


def counts(rows: pa.Table) -> Counter[tuple[str, str, str]]:
    """Count rows by corpus, split and reason."""
    return Counter(zip(*(rows.column(name).to_pylist() for name in ("corpus", "split", "reason")), strict=True))


def _repeated(connection: duckdb.DuckDBPyConnection, matching: Mapping[str, tuple[str, int]]) -> pa.Table:
    """Return the hashes `h` of texts that occur in more than one record, over all sources together.

    The hashes are sorted in parts, so that at most about `PART` of them are in memory at a time.
    """
    parts = -(-sum(count for _, count in matching.values()) // PART)
    found = []
    for part in progress(range(parts), parts, "repeats"):
        hashes = [
            connection.sql(
                f"SELECT h FROM (SELECT hash(content_hash) AS h {records}) WHERE h % {parts} = {part}"
            ).fetchnumpy()["h"]
            for records, _ in matching.values()
        ]
        h = np.concatenate(hashes)
        h.sort()
        found.append(np.unique(h[1:][h[1:] == h[:-1]]))
    return pa.table({"h": np.concatenate(found)})


def evaluation_sql(mixture: Mixture) -> str:
    """Return the SQL of the evaluation records that a mixture must not leak: the first record of each text."""
    return (
        f"SELECT {TEXT_HASH} AS text_hash, record_id AS other_id, corpus::VARCHAR AS other_corpus,\n"
        "       split::VARCHAR AS other_split\n"
        f"FROM records WHERE split <> 'train' AND {_outside(mixture, 'corpus', 'split')}\n"
        f"QUALIFY row_number() OVER (PARTITION BY {TEXT_HASH} ORDER BY {KEEPER_ORDER}) = 1"
    )


def pool_sql(mixture: Mixture, records: str) -> str:
    """Return the SQL of rows of `pool`: records of a source that may be leaks or duplicates. Their text is in
    `repeated` or in `evaluation`, or an audit found them."""
    suspects = (
        f"(hash(content_hash) IN (FROM repeated) OR hash({TEXT_HASH}) IN (SELECT hash(text_hash) FROM evaluation))"
    )
    if mixture.evidence == "audited":
        found = (
            "FROM leaks UNION ALL SELECT record_id FROM contamination UNION ALL SELECT record_id FROM duplicates"
        )
        found += " UNION ALL SELECT keeper_id FROM duplicates"
        suspects = f"({suspects} OR record_id IN (SELECT record_id {found}))"
    if mixture.suspects != "keep":
        suspects = f"({suspects} OR record_id IN (SELECT record_id FROM suspects WHERE {_wrong(mixture)}))"
    return (
        f"SELECT record_id, corpus::VARCHAR AS corpus, split::VARCHAR AS split,\n"
        f"       content_hash, {TEXT_HASH} AS text_hash, {ASKED} AS asked\n"
        f"{records} AND {suspects}"
    )


def dropped_sql(mixture: Mixture) -> str:
    """Return the SQL that selects the dropped records from `pool`, `evaluation`, the views and `never`, which has
    the records that are held out."""
    audited = mixture.evidence == "audited"
    outside = _outside(mixture, "evaluation_corpus", "evaluation_split")
    leaks = _LEAKS + (_AUDITED_LEAKS.format(outside=outside) if audited else "")
    duplicates = _DUPLICATES + (_AUDITED_DUPLICATES if audited else "")
    suspected = suspects = trusted = ""
    drawable = " ANTI JOIN never USING (record_id)" if mixture.hold_out else ""
    if mixture.suspects != "keep":
        suspected = f"suspected AS ({_SUSPECTS.format(wrong=_wrong(mixture))}),\n"
        suspects = " UNION ALL FROM suspected"
        trusted = " ANTI JOIN suspected USING (record_id)"
    return (
        f"WITH leaking AS ({_NONE if mixture.leaks == 'allow' else leaks}),\n{suspected}"
        f"rest AS (FROM pool ANTI JOIN leaking USING (record_id){trusted}{drawable}),\n"
        f"repeating AS ({_NONE if mixture.duplicates == 'keep' else duplicates})\n"
        f"SELECT '{mixture.name}' AS mixture, record_id, corpus, split,\n"
        "       other_id AS kept_id, other_corpus AS kept_corpus, other_split AS kept_split, reason, kind\n"
        f"FROM (FROM leaking UNION ALL FROM repeating{suspects})\n"
        "QUALIFY row_number() OVER (\n"
        "    PARTITION BY record_id ORDER BY place, other_corpus, other_split, other_id) = 1\n"
        "ORDER BY corpus, split, record_id"
    )


def _wrong(mixture: Mixture) -> str:
    """Return the SQL condition of suspects that are not drawn: all flagged ones, or a pseudo-random share of them.
    MD5 gives the same result in every version of DuckDB."""
    if isinstance(mixture.suspects, str):
        return "flagged"
    drawn = f"('0x' || md5({mixture.seed} || '/' || record_id)[:8])::UBIGINT / 4294967296"
    return f"flagged AND {drawn} >= {mixture.suspects}"


def _outside(mixture: Mixture, corpus: str, split: str) -> str:
    """Return the SQL condition that excludes the splits that the mixture itself draws from."""
    drawn = ", ".join(f"('{source.corpus}', '{source.split}')" for source in mixture.leaves)
    return f"({corpus}, {split}) NOT IN ({drawn})"
