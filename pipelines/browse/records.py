"""Records of a corpus by page. SQL finds the rows of a page, and only their row groups are read in full."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import duckdb

from pipelines.mixtures.sql import NAMED, literal
from pipelines.mixtures.where import check, one_condition
from pipelines.store.storage import StorePath, explained, parquet_file, store_path
from pipelines.store.store import Store
from pipelines.store.warehouse import sql
from ubert.schema.arrow import batch_to_records
from ubert.schema.errors import UserError
from ubert.schema.manifest import CorpusManifest
from ubert.schema.record import Record

SECONDS = 60.0  # time-out of a search
MAX_CHARACTERS = 2_000  # maximum characters of a condition


class Filter(NamedTuple):
    """A filter for the records of a corpus. An empty field filters nothing.

    `category` is one of the record's annotations. `text` is contained in the text or the pair, in any case.
    `where` is an SQL condition.
    """

    split: str = ""
    category: str = ""
    text: str = ""
    where: str = ""

    def condition(self) -> str:
        """Return the filter as one SQL condition.

        Raises:
            UserError: `where` is not a condition that a mixture may have.
        """
        conditions = ["true"]
        if self.split:
            conditions.append(f"split = {literal(self.split)}")
        if self.category:
            conditions.append(f"list_contains({NAMED}, {literal(self.category)})")
        if self.text:
            words = f"lower({literal(self.text)})"
            conditions.append(f"(contains(lower(text), {words}) OR contains(lower(pair), {words}))")
        if self.where:
            conditions.append(f"({_checked(self.where)})")
        return " AND ".join(conditions)


def _checked(where: str) -> str:
    if len(where) > MAX_CHARACTERS:
        raise UserError(f"where: {len(where):,} characters, expected at most {MAX_CHARACTERS:,}; shorten it")
    condition = one_condition(where, "where")
    with duckdb.connect(":memory:") as connection:
        check(
            connection,
            condition,
            "where",
            "conditions here are those of a mixture's `where`; the SQL page runs any SELECT",
        )
    return condition


def rows_sql(corpus: str, condition: str, first: int, count: int) -> str:
    """Return SQL for the numbers of a corpus's rows that fulfil a condition, in the order of its files.

    Rows are numbered before the condition is evaluated. DuckDB reads only the columns that it names.
    """
    numbered = f"SELECT *, row_number() OVER () - 1 AS row FROM (SELECT * FROM records WHERE corpus = '{corpus}')"
    return f"SELECT row FROM ({numbered}) WHERE {condition} LIMIT {count} OFFSET {first}"


def by_id(root: StorePath, ids: Sequence[tuple[str, str]]) -> dict[str, Record]:
    """Return the records with these (corpus, record_id). Leave out those that the store no longer has."""
    store, found = Store(root), dict[str, Record]()
    here = set(store.names("corpora"))
    for corpus, group in groupby(sorted(set(ids)), lambda pair: pair[0]):
        names = [record_id for _, record_id in group]
        if corpus in here:
            directory, manifest = store.current("corpora", corpus)
            condition = f"record_id IN ({', '.join(map(literal, names))})"
            rows = sql(root, rows_sql(corpus, condition, 0, len(names)), [corpus], SECONDS)
            found.update((one.record_id, one) for one in take(directory, manifest, rows["row"].to_pylist()))
    return found


def take(directory: StorePath, manifest: CorpusManifest, rows: Sequence[int]) -> list[Record]:
    """Read the records of some rows, given in ascending order. Row numbers run over all parts of a corpus."""
    groups = _row_groups(str(directory), tuple(manifest.parts))
    firsts = [group.first for group in groups]
    found: list[Record] = []
    for at, inside in groupby(rows, lambda row: bisect_right(firsts, row) - 1):
        group = groups[at]
        with explained(directory), parquet_file(directory / group.part) as file:
            table = file.read_row_group(group.number).take([row - group.first for row in inside])
        found += batch_to_records(table)
    return found


class _RowGroup(NamedTuple):
    """A row group of a part. `first` is the number of its first row."""

    first: int
    part: str
    number: int


@lru_cache(maxsize=64)
def _row_groups(directory: str, parts: tuple[str, ...]) -> list[_RowGroup]:
    """List the non-empty row groups of a corpus. They can be cached, as a directory is named by its content."""
    where, groups, first = store_path(directory), list[_RowGroup](), 0
    for part in parts:
        with explained(where), parquet_file(where / part) as file:
            for number in range(file.metadata.num_row_groups):
                size = file.metadata.row_group(number).num_rows
                if size:
                    groups.append(_RowGroup(first, part, number))
                first += size
    return groups
