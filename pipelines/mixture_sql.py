"""The SQL of a mixture: what its YAML comes to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import duckdb
from blake3 import blake3

from pipelines.guard import dropped_sql, evaluation_sql
from ubert.schema.errors import UserError
from ubert.schema.mixture import Mixture, MixtureSource

_PRIME = (1 << 61) - 1  # key * a + b modulo a prime is another order for each seed, and fits into HUGEINT


class Stratum(NamedTuple):
    """The `records` of a source that have one category as their rarest (all of them where `category` is empty),
    and the draws from them, phase by phase."""

    category: str
    records: int
    draws: list[int]


def explain(mixture: Mixture) -> str:
    """The SQL of a mixture: what counts, what is dropped, then what draws. `$records_i` is the number of records
    of source i that may be drawn, and `$before_i` and `$upto_i` are the draws before and up to the end of a phase,
    which the policy makes of all of them; a balanced source has a row for each category.

    Raises:
        UserError: a `where` is not one SQL condition.
    """
    matching = ";\n\n".join(count_sql(mixture, leaf) for leaf in mixture.leaves)
    draws = []
    for i, leaf in enumerate(mixture.leaves, 1):
        if leaf.balance:
            draws.append(strata_sql(mixture, leaf))
        numbers = f"$category_{i}, $phase_{i}, $records_{i}, $before_{i}, $upto_{i}"
        draws.append(draw_sql(mixture, leaf, f"({numbers})"))
    guarded = (
        f"-- Evaluation records of the whole store: `evaluation`.\n{evaluation_sql(mixture)};\n\n"
        f"-- What is not drawn: `dropped`.\n{dropped_sql(mixture, pool_sql(mixture))};\n\n"
    )
    draw = ";\n\n".join(draws)
    return (
        f"-- The records that match.\n{matching};\n\n{guarded if mixture.guarded else ''}-- The draw.\n{draw};\n"
    )


def source_name(mixture: Mixture, leaf: MixtureSource) -> str:
    """How errors name a source."""
    return f"mixture {mixture.name}: source {leaf.name}"


def count_sql(mixture: Mixture, leaf: MixtureSource) -> str:
    """How many records of a source match."""
    return f"SELECT count(*)\n{_matching(mixture, leaf)}"


def text_sql(mixture: Mixture, leaf: MixtureSource, limit: int) -> str:
    """Texts of a source: the first ones that match."""
    return f"SELECT text, coalesce(pair, '') AS pair\n{_matching(mixture, leaf)}\nLIMIT {limit}"


def pool_sql(mixture: Mixture) -> list[str]:
    """The records that match, source by source, as the guard sees them."""
    columns = "record_id, corpus::VARCHAR AS corpus, split::VARCHAR AS split, content_hash"
    return [f"    SELECT {columns}\n{_matching(mixture, leaf)}" for leaf in mixture.leaves]


def strata_sql(mixture: Mixture, leaf: MixtureSource) -> str:
    """The records that may be drawn from a source, by their rarest category."""
    pool = _pool(mixture, leaf)
    return f"SELECT category, count(*) AS records FROM (\n{pool}\n)\nGROUP BY category ORDER BY category"


def quota_rows(strata: Sequence[Stratum]) -> str:
    """Rows for `draw_sql`: category, phase, records, and the draws before the phase and up to its end."""
    rows = []
    for category, records, draws in strata:
        name = category.replace("'", "''")
        upto = list(accumulate(draws, initial=0))
        rows += [f"('{name}', {i}, {records}, {upto[i]}, {upto[i + 1]})" for i in range(len(draws))]
    return ", ".join(rows)


def draw_sql(mixture: Mixture, leaf: MixtureSource, quota: str) -> str:
    """The draw from a source: rows of `members.parquet`, and their `characters`.

    Its records, ordered by key, are gone through again and again, phase after phase: draw number i takes the
    record at place (i - 1) % records + 1.
    """
    return (
        f"SELECT record_id, '{leaf.corpus}' AS corpus, '{leaf.split}' AS split, phase,\n"
        "    (upto // records + (place <= upto % records)::INTEGER\n"
        "     - before // records - (place <= before % records)::INTEGER)::INTEGER AS copies, key, characters\n"
        "FROM (SELECT *, row_number() OVER (PARTITION BY category ORDER BY key, record_id) AS place FROM (\n"
        f"{_pool(mixture, leaf)}\n"
        f")) JOIN (VALUES {quota}) AS quota(category, phase, records, before, upto) USING (category)\n"
        "WHERE copies > 0\nORDER BY key, record_id, phase"
    )


def members_sql(draws: Sequence[str]) -> str:
    """The members of a mixture, from the draws of its sources."""
    columns = "record_id, corpus, split, phase, copies, key"
    return "\nUNION ALL\n".join(f"SELECT {columns} FROM (\n{draw}\n)" for draw in draws)


def _matching(mixture: Mixture, leaf: MixtureSource) -> str:
    """The records of a source that match."""
    return (
        f"    FROM (SELECT * FROM records WHERE corpus = '{leaf.corpus}' AND split = '{leaf.split}')\n"
        f"    WHERE ({condition(mixture, leaf)}\n    )"
    )


def _pool(mixture: Mixture, leaf: MixtureSource) -> str:
    """The records that may be drawn: record_id, draw key, characters, and the rarest category, '' where that
    doesn't matter."""
    a, b = _draw_factors(mixture.seed)
    key = f"((key::HUGEINT * {a} + {b}) % {_PRIME})::UBIGINT AS key"
    columns = f"record_id, {key}, characters" + (f", {_NAMED} AS names" if leaf.balance else ", '' AS category")
    dropped = f" AND record_id NOT IN (SELECT record_id FROM dropped WHERE mixture = '{mixture.name}')"
    pool = f"    SELECT {columns}\n{_matching(mixture, leaf)}{dropped if mixture.guarded else ''}"
    if leaf.cap:
        pool = (
            f"    SELECT * FROM (\n{pool}\n    ) QUALIFY row_number() OVER (ORDER BY key, record_id) <= {leaf.cap}"
        )
    return _RAREST.format(pool=pool) if leaf.balance else pool


# Names of the categories that hold in a record, each once.
_NAMED = """list_distinct(list_transform(
        labels || list_transform(spans, lambda item: item.category)
               || list_transform(relations, lambda item: item.category)
               || list_transform(events, lambda item: item.category),
        lambda i: categories[i + 1].name))"""

# A record belongs to the one of its categories that the fewest records have; '' has those without one.
_RAREST = """    WITH pool AS (
{pool}
    ), named AS (SELECT record_id, unnest(names) AS category FROM pool),
    sizes AS (SELECT category, count(*) AS size FROM named GROUP BY category)
    SELECT record_id, key, characters, coalesce(rarest.category, '') AS category
    FROM pool LEFT JOIN (
        SELECT record_id, arg_min(category, (size, category)) AS category
        FROM named JOIN sizes USING (category) GROUP BY record_id
    ) AS rarest USING (record_id)"""


def condition(mixture: Mixture, leaf: MixtureSource) -> str:
    """A `where`, parsed alone, so that nothing in it can end the clause that it is put into."""
    try:
        return str(duckdb.SQLExpression("true" if leaf.where is None else leaf.where))
    except duckdb.Error as error:
        problem = " ".join(str(error).split())
        raise UserError(f"{source_name(mixture, leaf)}: where: expected one SQL condition: {problem}") from None


def _draw_factors(seed: int) -> tuple[int, int]:
    digest = blake3(f"ubert mixture {seed}".encode()).digest()
    return 1 + int.from_bytes(digest[:8], "little") % (_PRIME - 1), int.from_bytes(digest[8:16], "little") % _PRIME
