"""Define the shares that the sources of a mixture may have, and draw them at random.

Shapes: K sources.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from ubert.schema.manifest import MixtureManifest, RealisedSource
from ubert.schema.specs.mixture import Mixture, MixtureSource

Floats = npt.NDArray[np.float64]
MIN_CONCENTRATION, MAX_CONCENTRATION = (
    0.25,
    4.0,
)  # range of a Dirichlet's concentration / K: from few sources to nearly equal shares

_FAR = 60.0  # the logarithm of a factor that moves every share to its bound


class Space(NamedTuple):
    """Shares of draws [K] of a mixture's sources.

    `own_K` are the shares of the mixture as written, and `natural_K` those in proportion to records. `least_K` and
    `most_K` are the bounds that follow from `cap` and `max_copies`. `size` is the mixture's number of draws.
    """

    names: list[str]
    own_K: Floats
    natural_K: Floats
    least_K: Floats
    most_K: Floats
    size: int


def space(mixture: Mixture, drawn: MixtureManifest) -> Space:
    """Return the shares that the sources of a mixture may have, at its present number of draws."""
    size = sum(source.draws for source in drawn.sources)
    realised = dict(zip((leaf.name for leaf in mixture.leaves), drawn.sources, strict=True))
    draws, records, least, most = [], [], [], []
    for source in mixture.sources:
        leaves = source.mixture.leaves if source.mixture else [source]
        taken = {leaf.name: realised[leaf.name].draws for leaf in leaves}
        inside = sum(taken.values())
        pools = {leaf.name: pool_of(leaf, realised[leaf.name]) for leaf in leaves}
        draws.append(inside)
        records.append(sum(pools.values()))
        # each leaf gets a fixed part of its source's draws: at least one draw, and at most one fewer than its
        # copies allow, because shares are rounded to draws
        least.append(max(inside / taken[leaf.name] for leaf in leaves))
        most.append(min((pools[leaf.name] * leaf.max_copies - 1) * inside / taken[leaf.name] for leaf in leaves))
    own_K = np.array(draws) / size
    return Space(
        [source.name for source in mixture.sources],
        own_K,
        np.array(records) / sum(records),
        np.minimum(np.array(least) / size, own_K),
        np.clip(np.array(most) / size, own_K, 1.0),  # the present share is always allowed
        size,
    )


def pool_of(leaf: MixtureSource, source: RealisedSource) -> int:
    """Return the number of records of a source that may be drawn."""
    dropped = source.dropped_leaks + source.dropped_duplicates + source.dropped_held_out + source.dropped_suspects
    left = source.available - dropped
    return min(left, leaf.cap or left)


def drawn_shares(space: Space, *key: int) -> Floats:
    """Draw shares [K] around the natural ones, within the bounds. The key determines the draw.

    As in RegMix's code, the centre of the Dirichlet distribution is the square root of the natural shares, because
    otherwise small sources would hardly be tried. Its concentration varies from draw to draw.
    """
    random = np.random.default_rng(key)
    centre_K = np.sqrt(space.natural_K)
    concentration = len(centre_K) * math.exp(
        random.uniform(math.log(MIN_CONCENTRATION), math.log(MAX_CONCENTRATION))
    )
    return within(space, random.dirichlet(concentration * centre_K / centre_K.sum()))


def within(space: Space, shares_K: Floats) -> Floats:
    """Scale all shares by one factor and clip them to the bounds, so that they sum to 1."""
    positive_K = np.maximum(shares_K, 1e-12)

    def scaled(log: float) -> Floats:
        return np.clip(math.exp(log) * positive_K, space.least_K, space.most_K)

    def excess(log: float) -> float:
        return float(scaled(log).sum()) - 1

    return scaled(brentq(excess, -_FAR, _FAR) if excess(_FAR) > 0 else _FAR)


def weighted(mixture: Mixture, size: int, shares: Iterable[float], **changed: str) -> Mixture:
    """Return the mixture with these shares in place of its policy. `changed` has a new name or description."""
    policy = {"policy", "temperature", "scale", "maximum", "by", "sources"}
    sources = [
        source.model_copy(update={"weight": float(f"{share:.6g}")})
        for source, share in zip(mixture.sources, shares, strict=True)
    ]
    kept = {**mixture.model_dump(exclude=policy), **changed}
    return Mixture(**{**kept, "policy": "equal", "size": size, "sources": sources})
