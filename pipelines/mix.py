"""A mixture: which records, how often. Its YAML becomes SQL over the corpora; the draw is the same every time.

The records of a source are ordered by a key made of the seed and their stored key. A quota within their number
takes that many from the front; a larger one repeats all of them equally often, and those at the front once more.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3

from pipelines.place import Place
from pipelines.store import Store, atomic, now
from pipelines.warehouse import connect, explained
from ubert.schema.errors import UserError
from ubert.schema.manifest import MANIFEST, MixtureManifest, RealisedSource, fingerprint, read_manifest
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
_PRIME = (1 << 61) - 1  # key * a + b modulo a prime is another order for each seed, and fits into HUGEINT


def mix(mixture: Mixture, *, root: Place, dry_run: bool = False) -> MixtureManifest:
    """Draw a mixture; with `dry_run`, only say what would be drawn. What is drawn already is left as it is.

    Raises:
        UserError: a corpus is not ingested, a `where` is wrong or matches nothing, or a quota cannot be met.
    """
    store = Store(root.absolute())
    corpora = {source.corpus: store.current("corpora", source.corpus)[1].fingerprint for source in mixture.sources}
    content = mixture.model_dump(mode="json", exclude={"description"})
    directory = store.directory("mixtures", mixture.name, fingerprint(content, corpora, explain(mixture)))
    if (directory / MANIFEST).exists():
        manifest = read_manifest(MixtureManifest, directory)
        if not dry_run and store.current("mixtures", mixture.name)[0] != directory:
            manifest = manifest.model_copy(update={"created": now()})
            store.publish("mixtures", manifest)
        return manifest
    with connect(store.root, corpora) as connection:
        available = [_count(connection, mixture, source) for source in mixture.sources]
        pools = [min(n, source.cap or n) for n, source in zip(available, mixture.sources, strict=True)]
        draws = quotas(mixture, pools)
        manifest = MixtureManifest(
            name=mixture.name,
            fingerprint=directory.name,
            created=now(),
            sql=_members_sql(mixture, pools, draws),
            sources=[
                RealisedSource(
                    corpus=source.corpus,
                    split=source.split,
                    corpus_fingerprint=corpora[source.corpus],
                    available=n,
                    records=min(pool, quota),
                    draws=quota,
                )
                for source, n, pool, quota in zip(mixture.sources, available, pools, draws, strict=True)
            ],
        )
        if not dry_run:
            with store.working_on("mixtures", mixture.name):
                _write(connection, manifest.sql, directory / "members.parquet")
                store.publish("mixtures", manifest)
    return manifest


def explain(mixture: Mixture) -> str:
    """The SQL of a mixture: what counts, then what draws. `$pool_i` is the number of records of source i that
    match, at most its cap; `$quota_i` is what the policy makes of all of them.

    Raises:
        UserError: a `where` is not one SQL condition.
    """
    numbers = range(1, len(mixture.sources) + 1)
    counts = ";\n\n".join(_count_sql(mixture, source) for source in mixture.sources)
    draw = _members_sql(mixture, [f"$pool_{i}" for i in numbers], [f"$quota_{i}" for i in numbers])
    return f"-- The records that match.\n{counts};\n\n-- The draw.\n{draw};\n"


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
        where = f"{_name(mixture, source)}: {quota} of {size} draws fall to its {pool} records"
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


def _name(mixture: Mixture, source: MixtureSource) -> str:
    return f"mixture {mixture.name}: source {source.corpus}/{source.split}"


def _matching(mixture: Mixture, source: MixtureSource) -> str:
    """The records of a source that match, with their draw key."""
    a, b = _draw_factors(mixture.seed)
    return (
        f"    SELECT record_id, ((key::HUGEINT * {a} + {b}) % {_PRIME})::UBIGINT AS key\n"
        f"    FROM (SELECT * FROM records WHERE corpus = '{source.corpus}' AND split = '{source.split}')\n"
        f"    WHERE ({_condition(mixture, source)}\n    )"
    )


def _count_sql(mixture: Mixture, source: MixtureSource) -> str:
    return f"SELECT count(*) FROM (\n{_matching(mixture, source)}\n)"


def _members_sql(mixture: Mixture, pools: Sequence[int | str], draws: Sequence[int | str]) -> str:
    parts = [
        f"SELECT record_id, '{source.corpus}' AS corpus, '{source.split}' AS split,\n"
        f"    ({quota} // {pool} + (place <= {quota} % {pool})::INTEGER)::INTEGER AS copies, key\n"
        f"FROM (SELECT record_id, key, row_number() OVER (ORDER BY key, record_id) AS place FROM (\n"
        f"{_matching(mixture, source)}\n))\n"
        f"WHERE place <= least({pool}, {quota})"
        for source, pool, quota in zip(mixture.sources, pools, draws, strict=True)
    ]
    return "\nUNION ALL\n".join(parts) + "\nORDER BY corpus, split, key, record_id"


def _condition(mixture: Mixture, source: MixtureSource) -> str:
    """A `where`, parsed alone, so that nothing in it can end the clause that it is put into."""
    try:
        return str(duckdb.SQLExpression("true" if source.where is None else source.where))
    except duckdb.Error as error:
        problem = " ".join(str(error).split())
        raise UserError(f"{_name(mixture, source)}: where: expected one SQL condition: {problem}") from None


def _count(connection: duckdb.DuckDBPyConnection, mixture: Mixture, source: MixtureSource) -> int:
    with explained(connection, f"{_name(mixture, source)}: where"):
        _check_repeatable(connection, mixture, source)
        count = int(connection.execute(_count_sql(mixture, source)).fetchall()[0][0])
    if count == 0:
        condition = f"`where: {source.where}` matches no record" if source.where else "the split has no record"
        raise UserError(f"{_name(mixture, source)}: {condition}; correct it, or remove the source")
    return count


def _check_repeatable(connection: duckdb.DuckDBPyConnection, mixture: Mixture, source: MixtureSource) -> None:
    """Refuse what differs from call to call, such as random() and now()."""
    statement = f"SELECT {_condition(mixture, source)}"
    tree = connection.execute("SELECT json_serialize_sql(?)", [statement]).fetchall()[0][0]
    names = set(re.findall(r'"(?:function_name":|column_names":\[)"(\w+)"', tree))
    found = connection.execute("SELECT function_name FROM duckdb_functions() WHERE stability <> 'CONSISTENT'")
    if varying := sorted(names & {*_CLOCKS, *(name for (name,) in found.fetchall())}):
        raise UserError(
            f"{_name(mixture, source)}: where: {varying[0]} differs from call to call, and a mixture must not; "
            "the draw is random already: use `cap` or `size`"
        )


def _draw_factors(seed: int) -> tuple[int, int]:
    digest = blake3(f"ubert mixture {seed}".encode()).digest()
    return 1 + int.from_bytes(digest[:8], "little") % (_PRIME - 1), int.from_bytes(digest[8:16], "little") % _PRIME


def _write(connection: duckdb.DuckDBPyConnection, statement: str, path: Place) -> None:
    with (
        explained(connection, "mixture"),
        atomic(path) as temporary,
        pq.ParquetWriter(temporary, MEMBERS, compression="zstd") as file,
    ):
        for batch in connection.sql(statement).to_arrow_reader():
            file.write_batch(batch.cast(MEMBERS))
