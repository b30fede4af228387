"""Heats and a final: how to choose from more categories than a piece had in training.

Names in a piece attend to each other, and in training each piece of labels has the right one. A score therefore
compares a category only with the others of its piece. In a piece without the right category, the best score is too
high. So the categories are first scored in several pieces (heats), and then the best of them together in one piece
(the final).

Labels have one final for the whole text, with as many categories as a piece had in training. Mentions have one in
each window (`ubert.inference.scoring`), with as many categories as a heat. Questions have no final, because each
has its own answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from ubert.encoder.ragged import Ids
from ubert.objectives import Cells, Query, Scored, Scores


def in_heats(queries: Sequence[Query], most: int, score: Callable[[list[Query]], list[Scored]]) -> list[Scored]:
    """Score queries, in order. A query about more than `most` labels has heats and a final."""
    divided = [heats(query, most) for query in queries]
    parts = iter(score([heat for of_query in divided for heat in of_query]))
    scored = [joined(list(islice(parts, len(of_query)))) for of_query in divided]
    chosen = {i: finalists(scored[i].anchor, most) for i, of_query in enumerate(divided) if len(of_query) > 1}
    finals = score([only(queries[i], best) for i, best in chosen.items()])
    for (i, best), final in zip(chosen.items(), finals, strict=True):
        scored[i] = with_final(scored[i], best, final)
    return scored


def heats(query: Query, most: int) -> list[Query]:
    """Divide a query about labels into several with at most `most` categories each.

    A stacked piece (`most` is 1) has a single category, so its scores need no final to be comparable.
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
    """Concatenate the scores of heats, category by category."""
    return scored[0]._replace(anchor=np.concatenate([heat.anchor for heat in scored]))


def finalists(best: Scores, most: int) -> Ids:
    """Return the `most` categories with the highest scores, ascending."""
    return np.sort(np.argsort(-best, kind="stable")[:most]).astype(np.int32)


def with_final(scored: Scored, chosen: Ids, final: Scored) -> Scored:
    """Give the finalists their scores in the final. The others get less than the lowest of these."""
    anchor = np.minimum(scored.anchor, np.nextafter(final.anchor.min(), np.float32(-np.inf)))
    anchor[chosen] = final.anchor
    return scored._replace(anchor=anchor)


def with_final_of_mentions(
    scored: Scored, chosen: Ids, final: Scored, least: np.float32, threshold: float
) -> Scored:
    """Give the finalists their cells in the final, and limit the scores of the other categories' cells.

    Those stay below `least`, the score of the lowest finalist's best cell in the final. They exceed the threshold
    only if all finalists do.
    """
    others = scored.cells.only(~np.isin(scored.cells.category, chosen))
    capped = others._replace(score=np.minimum(others.score, np.nextafter(least, np.float32(-np.inf))))
    capped = capped.only(capped.score > threshold)
    joined = Cells(*(np.concatenate(columns) for columns in zip(capped, final.cells, strict=True)))
    anchor = scored.anchor.copy()
    anchor[chosen] = final.anchor[chosen]
    return Scored(anchor, joined.only(np.lexsort((joined.end, joined.start, joined.category))))
