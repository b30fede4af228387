"""The weights that the sources of a mixture may have, and draws of them.

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
from ubert.schema.mixture import Mixture, MixtureSource

Floats = npt.NDArray[np.float64]
LEAST, MOST = 0.25, 4.0  # concentration of a Dirichlet draw, by K: from a few sources to nearly all alike

_FAR = 60.0  # the logarithm of a factor that takes every share to its bound


class Space(NamedTuple):
    """Shares of draws [K] of a mixture's sources: `own`, those of the mixture as it is written; `natural`, in
    proportion to records; and the bounds that `cap` and `max_copies` leave. `size`: draws of the mixture."""

    names: list[str]
    own_K: Floats
    natural_K: Floats
    least_K: Floats
    most_K: Floats
    size: int


def space(mixture: Mixture, drawn: MixtureManifest) -> Space:
    """The shares that the sources of a mixture may have in as many draws as it has now."""
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
        # each leaf has a fixed part of what its source gets: one draw at least, and one fewer than its copies at
        # most, as shares are rounded to draws
        least.append(max(inside / taken[leaf.name] for leaf in leaves))
        most.append(min((pools[leaf.name] * leaf.max_copies - 1) * inside / taken[leaf.name] for leaf in leaves))
    own_K = np.array(draws) / size
    return Space(
        [source.name for source in mixture.sources],
        own_K,
        np.array(records) / sum(records),
        np.minimum(np.array(least) / size, own_K),
        np.clip(np.array(most) / size, own_K, 1.0),  # what it has now it may have
        size,
    )


def pool_of(leaf: MixtureSource, source: RealisedSource) -> int:
    """How many records of a corpus may be drawn."""
    dropped = source.dropped_leaks + source.dropped_duplicates + source.dropped_held_out + source.dropped_suspects
    left = source.available - dropped
    return min(left, leaf.cap or left)


def drawn_shares(space: Space, *key: int) -> Floats:
    """Shares [K] drawn around the natural ones, within the bounds: a function of the key.

    As in RegMix's code, the centre of the Dirichlet distribution is the square root of the natural shares, or
    small sources would hardly be tried, and its concentration varies from draw to draw.
    """
    random = np.random.default_rng(key)
    centre_K = np.sqrt(space.natural_K)
    concentration = len(centre_K) * math.exp(random.uniform(math.log(LEAST), math.log(MOST)))
    return within(space, random.dirichlet(concentration * centre_K / centre_K.sum()))


def within(space: Space, shares_K: Floats) -> Floats:
    """The shares, scaled alike as far as the bounds allow, so that they sum to 1."""
    positive_K = np.maximum(shares_K, 1e-12)

    def scaled(log: float) -> Floats:
        return np.clip(math.exp(log) * positive_K, space.least_K, space.most_K)

    def excess(log: float) -> float:
        return float(scaled(log).sum()) - 1

    return scaled(brentq(excess, -_FAR, _FAR) if excess(_FAR) > 0 else _FAR)


def weighted(mixture: Mixture, size: int, shares: Iterable[float], **changed: str) -> Mixture:
    """The mixture with these shares of draws in place of its policy; `changed` are its name and description."""
    policy = {"policy", "temperature", "scale", "maximum", "by", "sources"}
    sources = [
        source.model_copy(update={"weight": float(f"{share:.6g}")})
        for source, share in zip(mixture.sources, shares, strict=True)
    ]
    kept = {**mixture.model_dump(exclude=policy), **changed}
    return Mixture(**{**kept, "policy": "equal", "size": size, "sources": sources})
