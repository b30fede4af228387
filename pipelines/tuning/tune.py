"""Find the weights of a mixture by trials of random weights, a regression, and runs that confirm its prediction.

Shapes: N trials, K sources, C corpora.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import ttest_rel

from pipelines.store.storage import StorePath
from pipelines.store.store import Store, now, write_json
from pipelines.tuning.fit import FOLDS, HELD_BACK, SIGNIFICANCE, Fit, best, fit
from pipelines.tuning.proxy import explained, run_all
from pipelines.tuning.setup import Setup
from pipelines.tuning.space import Space, drawn_shares, space, weighted
from ubert.schema.errors import UserError
from ubert.schema.manifest import fingerprint
from ubert.schema.specs.mixture import Mixture

MIN_TRIALS = 2 * FOLDS * HELD_BACK // (HELD_BACK - 1)  # trials: two in each fold, plus those that are held back


class Confirmed(NamedTuple):
    """Validation losses by corpus, averaged over seeds, of the mixture as written and of the found one.

    `change` is the mean log ratio of both over targets and seeds. `chance` is its p-value (paired t-test over
    seeds).
    """

    own: dict[str, float]
    found: dict[str, float]
    change: float
    chance: float
    seeds: int


class Tuned(NamedTuple):
    """The result of a search. `died` has the error messages of failed runs by key."""

    setup: Setup
    space: Space
    fit: Fit
    shares: list[float]
    confirmed: Confirmed
    trials: int
    died: dict[str, str]
    evidence: str

    @property
    def is_better(self) -> bool:
        """Return whether the found mixture is significantly better than the written one."""
        return self.confirmed.change < 0 and self.confirmed.chance < SIGNIFICANCE

    def mixture(self, name: str) -> Mixture:
        """Return the found mixture under a name."""
        setup = self.setup
        description = (
            f"{setup.mixture.name} with the weights that `ubert tune` found for {', '.join(setup.targets)}: "
            f"{self.trials} trials of {setup.recipe.steps} steps, evidence {self.evidence}. {verdict(self)}"
        )
        return weighted(setup.mixture, self.space.size, self.shares, name=name, description=description)


def tune(
    setup: Setup, *, trials: int, seeds: int, seed: int, root: StorePath, address: str | None = None
) -> Tuned:
    """Search the weights of a mixture. Finished runs stay in the store, so that an interrupted search resumes, and
    a later one with more trials reuses them.

    Args:
        seeds: number of seeds of the confirming runs, which differ from the seed of the trials.
        seed: seed of the draws and of the trials.

    Raises:
        UserError: too few trials are asked for or finish, or all confirming runs of a mixture fail.
    """
    if trials < MIN_TRIALS:
        raise UserError(f"--trials {trials}: a fit needs at least {MIN_TRIALS}")
    bounds = space(setup.mixture, setup.drawn)
    if len(bounds.names) == 1:
        raise UserError(
            f"mixture {setup.mixture.name} has only one source, so there are no weights to find; add others"
        )
    drawn = [drawn_shares(bounds, seed, 0, trial) for trial in range(trials)]
    variants = [weighted(setup.mixture, bounds.size, shares, name=setup.mixture.name) for shares in drawn]
    proxies = [setup.proxy(variant, seed) for variant in variants]
    finished = run_all(proxies, root, address, "trials")
    done = [i for i, proxy in enumerate(proxies) if proxy.key in finished.losses]
    if len(done) < MIN_TRIALS:
        more = f" ({explained(finished.died)})" if finished.died else ""
        raise UserError(f"{len(done)} trials finished{more}, but a fit needs {MIN_TRIALS}; raise --trials")
    corpora = [name for name, _ in setup.measured]
    losses = [finished.losses[proxies[i].key] for i in done]
    found = fit(
        np.array([drawn[i] for i in done]),
        np.array([[of_trial[name] for name in corpora] for of_trial in losses]),
        corpora,
        setup.targets,
    )
    shares = best(found, bounds, corpora, setup.targets, seed)
    winner = weighted(setup.mixture, bounds.size, shares, name=setup.mixture.name)
    confirmed, died = _confirm(setup, winner, range(seed + 1, seed + 1 + seeds), root, address)
    keys = [proxies[i].key for i in done]
    tuned = Tuned(
        setup,
        bounds,
        found,
        shares.tolist(),
        confirmed,
        len(done),
        finished.died | died,
        fingerprint(setup.drawn.fingerprint, setup.targets, keys, winner.meaning),
    )
    _write(tuned, keys, Store(root.absolute()))
    return tuned


def verdict(tuned: Tuned) -> str:
    """Describe the result of the search in a sentence."""
    change, name = float(np.expm1(tuned.confirmed.change)), tuned.setup.mixture.name
    if tuned.is_better:
        return f"Its mean loss is {-change:.1%} lower than that of {name} (p = {tuned.confirmed.chance:.2g})."
    why = f"its mean loss differs from that of {name} by {change:+.1%}, p = {tuned.confirmed.chance:.2g}"
    if tuned.fit.is_chance:
        why += ", and the fit doesn't predict the trials that were held back"
    return f"The search found no significant improvement: {why}."


def _confirm(
    setup: Setup, winner: Mixture, seeds: Sequence[int], root: StorePath, address: str | None
) -> tuple[Confirmed, dict[str, str]]:
    """Train both mixtures with seeds that no trial had. Return the comparison, and the errors of failed runs."""
    pairs = [(setup.proxy(setup.mixture, seed), setup.proxy(winner, seed)) for seed in seeds]
    finished = run_all([proxy for pair in pairs for proxy in pair], root, address, "confirm")
    losses = finished.losses
    both = [(losses[own.key], losses[found.key]) for own, found in pairs if {own.key, found.key} <= losses.keys()]
    if not both:
        raise UserError(f"no seed has finished for both mixtures; {explained(finished.died)}")
    own, found = ([_target(setup, of_side) for of_side in side] for side in zip(*both, strict=True))
    alike = len(both) == 1 or found == own
    chance = 1.0 if alike else float(ttest_rel(found, own, alternative="less").pvalue)
    of_own, of_found = (
        {name: mean(of_seed[name] for of_seed in side) for name, _ in setup.measured}
        for side in zip(*both, strict=True)
    )
    return Confirmed(of_own, of_found, mean(found) - mean(own), chance, len(both)), finished.died


def _target(setup: Setup, losses: Mapping[str, float]) -> float:
    return mean(log(losses[name]) for name in setup.targets)


def _write(tuned: Tuned, keys: Sequence[str], store: Store) -> None:
    """Write the evidence of a search: the keys of its trials, the fit and the confirmation."""
    content: dict[str, Any] = {
        "mixture": tuned.setup.mixture.name,
        "mixture_fingerprint": tuned.setup.drawn.fingerprint,
        "targets": tuned.setup.targets,
        "steps": tuned.setup.recipe.steps,
        "trials": list(keys),
        "died": list(tuned.died.values()),
        "shares": dict(zip(tuned.space.names, tuned.shares, strict=True)),
        "fit": {name: part for name, part in tuned.fit._asdict().items() if name != "regressor"},
        "confirmed": tuned.confirmed._asdict(),
        "created": now(),
    }
    write_json(store.root / "tunings" / f"{tuned.evidence}.json", content)
