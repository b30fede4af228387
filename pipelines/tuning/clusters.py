"""Groups of sources that help one another.

Shapes: K sources.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
from scipy.spatial.distance import squareform

from pipelines.tuning.space import Floats


def clustered(change: Sequence[Floats | None]) -> tuple[list[int], list[list[int]]]:
    """The order of K sources that has alike ones side by side, and groups of them, by average linkage.

    Two sources are as far apart as each raises the other's loss, compared with what sources do to that loss on
    average. Groups are joined while that is below 0: they suit one another better than any two sources would.

    Args:
        change: of each source, the changes [K] of its corpus's loss; None where it wasn't measured.
    """
    count = len(change)
    apart_KK = np.full((count, count), np.nan)
    for k, of_source in enumerate(change):
        if of_source is not None and not np.isnan(of_source).all():
            apart_KK[k] = of_source - np.nanmean(of_source)
    both = np.stack([apart_KK, apart_KK.T])
    known = ~np.isnan(both)
    mutual_KK = np.where(known, both, 0).sum(0) / np.maximum(
        1, known.sum(0)
    )  # nothing is known: neither near nor far
    np.fill_diagonal(mutual_KK, 0)
    lowest = min(0.0, float(mutual_KK.min()))
    far_KK = mutual_KK - lowest  # distances are not negative
    np.fill_diagonal(far_KK, 0)
    tree = linkage(squareform(far_KK, checks=False), "average")
    number_K = fcluster(tree, -lowest - 1e-12, "distance")
    order = leaves_list(tree).tolist()
    groups: dict[int, list[int]] = {}
    for k in order:
        groups.setdefault(int(number_K[k]), []).append(k)
    return order, list(groups.values())
