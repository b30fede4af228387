"""Predict validation losses from the shares of a mixture by regression (RegMix, Liu et al. 2024).

Shapes: N trials, K sources, C corpora, S candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata, spearmanr

from pipelines.tuning.space import Floats, Space, drawn_shares
from ubert.schema.errors import UserError

HELD_BACK = 4  # every fourth trial is held back
FOLDS = 5
EXACT = 8  # most pairs whose orders are all counted for a p-value
SIGNIFICANCE = 0.05  # significance level
CANDIDATES, BEST = 4_000, 40  # number of mixtures with predicted losses, and of the best ones to average


class Rank(NamedTuple):
    """Spearman's correlation of predicted and true losses, and its p-value."""

    correlation: float
    chance: float


class Fit(NamedTuple):
    """A regression and how well it predicts.

    `validated` is the cross-validated correlation of each kind of regression, and `kind` the better one.
    `held_back` is its correlation on trials that neither the fit nor the choice used, for the mean of the targets;
    `corpora` has the same for each corpus. `predicted_H` and `true_H` are the mean log losses of these trials.
    `regressor` is fitted to all trials.
    """

    kind: str
    validated: dict[str, float]
    held_back: Rank
    corpora: dict[str, Rank]
    predicted_H: list[float]
    true_H: list[float]
    regressor: Any

    @property
    def is_chance(self) -> bool:
        """Return whether the correlation on the held-back trials is not significant."""
        return self.held_back.chance >= SIGNIFICANCE


def fit(shares_NK: Floats, loss_NC: Floats, corpora: Sequence[str], targets: Sequence[str]) -> Fit:
    """Fit both kinds of regression, choose one, and refit it to all trials.

    The regressions predict logarithms of losses. A difference of their means over corpora is a mean of log ratios,
    so corpora with large and small losses have the same weight.

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
    """Return the shares [K] with the lowest predicted mean loss of the targets.

    They are the mean of the best candidates, because the best single one is often an error of the regression.
    Candidates come from the distribution of the trials, because a regression can't extrapolate.
    """
    shares_SK = np.array([drawn_shares(space, seed, 1, i) for i in range(CANDIDATES)])
    predicted_SC = found.regressor.predict(shares_SK)
    predicted_S = predicted_SC[:, [corpora.index(name) for name in targets]].mean(1)
    mean_K: Floats = shares_SK[np.argsort(predicted_S)[:BEST]].mean(0)
    return mean_K


def rank(predicted: Floats, true: Floats) -> Rank:
    """Compute Spearman's correlation and its p-value. If all values are equal, the correlation is 0.

    The p-value of up to `EXACT` pairs is the share of orders with such a correlation. The t-distribution, which
    larger samples use, says 0 for any perfect order.
    """
    if np.ptp(predicted) == 0 or np.ptp(true) == 0:
        return Rank(0.0, 1.0)
    result = spearmanr(predicted, true, alternative="greater")
    chance = result.pvalue
    if len(true) <= EXACT:
        ordered_N, other_N = rankdata(predicted), rankdata(true)
        sums_P = np.array(list(permutations(ordered_N))) @ other_N  # they order as correlations do
        chance = np.mean(sums_P >= ordered_N @ other_N - 1e-9)
    return Rank(float(result.statistic), float(chance))


def _regressors() -> dict[str, Any]:
    """Return unfitted regressions of several losses. The linear one also gets the logarithms of shares, because
    losses depend on them almost linearly."""
    from sklearn.ensemble import GradientBoostingRegressor
    from sklearn.linear_model import RidgeCV
    from sklearn.multioutput import MultiOutputRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    ridge = RidgeCV(alphas=np.logspace(-3, 3, 13), alpha_per_target=True)
    boosted = GradientBoostingRegressor(max_depth=2, subsample=0.8, random_state=0)
    return {
        "linear": make_pipeline(FunctionTransformer(_with_logarithms), StandardScaler(), ridge),
        "boosted": MultiOutputRegressor(boosted),
    }


def _with_logarithms(shares_NK: Floats) -> Floats:
    return np.hstack([shares_NK, np.log(shares_NK)])
