"""Set up what all proxy runs of a mixture share: its data, the recipe, and the corpora to evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pipelines.mixtures.mix import mix
from pipelines.specs import recipe as load_recipe
from pipelines.store.storage import StorePath
from pipelines.store.store import Store
from pipelines.training.short_run import short, weights_of_encoder
from pipelines.tuning.proxy import Proxy
from ubert.schema.errors import UserError
from ubert.schema.manifest import CorpusManifest, MixtureManifest
from ubert.schema.specs.mixture import Mixture
from ubert.schema.specs.recipe import Recipe

UNLABELLED = frozenset({"text", "seq2seq"})  # tasks that the structure table doesn't learn


class Setup(NamedTuple):
    """The shared settings of proxy runs. `drawn` is the manifest of the mixture as written. `targets` are the
    user's corpora, a subset of `measured`."""

    mixture: Mixture
    drawn: MixtureManifest
    recipe: Recipe
    weights: str
    measured: tuple[tuple[str, str], ...]
    targets: list[str]
    limit: int

    def proxy(self, mixture: Mixture, seed: int) -> Proxy:
        """Return a run on a variant of the mixture."""
        recipe = self.recipe.model_copy(update={"seed": seed})
        return Proxy(mixture, self.drawn.fingerprint, recipe, self.weights, self.measured, self.limit)


def setup(
    mixture: Mixture, recipe: Recipe, *, steps: int, targets: Sequence[str] | None, limit: int, root: StorePath
) -> Setup:
    """Check all arguments before anything runs, and return the setup.

    Args:
        targets: corpora whose loss counts; default: all of the mixture.
        limit: number of validation records of each corpus to evaluate.

    Raises:
        UserError: a corpus is not ingested, has no validation split or can't be evaluated, or the mixture or the
            recipe has settings that proxy runs don't support.
    """
    _check(mixture, recipe)
    store = Store(root.absolute())
    corpora = {leaf.corpus: store.current("corpora", leaf.corpus)[1] for leaf in mixture.leaves}
    if unlabelled := [name for name, manifest in corpora.items() if manifest.task in UNLABELLED]:
        raise UserError(
            f"mixture {mixture.name}: proxy runs train the structure table, and {', '.join(unlabelled)} has no "
            "labels for it; name a mixture without it"
        )
    asked = {name: store.current("corpora", name)[1] for name in targets or corpora}
    trained = {leaf.corpus for leaf in mixture.leaves if leaf.split == "validation"}
    able = [name for name, manifest in corpora.items() if not _obstacle(manifest, trained)]
    for name, manifest in asked.items():
        if why := _obstacle(manifest, trained):
            others = ",".join(one for one in able if not targets or one in targets)
            raise UserError(
                f"corpus {name} {why}; "
                + (f"measure others (--for {others}), or " if others else "")
                + "list files of `split: validation` in its spec and ingest it again"
            )
    measured = {**{name: corpora[name] for name in able}, **asked}
    return Setup(
        mixture,
        mix(mixture, root=root, dry_run=True),
        short(recipe, name="proxy", steps=steps, epochs=None),
        weights_of_encoder(recipe.encoder),
        tuple((name, manifest.fingerprint) for name, manifest in measured.items()),
        list(asked),
        limit,
    )


def proxy_recipe(given: str | None, mixture: str, specs: Path) -> Recipe:
    """Return the recipe that a user named, else the one with the mixture's name, else one of defaults.

    Raises:
        UserError: there is no such recipe, or it has errors.
    """
    if given is None and not (specs / "recipes" / f"{mixture}.yaml").is_file():
        return Recipe(name=mixture, mixture=mixture, steps=1)
    return load_recipe(given or mixture, specs)


def _check(mixture: Mixture, recipe: Recipe) -> None:
    if mixture.phases:
        raise UserError(
            f"mixture {mixture.name} has `phases`, whose weights would replace those of the trials; remove them"
        )
    if [*recipe.objectives] != ["structure"]:
        raise UserError(
            f"recipe {recipe.name}: proxy runs train the structure table alone, and `objectives` are "
            f"{', '.join(recipe.objectives)}; name another recipe with --recipe"
        )
    if recipe.ancestor or recipe.continue_from or recipe.replay:
        raise UserError(
            f"recipe {recipe.name}: proxy runs begin at the encoder and have no `from`, `continue_from` or "
            "`replay`; name another recipe with --recipe"
        )


def _obstacle(manifest: CorpusManifest, trained: set[str]) -> str:
    """Describe why the loss of a corpus can't be measured; an empty string if it can."""
    if manifest.task in UNLABELLED:
        return f"is of task {manifest.task}, which has no labels to measure the loss of"
    if not any(counts.kept for counts in manifest.splits if counts.split == "validation"):
        return "has no validation split to measure its loss on"
    if manifest.name in trained:
        return "has its validation split among the sources of the mixture"
    return ""
