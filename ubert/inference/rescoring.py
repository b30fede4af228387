"""Score the best categories again in one piece, if there are more categories than a piece had in training.

Names in a piece attend to each other, and in training each piece of labels has the right one. A score therefore
compares a category only with the others of its piece. In a piece without the right category, the best score is too
high. So the categories are scored twice: first all of them in several pieces, then the best of them in one piece.

Labels are rescored once for the whole text, with as many categories as a piece had in training. Mentions are
rescored in each window (`ubert.inference.scoring`), with as many categories as a first piece. Questions are not
rescored, because each has its own answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from ubert.encoder.ragged import Ids
from ubert.objectives import Cells, Query, Scored, Scores


def score_in_stages(
    queries: Sequence[Query], most: int, score: Callable[[list[Query]], list[Scored]]
) -> list[Scored]:
    """Score queries, in order. The best labels of a query about more than `most` are rescored."""
    divided = [split_categories(query, most) for query in queries]
    parts = iter(score([part for of_query in divided for part in of_query]))
    scored = [joined(list(islice(parts, len(of_query)))) for of_query in divided]
    chosen = {i: top_categories(scored[i].anchor, most) for i, of_query in enumerate(divided) if len(of_query) > 1}
    rescored = score([only(queries[i], best) for i, best in chosen.items()])
    for (i, best), again in zip(chosen.items(), rescored, strict=True):
        scored[i] = with_rescored(scored[i], best, again)
    return scored


def split_categories(query: Query, most: int) -> list[Query]:
    """Divide a query about labels into several with at most `most` categories each.

    A stacked piece (`most` is 1) has a single category, so its scores are comparable.
    """
    labels = all(category.kind == "label" for category in query.categories)
    if most == 1 or not labels or len(query.categories) <= most:
        return [query]
    every = np.arange(len(query.categories), dtype=np.int32)
    return [only(query, every[first : first + most]) for first in range(0, len(every), most)]


def only(query: Query, chosen: Ids) -> Query:
    """Ask for the chosen categories alone."""
    return replace(query, categories=tuple(query.categories[i] for i in chosen.tolist()))


def joined(scored: Sequence[Scored]) -> Scored:
    """Concatenate the scores of a divided query, category by category."""
    return scored[0]._replace(anchor=np.concatenate([part.anchor for part in scored]))


def top_categories(best: Scores, most: int) -> Ids:
    """Return the `most` categories with the highest scores, ascending."""
    return np.sort(np.argsort(-best, kind="stable")[:most]).astype(np.int32)


def with_rescored(scored: Scored, chosen: Ids, again: Scored) -> Scored:
    """Give the chosen categories their new scores. The others get less than the lowest of these."""
    anchor = np.minimum(scored.anchor, np.nextafter(again.anchor.min(), np.float32(-np.inf)))
    anchor[chosen] = again.anchor
    return scored._replace(anchor=anchor)


def with_rescored_mentions(
    scored: Scored, chosen: Ids, again: Scored, least: np.float32, threshold: float
) -> Scored:
    """Give the chosen categories their new cells, and limit the scores of the other categories' cells.

    Those stay below `least`, the lowest of the chosen categories' best new scores. They exceed the threshold only
    if all chosen categories do.
    """
    others = scored.cells.only(~np.isin(scored.cells.category, chosen))
    capped = others._replace(score=np.minimum(others.score, np.nextafter(least, np.float32(-np.inf))))
    capped = capped.only(capped.score > threshold)
    joined = Cells(*(np.concatenate(columns) for columns in zip(capped, again.cells, strict=True)))
    anchor = scored.anchor.copy()
    anchor[chosen] = again.anchor[chosen]
    return Scored(anchor, joined.only(np.lexsort((joined.end, joined.start, joined.category))))
