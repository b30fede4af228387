"""A mixture: which records, how often. Its YAML becomes SQL over the corpora; the draw is the same every time.

The records of a source are ordered by a key made of the seed and their stored key. A quota within their number
takes that many from the front; a larger one repeats all of them equally often, and those at the front once more.
Leaks and duplicates are left out first (`pipelines/guard.py`), and written down beside the members.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.guard import counts, dropped
from pipelines.mixture_sql import condition, count_sql, explain, members_sql, pool_sql, source_name
from pipelines.store import Store, atomic, now
from pipelines.warehouse import connect, explained
from ubert.schema.errors import UserError
from ubert.schema.licence import CLASSES, POLICIES, meets
from ubert.schema.manifest import (
    MANIFEST,
    CorpusManifest,
    MixtureManifest,
    RealisedSource,
    fingerprint,
    read_manifest,
)
from ubert.schema.mixture import Mixture, MixtureSource

MEMBERS = pa.schema(
    [
        pa.field("record_id", pa.string(), nullable=False),
        pa.field("corpus", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("copies", pa.int32(), nullable=False),
        pa.field("key", pa.uint64(), nullable=False),  # the draw key
    ]
)
_CLOCKS = ("current_time", "current_timestamp", "localtime", "localtimestamp")  # words of SQL, listed nowhere


def mix(mixture: Mixture, *, root: Path, dry_run: bool = False) -> MixtureManifest:
    """Draw a mixture; with `dry_run`, only say what would be drawn. What is drawn already is left as it is.

    Raises:
        UserError: a corpus is not ingested or its licence not allowed, a `where` is wrong or matches nothing,
            there is a leak and the mixture refuses them, or a quota cannot be met.
    """
    store = Store(root.absolute())
    current = {source.corpus: store.current("corpora", source.corpus)[1] for source in mixture.sources}
    _check_licences(mixture, current.values())
    corpora = {name: manifest.fingerprint for name, manifest in current.items()}
    with connect(store.root, corpora) as connection:
        available = [_count(connection, mixture, source) for source in mixture.sources]
        with explained(connection, f"mixture {mixture.name}"):
            drops = dropped(connection, store, mixture, pool_sql(mixture))
        mark = fingerprint(
            mixture.model_dump(mode="json", exclude={"description"}),
            corpora,
            explain(mixture),
            drops.column("record_id").to_pylist(),
            _audits_seen(store, mixture),
        )
        directory = store.directory("mixtures", mixture.name, mark)
        if (directory / MANIFEST).exists():
            manifest = read_manifest(MixtureManifest, directory)
            return manifest if dry_run else store.again("mixtures", manifest)
        manifest = _manifest(mixture, mark, corpora, available, drops)
        if not dry_run:
            connection.register("dropped", drops)
            with store.working_on("mixtures", mixture.name):
                if manifest.dropped:
                    with atomic(directory / "dropped.parquet") as path:
                        pq.write_table(drops, path, compression="zstd")
                _write(connection, manifest.sql, directory / "members.parquet")
                store.publish("mixtures", manifest)
    return manifest


def _audits_seen(store: Store, mixture: Mixture) -> list[str]:
    """Fingerprints of the audits that a `where` may have looked at."""
    if not any(source.where for source in mixture.sources):
        return []
    return [store.current("audits", name)[1].fingerprint for name in store.names("audits")]


def _manifest(
    mixture: Mixture, mark: str, corpora: Mapping[str, str], available: Sequence[int], drops: pa.Table
) -> MixtureManifest:
    """What is drawn, and how, given the records that match and those of them that are dropped."""
    fallen = counts(drops)
    lost = [
        {f"dropped_{reason}s": fallen[source.corpus, source.split, reason] for reason in ("leak", "duplicate")}
        for source in mixture.sources
    ]
    left = [n - sum(drop.values()) for n, drop in zip(available, lost, strict=True)]
    for source, n, drop, rest in zip(mixture.sources, available, lost, left, strict=True):
        if rest == 0:
            raise UserError(
                f"{source_name(mixture, source)}: of {n} records that match, {drop['dropped_leaks']} are dropped "
                f"as leaks and {drop['dropped_duplicates']} as duplicates, and none is left; remove the source, "
                "or say `leaks: allow` or `duplicates: keep`"
            )
    pools = [min(rest, source.cap or rest) for rest, source in zip(left, mixture.sources, strict=True)]
    draws = quotas(mixture, pools)
    return MixtureManifest(
        name=mixture.name,
        fingerprint=mark,
        created=now(),
        sql=members_sql(mixture, pools, draws),
        sources=[
            RealisedSource(
                corpus=source.corpus,
                split=source.split,
                corpus_fingerprint=corpora[source.corpus],
                available=n,
                **drop,
                records=min(pool, quota),
                draws=quota,
            )
            for source, n, drop, pool, quota in zip(mixture.sources, available, lost, pools, draws, strict=True)
        ],
    )


def _check_licences(mixture: Mixture, corpora: Iterable[CorpusManifest]) -> None:
    """Refuse corpora whose licence is not among those that the mixture names."""
    if not mixture.licences:
        return
    asked, known = ", ".join(mixture.licences), ", ".join([*POLICIES, *CLASSES])
    problems = [
        f"mixture {mixture.name}: the licence of {corpus.name} is {corpus.licence!r} ({corpus.licence_class}), "
        f"and `licences` asks for {asked}; remove the source, or add its licence or class to it ({known}); if "
        f"the class is wrong, correct `licence_class` in the spec of {corpus.name} and ingest it again"
        for corpus in corpora
        if not meets(corpus.licence, corpus.licence_class, mixture.licences)
    ]
    if problems:
        raise UserError("\n".join(problems))


def quotas(mixture: Mixture, pools: Sequence[int]) -> list[int]:
    """How often to draw from each source of which `pools[i]` records count: shares of `size` by largest remainder,
    ties to the first by name. Integers throughout, so that they are the same on every machine.

    Raises:
        UserError: a source would get no draw, or more than `max_copies` allows.
    """
    weights = [_weight(mixture, pool) for pool in pools]
    size, whole = mixture.size or sum(pools), sum(weights)
    shares = [divmod(size * weight, whole) for weight in weights]
    draws = [share for share, _ in shares]

    def by_remainder(i: int) -> tuple[int, str, str]:
        return -shares[i][1], mixture.sources[i].corpus, mixture.sources[i].split

    for i in sorted(range(len(draws)), key=by_remainder)[: size - sum(draws)]:
        draws[i] += 1
    for source, weight, pool, quota in zip(mixture.sources, weights, pools, draws, strict=True):
        where = f"{source_name(mixture, source)}: {quota} of {size} draws fall to its {pool} records"
        if quota == 0:
            raise UserError(f"{where}; raise `size` to {-(-whole // weight)} or more, or remove the source")
        most = pool * source.max_copies
        if quota > most:
            raise UserError(
                f"{where}, and {source.max_copies} copies of each give {most}; raise its `max_copies` to "
                f"{-(-quota // pool)}, or lower `size` to {most * whole // weight}"
            )
    return draws


def _weight(mixture: Mixture, pool: int) -> int:
    match mixture.policy:
        case "proportional":
            return pool
        case "equal":
            return 1
        case "temperature":
            return round(math.pow(pool, 1 / mixture.temperature) * (1 << 20))


def _count(connection: duckdb.DuckDBPyConnection, mixture: Mixture, source: MixtureSource) -> int:
    with explained(connection, f"{source_name(mixture, source)}: where"):
        _check_repeatable(connection, mixture, source)
        count = int(connection.execute(count_sql(mixture, source)).fetchall()[0][0])
    if count == 0:
        condition = f"`where: {source.where}` matches no record" if source.where else "the split has no record"
        raise UserError(f"{source_name(mixture, source)}: {condition}; correct it, or remove the source")
    return count


def _check_repeatable(connection: duckdb.DuckDBPyConnection, mixture: Mixture, source: MixtureSource) -> None:
    """Refuse what differs from call to call, such as random() and now()."""
    statement = f"SELECT {condition(mixture, source)}"
    tree = connection.execute("SELECT json_serialize_sql(?)", [statement]).fetchall()[0][0]
    names = set(re.findall(r'"(?:function_name":|column_names":\[)"(\w+)"', tree))
    found = connection.execute("SELECT function_name FROM duckdb_functions() WHERE stability <> 'CONSISTENT'")
    if varying := sorted(names & {*_CLOCKS, *(name for (name,) in found.fetchall())}):
        raise UserError(
            f"{source_name(mixture, source)}: where: {varying[0]} differs from call to call, and a mixture must "
            "not; the draw is random already: use `cap` or `size`"
        )


def _write(connection: duckdb.DuckDBPyConnection, statement: str, path: Path) -> None:
    with (
        explained(connection, "mixture"),
        atomic(path) as temporary,
        pq.ParquetWriter(temporary, MEMBERS, compression="zstd") as file,
    ):
        for batch in connection.sql(statement).to_arrow_reader():
            file.write_batch(batch.cast(MEMBERS))
