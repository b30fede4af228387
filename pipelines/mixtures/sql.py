"""Build the SQL of a mixture from its YAML."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from blake3 import blake3

from pipelines.mixtures.guard import dropped_sql, evaluation_sql, pool_sql
from pipelines.mixtures.where import one_condition
from ubert.schema.specs.mixture import Mixture, MixtureSource

_PRIME = (1 << 48) - 59  # each half of a key is multiplied by a 30-bit factor of the seed, modulo this prime
_RANGE = 36  # low bits of a 48-bit key within its range: there are 4,096 ranges


class Stratum(NamedTuple):
    """The number of `records` of a source whose rarest category is `category`, and their draws in each phase. An
    empty `category` means all records of the source."""

    category: str
    records: int
    draws: list[int]


class Edge(NamedTuple):
    """The last record of a prefix of a stratum, in the order of the draw."""

    key: int
    record_id: str


Edges = dict[tuple[str, int], Edge]  # by category and length of the prefix


def explain(mixture: Mixture) -> str:
    """Return the SQL of a mixture for `--explain`: it counts, selects dropped records, then draws.

    `$copies_i` is a placeholder for SQL that computes the copies of a record from its position in the order of
    source i. That SQL needs the number of records, and the records at which the copies change. `$ranges_i` is a
    placeholder for the ranges of keys of these records.

    Raises:
        UserError: a `where` is not one SQL condition.
    """
    counts = ";\n\n".join(count_sql(mixture, leaf) for leaf in mixture.leaves)
    draws = []
    for i, leaf in enumerate(mixture.leaves, 1):
        if leaf.balance:
            draws.append(strata_sql(mixture, leaf))
        draws += [ranges_sql(mixture, leaf), inside_sql(mixture, leaf, f"$ranges_{i}")]
        draws.append(draw_sql(mixture, leaf, [f"$copies_{i}"]))
    pools = ";\n\n".join(pool_sql(mixture, matching(mixture, leaf)) for leaf in mixture.leaves)
    held = " Held-out records are in `never`." if mixture.hold_out else ""
    guarded = (
        f"-- Evaluation records of the whole store: `evaluation`.\n{evaluation_sql(mixture)};\n\n"
        f"-- Records whose text is `repeated`: `pool`.\n{pools};\n\n"
        f"-- The records that are not drawn: `dropped`.{held}\n{dropped_sql(mixture)};\n\n"
    )
    draw = ";\n\n".join(draws)
    return f"-- The records that match.\n{counts};\n\n{guarded if mixture.guarded else ''}-- The draw.\n{draw};\n"


def source_name(mixture: Mixture, leaf: MixtureSource) -> str:
    """Return the name of a source for error messages."""
    return f"mixture {mixture.name}: source {leaf.name}"


def count_sql(mixture: Mixture, leaf: MixtureSource) -> str:
    """Count the records of a source that match."""
    return f"SELECT count(*)\n{matching(mixture, leaf)}"


def text_sql(mixture: Mixture, leaf: MixtureSource, limit: int) -> str:
    """Select the texts of the first `limit` records of a source that match."""
    return f"SELECT text, coalesce(pair, '') AS pair\n{matching(mixture, leaf)}\nLIMIT {limit}"


def strata_sql(mixture: Mixture, leaf: MixtureSource, cap: Edge | None = None) -> str:
    """Count the records that may be drawn from a source, by their rarest category."""
    pool = _pool(mixture, leaf, cap)
    return f"SELECT category, count(*) AS records FROM (\n{pool}\n)\nGROUP BY category ORDER BY category"


def ranges_sql(mixture: Mixture, leaf: MixtureSource, cap: Edge | None = None) -> str:
    """Count the records that may be drawn, by category and range of keys."""
    pool = _pool(mixture, leaf, cap)
    return f"SELECT category, key >> {_RANGE} AS range, count(*)\nFROM (\n{pool}\n)\nGROUP BY ALL ORDER BY ALL"


def inside_sql(mixture: Mixture, leaf: MixtureSource, ranges: str, cap: Edge | None = None) -> str:
    """Select the records of some ranges, given as SQL rows of category and range, in the order of the draw."""
    pool = _pool(mixture, leaf, cap)
    return (
        f"SELECT category, key >> {_RANGE} AS range, key, record_id\nFROM (\n{pool}\n)\n"
        f"WHERE (category, range) IN ({ranges})\nORDER BY key, record_id"
    )


def copies_sql(strata: Sequence[Stratum], edges: Edges) -> list[str]:
    """Return for each phase the SQL of a record's number of copies. All records of a stratum have the same number,
    and the first ones have one more; the copies of earlier phases are subtracted."""
    upto = [list(accumulate(stratum.draws, initial=0)) for stratum in strata]

    def one(stratum: Stratum, before: int, upto: int) -> str:
        every = upto // stratum.records - before // stratum.records
        more, less = (_among(edges, stratum, draws % stratum.records) for draws in (upto, before))
        return f"{every} + {more} - {less}"

    found = []
    for phase in range(len(strata[0].draws)):
        each = [one(stratum, of[phase], of[phase + 1]) for stratum, of in zip(strata, upto, strict=True)]
        whens = [f"WHEN {literal(stratum.category)} THEN {sql}" for stratum, sql in zip(strata, each, strict=True)]
        found.append(f"CASE category {' '.join(whens)} END" if len(each) > 1 else each[0])
    return found


def draw_sql(mixture: Mixture, leaf: MixtureSource, copies: Sequence[str], cap: Edge | None = None) -> str:
    """Select the rows of `members.parquet` of a source, with their `characters`, by phase in the order of the
    draw."""
    pool = _pool(mixture, leaf, cap)
    phases = "\nUNION ALL\n".join(
        f"SELECT record_id, '{leaf.corpus}' AS corpus, '{leaf.split}' AS split, {phase} AS phase,\n"
        f"    ({of_phase})::INTEGER AS copies, key, characters\nFROM (\n{pool}\n)\nWHERE copies > 0"
        for phase, of_phase in enumerate(copies)
    )
    return f"{phases}\nORDER BY phase, key, record_id"


def members_sql(draws: Sequence[str]) -> str:
    """Select the members of a mixture from the draws of its sources."""
    columns = "record_id, corpus, split, phase, copies, key"
    return "\nUNION ALL\n".join(f"SELECT {columns} FROM (\n{draw}\n)" for draw in draws)


def matching(mixture: Mixture, leaf: MixtureSource) -> str:
    """Return the FROM and WHERE clauses of the records of a source that match."""
    return (
        f"    FROM (SELECT * FROM records WHERE corpus = '{leaf.corpus}' AND split = '{leaf.split}')\n"
        f"    WHERE ({condition(mixture, leaf)}\n    )"
    )


def _pool(mixture: Mixture, leaf: MixtureSource, cap: Edge | None) -> str:
    """Select the records that may be drawn, up to `cap` if there is one: record_id, draw key, characters, and the
    rarest category ('' without `balance`)."""
    a, b, c = _draw_factors(mixture.seed)
    key = f"((key >> 32) * {a} + (key & 4294967295) * {b} + {c}) % {_PRIME} AS key"
    columns = f"record_id, {key}, characters" + (f", {NAMED} AS names" if leaf.balance else ", '' AS category")
    pool = f"    SELECT {columns}\n{matching(mixture, leaf)}"
    if mixture.guarded:
        dropped = f"FROM dropped WHERE corpus = '{leaf.corpus}' AND split = '{leaf.split}'"
        pool += f" AND record_id NOT IN (SELECT record_id {dropped})"
    if cap:
        pool = f"    SELECT * FROM (\n{pool}\n    ) WHERE {_upto(cap)}"
    return _RAREST.format(pool=pool) if leaf.balance else pool


def _upto(edge: Edge) -> str:
    """Return the SQL condition that a record is at or before `edge`."""
    return f"(key < {edge.key} OR (key = {edge.key} AND record_id <= {literal(edge.record_id)}))"


def _among(edges: Edges, stratum: Stratum, place: int) -> str:
    """Return SQL that is 1 if a record is among the first `place` ones of its stratum, else 0."""
    return f"{_upto(edges[stratum.category, place])}::INTEGER" if place else "0"


def literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


# The distinct names of the categories that are annotated in a record.
NAMED = """list_distinct(list_transform(
        labels || list_transform(spans, lambda item: item.category)
               || list_transform(relations, lambda item: item.category)
               || list_transform(events, lambda item: item.category),
        lambda i: categories[i + 1].name))"""

# A record belongs to the rarest of its categories, or to '' if it has none.
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
    return "true" if leaf.where is None else one_condition(leaf.where, f"{source_name(mixture, leaf)}: where")


def _draw_factors(seed: int) -> list[int]:
    """Return two factors of 30 bits for the halves of a key, and a summand of 62 bits. The sum fits 64 bits."""
    digest = blake3(f"ubert mixture {seed}".encode()).digest()
    a, b, c = (int.from_bytes(digest[i : i + 8], "little") for i in (0, 8, 16))
    return [(a >> 35) | 1 << 29, (b >> 35) | 1 << 29, c >> 2]
