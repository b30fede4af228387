"""Cluster sources that help one another.

Shapes: K sources.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
from scipy.spatial.distance import squareform

from pipelines.tuning.space import Floats


def clustered(change: Sequence[Floats | None]) -> tuple[list[int], list[list[int]]]:
    """Cluster K sources by average linkage. Return an order with similar sources side by side, and the groups.

    The distance of two sources is how much each raises the other's loss, relative to the mean effect of all
    sources on that loss. Groups are merged while their distance is below 0, that is, better than the mean.

    Args:
        change: the changes [K] of each source's own corpus; None if they weren't measured.
    """
    count = len(change)
    apart_KK = np.full((count, count), np.nan)
    for k, of_source in enumerate(change):
        if of_source is not None and not np.isnan(of_source).all():
            apart_KK[k] = of_source - np.nanmean(of_source)
    both = np.stack([apart_KK, apart_KK.T])
    known = ~np.isnan(both)
    mutual_KK = np.where(known, both, 0).sum(0) / np.maximum(1, known.sum(0))  # 0 if nothing was measured
    np.fill_diagonal(mutual_KK, 0)
    lowest = min(0.0, float(mutual_KK.min()))
    far_KK = mutual_KK - lowest  # distances must not be negative
    np.fill_diagonal(far_KK, 0)
    tree = linkage(squareform(far_KK, checks=False), "average")
    number_K = fcluster(tree, -lowest - 1e-12, "distance")
    order = leaves_list(tree).tolist()
    groups: dict[int, list[int]] = {}
    for k in order:
        groups.setdefault(int(number_K[k]), []).append(k)
    return order, list(groups.values())
