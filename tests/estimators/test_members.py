"""Mixtures by the estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from headstart import HeadstartError
from headstart.estimators import BayesianClassifier, BayesianRegressor
from headstart.network.layer import count_members

QUICK: dict[str, Any] = {
    "model": "mlp-1x20",
    "steps": 30,
    "random_state": 0,
    "effort": "quick",
    "trees": False,
}
X = np.random.default_rng(0).normal(size=(80, 3))


@pytest.mark.parametrize("kind", [BayesianRegressor, BayesianClassifier])
def test_members(kind: type[BayesianRegressor | BayesianClassifier]) -> None:
    y = X.sum(1) if kind is BayesianRegressor else X.sum(1) > 0
    found = clone(kind(**QUICK, members=3)).fit(X, y)
    assert found.get_params()["members"] == 3
    assert count_members(found.model_) == 3
    predictive = found.predictive(X[:5])
    assert predictive.members == 3
    assert predictive.member_mean.shape[:2] == (3, 5)
    assert float(predictive.between_members_std.max()) > 0
    # A row's prediction is the same beside any rows.
    np.testing.assert_allclose(found.predict(X)[:5], found.predict(X[:5]))
    # As many draws as were asked for, whatever the members.
    assert found.sample(X[:5], n_samples=10).shape[:2] == (10, 5)


def test_one_member_is_the_default_and_changes_nothing() -> None:
    one, same = BayesianRegressor(**QUICK), BayesianRegressor(**QUICK, members=1)
    assert one.members is None
    np.testing.assert_array_equal(one.fit(X, X[:, 0]).predict(X), same.fit(X, X[:, 0]).predict(X))


def test_no_members_are_refused() -> None:
    with pytest.raises(HeadstartError, match="members must be at least 1, not 0"):
        BayesianRegressor(**QUICK, members=0).fit(X, X[:, 0])
