"""Regressions of validation losses on the shares of a mixture (RegMix, Liu et al. 2024).

Shapes: N trials, K sources, C corpora, S candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

from pipelines.tuning.space import Floats, Space, drawn_shares
from ubert.schema.errors import UserError

HELD_BACK = 4  # every fourth trial
FOLDS = 5
CHANCE = 0.05  # probability of a result by chance from which it counts as nothing
CANDIDATES, BEST = 4_000, 40  # mixtures whose losses are predicted, and those of them whose mean is found


class Rank(NamedTuple):
    """Spearman's correlation of predicted and true losses, and the probability of one as high by chance."""

    correlation: float
    chance: float


class Fit(NamedTuple):
    """`validated`: the correlation of each kind of regression in a cross-validation; `kind`: the better one;
    `held_back`: its correlation on trials that neither the fit nor the choice has seen, for the mean of the
    targets; `corpora`: the same of each corpus; `predicted_H` and `true_H`: mean log losses of the held-back
    trials; `regressor`: fitted to all trials."""

    kind: str
    validated: dict[str, float]
    held_back: Rank
    corpora: dict[str, Rank]
    predicted_H: list[float]
    true_H: list[float]
    regressor: Any

    @property
    def is_chance(self) -> bool:
        """Whether a fit of nothing would be as good on the trials that were held back."""
        return self.held_back.chance >= CHANCE


def fit(shares_NK: Floats, loss_NC: Floats, corpora: Sequence[str], targets: Sequence[str]) -> Fit:
    """Fit both kinds of regression, choose one, and fit it anew to all trials.

    What is predicted are the logarithms of losses: their mean over corpora is a mean of ratios, to which a corpus
    with a large loss adds no more than others.

    Raises:
        UserError: scikit-learn is missing.
    """
    try:
        from sklearn.model_selection import KFold, cross_val_predict
    except ModuleNotFoundError:
        raise UserError("`ubert tune` needs the package scikit-learn; run pip install 'ubert[tune]'") from None
    log_NC = np.log(loss_NC)
    wanted = [corpora.index(name) for name in targets]
    held_N = np.arange(len(shares_NK)) % HELD_BACK == HELD_BACK - 1
    shares, logs = shares_NK[~held_N], log_NC[~held_N]
    folds = KFold(FOLDS, shuffle=True, random_state=0)
    validated = {
        kind: rank(
            cross_val_predict(regressor, shares, logs, cv=folds)[:, wanted].mean(1), logs[:, wanted].mean(1)
        ).correlation
        for kind, regressor in _regressors().items()
    }
    kind = max(validated, key=lambda name: validated[name])
    predicted_HC = _regressors()[kind].fit(shares, logs).predict(shares_NK[held_N])
    true_HC = log_NC[held_N]
    predicted_H, true_H = predicted_HC[:, wanted].mean(1), true_HC[:, wanted].mean(1)
    return Fit(
        kind,
        validated,
        rank(predicted_H, true_H),
        {name: rank(predicted_HC[:, c], true_HC[:, c]) for c, name in enumerate(corpora)},
        predicted_H.tolist(),
        true_H.tolist(),
        _regressors()[kind].fit(shares_NK, log_NC),
    )


def best(found: Fit, space: Space, corpora: Sequence[str], targets: Sequence[str], seed: int) -> Floats:
    """The shares [K] with the lowest predicted mean loss of the targets: the mean of the best candidates, as the
    very best one owes much to the regression's errors. Candidates are drawn as trials are, since a regression
    knows nothing beyond these."""
    shares_SK = np.array([drawn_shares(space, seed, 1, i) for i in range(CANDIDATES)])
    predicted_SC = found.regressor.predict(shares_SK)
    predicted_S = predicted_SC[:, [corpora.index(name) for name in targets]].mean(1)
    mean_K: Floats = shares_SK[np.argsort(predicted_S)[:BEST]].mean(0)
    return mean_K


def rank(predicted: Floats, true: Floats) -> Rank:
    """Spearman's correlation; of values that are all the same, none."""
    if np.ptp(predicted) == 0 or np.ptp(true) == 0:
        return Rank(0.0, 1.0)
    result = spearmanr(predicted, true, alternative="greater")
    return Rank(float(result.statistic), float(result.pvalue))


def _regressors() -> dict[str, Any]:
    """Unfitted regressions of several losses at once. Losses fall with the logarithm of a share rather than with
    the share, so the linear one sees both."""
    from sklearn.ensemble import GradientBoostingRegressor
    from sklearn.linear_model import RidgeCV
    from sklearn.multioutput import MultiOutputRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    ridge = RidgeCV(alphas=np.logspace(-3, 3, 13), alpha_per_target=True)
    boosted = partial(GradientBoostingRegressor, max_depth=2, subsample=0.8, random_state=0)
    return {
        "linear": make_pipeline(FunctionTransformer(_with_logarithms), StandardScaler(), ridge),
        "boosted": MultiOutputRegressor(boosted()),
    }


def _with_logarithms(shares_NK: Floats) -> Floats:
    return np.hstack([shares_NK, np.log(shares_NK)])
