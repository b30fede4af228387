"""Heats and a final: how one label is chosen from more than a piece had in training.

Names in a piece attend to each other, and in training each piece has the right label. So a score says how a label
compares with the others of its piece, and scores of different pieces don't compare. The labels are scored in heats
of the size of training's pieces, and the best of them again in a final.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ubert.encoder.ragged import Ids
from ubert.objectives import Query, Scored, objective


def heats(query: Query, most: int) -> list[Query]:
    """Divide a query into several with at most `most` categories each, if exactly one category holds.

    A stacked piece (`most` of 1) has a category alone, so its scores compare.
    """
    if most == 1 or not objective(query.task).exclusive or len(query.categories) <= most:
        return [query]
    every = np.arange(len(query.categories), dtype=np.int32)
    return [only(query, every[first : first + most]) for first in range(0, len(every), most)]


def only(query: Query, chosen: Ids) -> Query:
    """Ask for the chosen categories alone."""
    return replace(query, categories=tuple(query.categories[i] for i in chosen.tolist()))


def joined(scored: Sequence[Scored]) -> Scored:
    """Put the scores of heats beside each other."""
    return scored[0]._replace(anchor=np.concatenate([heat.anchor for heat in scored]))


def finalists(scored: Scored, most: int) -> Ids:
    """Return the `most` categories with the highest anchors, ascending."""
    return np.sort(np.argsort(-scored.anchor, kind="stable")[:most]).astype(np.int32)


def with_final(scored: Scored, chosen: Ids, final: Scored) -> Scored:
    """Give the finalists their scores in the final. The others get less than the lowest of these."""
    anchor = np.minimum(scored.anchor, np.nextafter(final.anchor.min(), np.float32(-np.inf)))
    anchor[chosen] = final.anchor
    return scored._replace(anchor=anchor)
