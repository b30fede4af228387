"""The final of a label: the best categories of several pieces are scored again, in one piece.

Names in a piece attend to each other, and in training each piece has the right label. So a score says how a label
compares with the others of its piece, and scores of different pieces don't compare.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ubert.encoder.ragged import Ids
from ubert.objectives import Query, Scored, objective


def needs_final(query: Query, most: int) -> bool:
    """Whether exactly one category holds, of more than the `most` of a piece. Stacked pieces have one, alone."""
    return objective(query.task).exclusive and 1 < most < len(query.categories)


def finalists(scored: Scored, most: int) -> Ids:
    """Return the `most` categories with the highest anchors, ascending."""
    return np.sort(np.argsort(-scored.anchor, kind="stable")[:most]).astype(np.int32)


def final_query(query: Query, chosen: Ids) -> Query:
    """Ask for the finalists alone."""
    return replace(query, categories=tuple(query.categories[i] for i in chosen.tolist()))


def with_final(scored: Scored, chosen: Ids, final: Scored) -> Scored:
    """Give the finalists their scores in the final. The others get less than the lowest of these."""
    anchor = np.minimum(scored.anchor, np.nextafter(final.anchor.min(), np.float32(-np.inf)))
    anchor[chosen] = final.anchor
    return Scored(anchor, scored.cells)
