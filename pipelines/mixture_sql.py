"""The SQL of a mixture: what its YAML comes to."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
from blake3 import blake3

from pipelines.guard import dropped_sql, evaluation_sql
from ubert.schema.errors import UserError
from ubert.schema.mixture import Mixture, MixtureSource

_PRIME = (1 << 61) - 1  # key * a + b modulo a prime is another order for each seed, and fits into HUGEINT


def explain(mixture: Mixture) -> str:
    """The SQL of a mixture: what counts, what is dropped, then what draws. `$pool_i` is the number of records of
    source i that match and are not dropped, at most its cap; `$quota_i` is what the policy makes of all of them.

    Raises:
        UserError: a `where` is not one SQL condition.
    """
    numbers = range(1, len(mixture.sources) + 1)
    matching = ";\n\n".join(count_sql(mixture, source) for source in mixture.sources)
    draw = members_sql(mixture, [f"$pool_{i}" for i in numbers], [f"$quota_{i}" for i in numbers])
    guarded = (
        f"-- Evaluation records of the whole store: `evaluation`.\n{evaluation_sql(mixture)};\n\n"
        f"-- What is not drawn: `dropped`.\n{dropped_sql(mixture, pool_sql(mixture))};\n\n"
    )
    return (
        f"-- The records that match.\n{matching};\n\n{guarded if mixture.guarded else ''}-- The draw.\n{draw};\n"
    )


def source_name(mixture: Mixture, source: MixtureSource) -> str:
    """How errors name a source."""
    return f"mixture {mixture.name}: source {source.corpus}/{source.split}"


def _matching(mixture: Mixture, source: MixtureSource) -> str:
    """The records of a source that match."""
    return (
        f"    FROM (SELECT * FROM records WHERE corpus = '{source.corpus}' AND split = '{source.split}')\n"
        f"    WHERE ({condition(mixture, source)}\n    )"
    )


def count_sql(mixture: Mixture, source: MixtureSource) -> str:
    """How many records of a source match."""
    return f"SELECT count(*)\n{_matching(mixture, source)}"


def pool_sql(mixture: Mixture) -> list[str]:
    """The records that match, source by source, as the guard sees them."""
    columns = "record_id, corpus::VARCHAR AS corpus, split::VARCHAR AS split, content_hash"
    return [f"    SELECT {columns}\n{_matching(mixture, source)}" for source in mixture.sources]


def _drawn(mixture: Mixture, source: MixtureSource) -> str:
    """The records that may be drawn, with their draw key."""
    a, b = _draw_factors(mixture.seed)
    kept = f"\n    AND record_id NOT IN (SELECT record_id FROM dropped WHERE mixture = '{mixture.name}')"
    return (
        f"    SELECT record_id, ((key::HUGEINT * {a} + {b}) % {_PRIME})::UBIGINT AS key\n"
        f"{_matching(mixture, source)}{kept if mixture.guarded else ''}"
    )


def members_sql(mixture: Mixture, pools: Sequence[int | str], draws: Sequence[int | str]) -> str:
    """The draw: `draws[i]` of the `pools[i]` records of source i that may be drawn."""
    parts = [
        f"SELECT record_id, '{source.corpus}' AS corpus, '{source.split}' AS split,\n"
        f"    ({quota} // {pool} + (place <= {quota} % {pool})::INTEGER)::INTEGER AS copies, key\n"
        f"FROM (SELECT record_id, key, row_number() OVER (ORDER BY key, record_id) AS place FROM (\n"
        f"{_drawn(mixture, source)}\n))\n"
        f"WHERE place <= least({pool}, {quota})"
        for source, pool, quota in zip(mixture.sources, pools, draws, strict=True)
    ]
    return "\nUNION ALL\n".join(parts) + "\nORDER BY corpus, split, key, record_id"


def condition(mixture: Mixture, source: MixtureSource) -> str:
    """A `where`, parsed alone, so that nothing in it can end the clause that it is put into."""
    try:
        return str(duckdb.SQLExpression("true" if source.where is None else source.where))
    except duckdb.Error as error:
        problem = " ".join(str(error).split())
        raise UserError(f"{source_name(mixture, source)}: where: expected one SQL condition: {problem}") from None


def _draw_factors(seed: int) -> tuple[int, int]:
    digest = blake3(f"ubert mixture {seed}".encode()).digest()
    return 1 + int.from_bytes(digest[:8], "little") % (_PRIME - 1), int.from_bytes(digest[8:16], "little") % _PRIME
