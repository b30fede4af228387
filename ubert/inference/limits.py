"""Limit the mentions of a text for tasks whose cost grows with pairs of mentions, or with a query per trigger.

A trained model stays far below the limits: annotated corpora have fewer mentions than tokens, and at most two
triggers per five tokens. An untrained model may predict a mention in every second cell.
"""

from __future__ import annotations

import numpy as np

from ubert.objectives import Query, Scored
from ubert.objectives.common import best_first

MIN_LIMIT = 64  # limit of a short text


def most_mentions(query: Query, tokens: int) -> int | None:
    """Return the maximum mentions of a query, over all categories; None for tasks without a limit."""
    kinds = {category.kind for category in query.categories}
    if "relation" in kinds:
        return max(MIN_LIMIT, tokens)
    if "event" in kinds or "role" in kinds:
        return max(MIN_LIMIT, tokens // 2)
    return None


def bounded(query: Query, tokens: int, scored: Scored) -> tuple[Scored, int]:
    """Drop the lowest-scoring mentions beyond the limit; return the other scores and the number dropped."""
    most = most_mentions(query, tokens)
    cells = scored.cells
    if most is None:
        return scored, 0
    tables = [i for i, category in enumerate(query.categories) if category.kind in ("entity", "event", "role")]
    mentions = np.flatnonzero(np.isin(cells.category, tables))
    beyond = mentions[best_first(cells.only(mentions))[most:]]
    return Scored(scored.anchor, cells.only(np.delete(np.arange(len(cells.score)), beyond))), len(beyond)
