"""Build the mixture that a recipe trains on: its own, or its own with a replayed share of another one."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection
from pathlib import Path

from pipelines.audit.held_out import covered
from pipelines.mixtures.mix import mix
from pipelines.specs import mixture
from pipelines.store.storage import StorePath
from pipelines.store.store import Store
from ubert.schema.errors import UserError
from ubert.schema.specs.mixture import Mixture, MixtureSource
from ubert.schema.specs.recipe import Recipe


def trained_on(recipe: Recipe, *, root: StorePath, specs: Path) -> Mixture:
    """Return the mixture of a recipe. With `replay`, it keeps the number of draws from the recipe's own mixture,
    and adds draws from the other one. If both draw from the same split, only the recipe's own draws count. The
    corpora that the other one holds out are held out, except those that the recipe's own mixture draws from.

    Raises:
        UserError: there is no such mixture, it can't be drawn, or one of two mixtures with `replay` has phases.
    """
    own = mixture(recipe.mixture, specs)
    if recipe.replay is None:
        return own
    share, other = recipe.replay.share, mixture(recipe.replay.mixture, specs)
    if own.phases or other.phases:
        named = own.name if own.phases else other.name
        raise UserError(
            f"recipe {recipe.name}: replay: mixture {named} has `phases`, which are not supported; remove them"
        )
    again = _without(other, {leaf.name for leaf in own.leaves})
    if not again.sources:
        raise UserError(
            f"recipe {recipe.name}: replay: mixture {own.name} draws from all of {other.name}; remove `replay`"
        )
    corpora = {name: manifest for name, (_, manifest) in Store(root.absolute()).currents("corpora").items()}
    drawn = {leaf.corpus for leaf in own.leaves}
    still_held = [
        name
        for wanted in other.hold_out
        for name in (fnmatch.filter(corpora, wanted) or [wanted])
        if drawn.isdisjoint(covered([name], corpora))
    ]
    draws = sum(source.draws for source in mix(own, root=root).sources)
    return Mixture(
        name=recipe.shards,
        description=f"{own.name}, and a share of {share:g} of {other.name}.",
        policy="equal",  # so that weights are shares
        size=round(draws / (1 - share)),
        seed=own.seed,
        leaks=own.leaks,
        duplicates=own.duplicates,
        suspects=own.suspects,
        evidence=own.evidence,
        hold_out=list(dict.fromkeys([*own.hold_out, *still_held])),
        licences=own.licences,
        sources=[MixtureSource(mixture=own, weight=1 - share), MixtureSource(mixture=again, weight=share)],
    )


def _without(mixture: Mixture, names: Collection[str]) -> Mixture:
    """Return a mixture without the leaves of these names, and without mixtures that have no other."""
    sources = []
    for source in mixture.sources:
        inside = source.mixture and _without(source.mixture, names)
        if source.name not in names if inside is None else inside.sources:
            sources.append(source.model_copy(update={"mixture": inside}))
    return mixture.model_copy(update={"sources": sources})
