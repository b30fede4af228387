"""Compute exact numbers of draws from a mixture's policy and numbers of records, the same on every machine.

Rates are quantised once, and all later steps use fractions, so that floating-point rounding has no effect.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction

from ubert.schema.errors import UserError
from ubert.schema.specs.mixture import Mixture, MixtureSource, Phase

_QUANTUM = 1 << 20
Pools = Mapping[str, int]  # records that may be drawn, by name of the leaf
Group = Callable[[Mixture, MixtureSource], Hashable]


def quotas(mixture: Mixture, pools: Pools, group: Group) -> dict[str, list[int]]:
    """Return the number of draws from each leaf in each phase, by name of the leaf. `size` is apportioned by the
    largest-remainder method; ties go to the first name.

    Args:
        group: returns the group of a source of a mixture, as the mixture's `by` defines it.

    Raises:
        UserError: a source would get no draw, or more than `max_copies` allows.
    """
    size = mixture.size or counted(mixture, pools)
    phases = mixture.phases or [Phase(share=1.0)]
    lengths = {f"{i:06}": Fraction(phase.share) for i, phase in enumerate(phases)}
    shares = [_shares(mixture, pools, group, phase.weights) for phase in phases]
    for i, of_phase in enumerate(shares):
        if not any(of_phase.values()):
            raise UserError(f"mixture {mixture.name}: phases.{i}: all weights are 0; raise one of them")
    sizes = apportion(size, lengths).values()
    drawn = [apportion(length, of_phase) for length, of_phase in zip(sizes, shares, strict=True)]
    found = {leaf.name: [draws[leaf.name] for draws in drawn] for leaf in mixture.leaves}
    for leaf in mixture.leaves:
        parts = [length * of_phase[leaf.name] for length, of_phase in zip(lengths.values(), shares, strict=True)]
        share = sum(parts, Fraction()) / sum(lengths.values())
        _check(mixture, leaf, pools[leaf.name], sum(found[leaf.name]), share, size)
    return found


def _check(mixture: Mixture, leaf: MixtureSource, pool: int, quota: int, share: Fraction, size: int) -> None:
    where = f"mixture {mixture.name}: source {leaf.name}: its {pool} records get {quota} of {size} draws"
    phases = max(1, len(mixture.phases))
    if share == 0:
        raise UserError(f"{where}: its weight is 0 in every phase; raise the weight, or remove the source")
    if quota == 0:
        raise UserError(f"{where}; raise `size` to {math.ceil(phases / share)} or more, or remove the source")
    most = pool * leaf.max_copies
    if quota > most:
        cap = " (raise its `cap` for more records)" if leaf.cap == pool else ""
        weight = ", or lower its `weight`" if leaf.weight != 1 else ""
        lower = math.floor((most - phases + 1) / share)
        smaller = f", or lower `size` to {lower}" if lower > 0 else ""
        raise UserError(
            f"{where}, but {leaf.max_copies} copies of each give only {most}{cap}; raise its `max_copies` to "
            f"{-(-quota // pool)}{weight}{smaller}"
        )


def counted(mixture: Mixture, pools: Pools) -> int:
    """Return the default `size`: the sum of min(n * scale, maximum)."""
    return max(1, round(sum(_bounded(mixture, _number(source, pools)) for source in mixture.sources)))


def apportion(size: int, shares: Mapping[str, Fraction]) -> dict[str, int]:
    """Split `size` in proportion to `shares` by the largest-remainder method; ties go to the first name."""
    whole = sum(shares.values())
    exact = {name: size * share / whole for name, share in shares.items()}
    draws = {name: math.floor(of_name) for name, of_name in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (draws[name] - exact[name], name))
    for name in by_remainder[: size - sum(draws.values())]:
        draws[name] += 1
    return draws


def balanced(
    phases: Sequence[int], sizes: Mapping[str, int], balance: float, max_copies: int
) -> dict[str, list[int]]:
    """Return the number of draws from each category in each phase, in proportion to n^(1/balance). No record is
    drawn more than `max_copies` times; the other categories get what exceeds this limit.

    Args:
        phases: the draws of the source in each phase; their sum is at most `max_copies` times the sum of `sizes`.
        sizes: number of records n by category.
    """
    rates = {name: _quantised(math.pow(size, 1 / balance)) for name, size in sizes.items()}
    found: dict[str, list[int]] = {name: [] for name in sizes}
    room = {name: size * max_copies for name, size in sizes.items()}
    for quota in phases:
        draws = _filled(quota, rates, room)
        for name in sizes:
            found[name].append(draws.get(name, 0))
            room[name] -= draws.get(name, 0)
    return found


def _filled(quota: int, rates: Mapping[str, Fraction], room: Mapping[str, int]) -> dict[str, int]:
    """Split `quota` by rates. If a part exceeds the capacity (`room`) of its name, the name gets its capacity, and
    the rest is split again among the others."""
    open_, full = dict(rates), dict[str, int]()
    while True:
        draws = apportion(quota - sum(full.values()), open_) if open_ else {}
        over = [name for name, count in draws.items() if count > room[name]]
        if not over:
            return full | draws
        for name in over:
            full[name] = room[name]
            del open_[name]


def _shares(mixture: Mixture, pools: Pools, group: Group, weights: Mapping[str, float]) -> dict[str, Fraction]:
    """Return the shares of the leaves, by name. They sum to 1, or are all 0.

    A group's share is proportional to the policy's rate for its n records. A source's share of its group is
    proportional to weight * n.
    """
    numbers = {source.name: _number(source, pools) for source in mixture.sources}
    named = {source.name: group(mixture, source) for source in mixture.sources}
    groups = Counter[Hashable]()
    for source in mixture.sources:
        groups[named[source.name]] += numbers[source.name]
    rates = {
        source.name: Fraction(weights.get(source.name, weights.get(source.corpus, source.weight)))
        * _rate(mixture, groups[named[source.name]])
        * Fraction(numbers[source.name], groups[named[source.name]])
        for source in mixture.sources
    }
    whole = sum(rates.values()) or Fraction(1)
    shares: dict[str, Fraction] = {}
    for source in mixture.sources:
        inside = _shares(source.mixture, pools, group, {}) if source.mixture else {source.name: Fraction(1)}
        shares |= {name: share * rates[source.name] / whole for name, share in inside.items()}
    return shares


def _number(source: MixtureSource, pools: Pools) -> int:
    """Return n: the records of a source; for a nested mixture its `size`, or the sum over its sources."""
    if source.mixture is None:
        return pools[source.name]
    return source.mixture.size or sum(_number(inside, pools) for inside in source.mixture.sources)


def _bounded(mixture: Mixture, number: int) -> float:
    return min(number * mixture.scale, mixture.maximum or math.inf)


def _rate(mixture: Mixture, number: int) -> Fraction:
    match mixture.policy:
        case "equal":
            return Fraction(1)
        case "proportional":
            return _quantised(_bounded(mixture, number))
        case "temperature":
            return _quantised(math.pow(_bounded(mixture, number), 1 / mixture.temperature))


def _quantised(rate: float) -> Fraction:
    return Fraction(max(1, round(rate * _QUANTUM)), _QUANTUM)
