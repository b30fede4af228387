"""How many mentions a text may have where links join them in pairs, or each trigger is a question of its own.

A trained model stays far below: the texts of annotated corpora have fewer mentions than tokens, and of triggers at
most two for five tokens. A model that isn't trained may hold every second cell for a mention.
"""

from __future__ import annotations

import numpy as np

from ubert.objectives import Query, Scored
from ubert.objectives._common import best_first

FEWEST = 64  # of a short text


def most_mentions(query: Query, tokens: int) -> int | None:
    """Most mentions, of all categories together, that a query may find; None where their number does no harm."""
    kinds = {category.kind for category in query.categories}
    if "relation" in kinds:
        return max(FEWEST, tokens)
    if "event" in kinds or "role" in kinds:
        return max(FEWEST, tokens // 2)
    return None


def bounded(query: Query, tokens: int, scored: Scored) -> tuple[Scored, int]:
    """The scores without the mentions beyond the best ones that a text of so many tokens may have, and how many
    those are."""
    most = most_mentions(query, tokens)
    cells = scored.cells
    if most is None:
        return scored, 0
    tables = [i for i, category in enumerate(query.categories) if category.kind in ("entity", "event", "role")]
    mentions = np.flatnonzero(np.isin(cells.category, tables))
    beyond = mentions[best_first(cells.only(mentions))[most:]]
    return Scored(scored.anchor, cells.only(np.delete(np.arange(len(cells.score)), beyond))), len(beyond)
