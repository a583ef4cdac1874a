"""Estimators that solve their last layer again after training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from headstart.estimators import BayesianClassifier, BayesianRegressor

QUICK: dict[str, Any] = {
    "model": "mlp-1x20",
    "steps": 30,
    "random_state": 0,
    "effort": "quick",
    "trees": False,
}
X = np.random.default_rng(0).normal(size=(80, 3))


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("kind", [BayesianRegressor, BayesianClassifier])
def test_refine(kind: type[BayesianRegressor | BayesianClassifier], members: int) -> None:
    noise = np.random.default_rng(1).normal(size=80)
    y = 1000 + 50 * (X.sum(1) + noise) if kind is BayesianRegressor else X.sum(1) > 0
    found = clone(kind(**QUICK, members=members, refine=True)).fit(X, y)
    report = found.history_.refined
    assert report.nelbo_after < report.nelbo_before
    assert found.model_[-1].posterior.name == "full_covariance"
    # A row's prediction is the same beside any rows.
    np.testing.assert_allclose(found.predict(X)[:5], found.predict(X[:5]))
    plain = kind(**QUICK, members=members, refine=False).fit(X, y)
    assert plain.history_.refined is None
    assert plain.model_[-1].posterior.name == "mean_field"


def test_the_noise_of_predictions_is_in_the_units_of_the_target() -> None:
    small, large = (
        BayesianRegressor(**QUICK, noise="constant", refine=True).fit(X, scale * X.sum(1))
        for scale in (1.0, 1e3)
    )
    ratio = (
        large.likelihood_.for_prediction().noise_var / small.likelihood_.for_prediction().noise_var
    )
    assert float(ratio) == pytest.approx(1e6, rel=1e-2)
    np.testing.assert_allclose(
        large.predictive(X).std.numpy(), 1e3 * small.predictive(X).std.numpy(), rtol=0.02
    )
