"""The SQL of a mixture: what its YAML comes to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from blake3 import blake3

from pipelines.mixtures.guard import dropped_sql, evaluation_sql, pool_sql
from pipelines.mixtures.where import one_condition
from ubert.schema.mixture import Mixture, MixtureSource

_PRIME = (1 << 48) - 59  # the key's halves times 30 bits each, modulo a prime: another order for each seed
_RANGE = 36  # bits of a key in its range: 4,096 ranges


class Stratum(NamedTuple):
    """The `records` of a source that have one category as their rarest (all of them where `category` is empty),
    and the draws from them, phase by phase."""

    category: str
    records: int
    draws: list[int]


class Edge(NamedTuple):
    """The last of the first records of a stratum, in order of the draw."""

    key: int
    record_id: str


Edges = dict[tuple[str, int], Edge]  # by category and number of first records


def explain(mixture: Mixture) -> str:
    """The SQL of a mixture: what counts, what is dropped, then what draws.

    `$copies_i` of a record follow from its place in the draw's order of its source: SQL that the policy makes of
    how many may be drawn, with the records at the places where copies change, which are in `$ranges_i` of keys.

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
    guarded = (
        f"-- Evaluation records of the whole store: `evaluation`.\n{evaluation_sql(mixture)};\n\n"
        f"-- Records whose text is `repeated`: `pool`.\n{pools};\n\n"
        f"-- What is not drawn: `dropped`.\n{dropped_sql(mixture)};\n\n"
    )
    draw = ";\n\n".join(draws)
    return f"-- The records that match.\n{counts};\n\n{guarded if mixture.guarded else ''}-- The draw.\n{draw};\n"


def source_name(mixture: Mixture, leaf: MixtureSource) -> str:
    """How errors name a source."""
    return f"mixture {mixture.name}: source {leaf.name}"


def count_sql(mixture: Mixture, leaf: MixtureSource) -> str:
    """How many records of a source match."""
    return f"SELECT count(*)\n{matching(mixture, leaf)}"


def text_sql(mixture: Mixture, leaf: MixtureSource, limit: int) -> str:
    """Texts of a source: the first ones that match."""
    return f"SELECT text, coalesce(pair, '') AS pair\n{matching(mixture, leaf)}\nLIMIT {limit}"


def strata_sql(mixture: Mixture, leaf: MixtureSource, cap: Edge | None = None) -> str:
    """The records that may be drawn from a source, by their rarest category."""
    pool = _pool(mixture, leaf, cap)
    return f"SELECT category, count(*) AS records FROM (\n{pool}\n)\nGROUP BY category ORDER BY category"


def ranges_sql(mixture: Mixture, leaf: MixtureSource, cap: Edge | None = None) -> str:
    """How many records that may be drawn have their key in which range."""
    pool = _pool(mixture, leaf, cap)
    return f"SELECT category, key >> {_RANGE} AS range, count(*)\nFROM (\n{pool}\n)\nGROUP BY ALL ORDER BY ALL"


def inside_sql(mixture: Mixture, leaf: MixtureSource, ranges: str, cap: Edge | None = None) -> str:
    """The records of some ranges, rows of category and range, in order of the draw."""
    pool = _pool(mixture, leaf, cap)
    return (
        f"SELECT category, key >> {_RANGE} AS range, key, record_id\nFROM (\n{pool}\n)\n"
        f"WHERE (category, range) IN ({ranges})\nORDER BY key, record_id"
    )


def copies_sql(strata: Sequence[Stratum], edges: Edges) -> list[str]:
    """How often a record is drawn, phase by phase: all alike, and the first ones of its stratum once more; less
    what was drawn before the phase."""
    upto = [dict(enumerate(accumulate(stratum.draws, initial=0))) for stratum in strata]

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
    """The draw from a source: rows of `members.parquet`, and their `characters`, phase by phase, in order of the
    draw."""
    pool = _pool(mixture, leaf, cap)
    phases = "\nUNION ALL\n".join(
        f"SELECT record_id, '{leaf.corpus}' AS corpus, '{leaf.split}' AS split, {phase} AS phase,\n"
        f"    ({of_phase})::INTEGER AS copies, key, characters\nFROM (\n{pool}\n)\nWHERE copies > 0"
        for phase, of_phase in enumerate(copies)
    )
    return f"{phases}\nORDER BY phase, key, record_id"


def members_sql(draws: Sequence[str]) -> str:
    """The members of a mixture, from the draws of its sources."""
    columns = "record_id, corpus, split, phase, copies, key"
    return "\nUNION ALL\n".join(f"SELECT {columns} FROM (\n{draw}\n)" for draw in draws)


def matching(mixture: Mixture, leaf: MixtureSource) -> str:
    """The records of a source that match."""
    return (
        f"    FROM (SELECT * FROM records WHERE corpus = '{leaf.corpus}' AND split = '{leaf.split}')\n"
        f"    WHERE ({condition(mixture, leaf)}\n    )"
    )


def _pool(mixture: Mixture, leaf: MixtureSource, cap: Edge | None) -> str:
    """The records that may be drawn: record_id, draw key, characters, and the rarest category, '' where that
    doesn't matter; of those up to `cap`, if there is one."""
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
    """Whether a record is among the first ones."""
    return f"(key < {edge.key} OR (key = {edge.key} AND record_id <= {literal(edge.record_id)}))"


def _among(edges: Edges, stratum: Stratum, place: int) -> str:
    """1 where a record is among so many first ones, else 0."""
    return f"{_upto(edges[stratum.category, place])}::INTEGER" if place else "0"


def literal(value: str | int) -> str:
    """As SQL has it."""
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


# Names of the categories that hold in a record, each once.
NAMED = """list_distinct(list_transform(
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
    """The `where` of a source."""
    return "true" if leaf.where is None else one_condition(leaf.where, f"{source_name(mixture, leaf)}: where")


def _draw_factors(seed: int) -> list[int]:
    """Two of 30 bits, for the halves of a key, and one of 62: no sum leaves 64 bits."""
    digest = blake3(f"ubert mixture {seed}".encode()).digest()
    a, b, c = (int.from_bytes(digest[i : i + 8], "little") for i in (0, 8, 16))
    return [(a >> 35) | 1 << 29, (b >> 35) | 1 << 29, c >> 2]
