"""Rejected rows of a corpus, with their reasons."""

from __future__ import annotations

from typing import Any, NamedTuple

from pipelines.browse.records import SECONDS
from pipelines.mixtures.sql import literal
from pipelines.serving.wire import AbsentError
from pipelines.sources.places import reject_place
from pipelines.store.storage import StorePath
from pipelines.store.store import Store
from pipelines.store.warehouse import sql
from ubert.schema.errors import UserError

ROWS = 50  # per page
REASONS = 100  # maximum number of counts


class Rejects(NamedTuple):
    """A page of rejected rows. `published` is true if they belong to the published corpus, and false if a
    later ingest rejected too many rows and was not published."""

    reasons: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    more: bool
    published: bool


def rejects(root: StorePath, corpus: str, split: str, reason: str, page: int) -> Rejects:
    """Return a page of the rows that the last ingest of a corpus rejected.

    Raises:
        AbsentError: there is no such corpus.
    """
    chosen = {"split": split, "reason": reason}
    condition = " AND ".join(f"{name} = {literal(value)}" for name, value in chosen.items() if value) or "true"
    counted = (
        "SELECT split, reason, count(*) AS times FROM rejects GROUP BY ALL "
        f"ORDER BY times DESC, split, reason LIMIT {REASONS}"
    )
    listed = (
        f"SELECT split, path, line, reason, detail, raw FROM rejects WHERE {condition} "
        f"ORDER BY split, path, line LIMIT {ROWS + 1} OFFSET {(page - 1) * ROWS}"
    )
    try:
        attempt = Store(root).attempt(corpus)
        reasons, rows = (
            sql(root, statement, [corpus], SECONDS, attempted=True).to_pylist() for statement in (counted, listed)
        )
    except UserError as problem:
        raise AbsentError(str(problem)) from None
    for row in rows:
        row["place"], row["detail"] = reject_place(row["path"], row["line"], row["detail"])
    return Rejects(reasons, rows[:ROWS], len(rows) > ROWS, attempt is None)
