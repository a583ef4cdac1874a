"""Rows that count more than others: in training, in the choice, and in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from headstart.errors import HeadstartError
from headstart.estimators import BayesianClassifier, BayesianRegressor
from headstart.likelihoods.weighted import rows_as_counted
from headstart.training.boosting import TreeSize, boost
from headstart.training.weights import kish_rows, scaled_weights

QUICK: dict[str, Any] = {
    "model": "mlp-1x8",
    "steps": 150,
    "samples": 2,
    "random_state": 0,
    "effort": "quick",
    "trees": False,
}


def test_weights_count_in_proportion_and_sum_to_the_effective_rows() -> None:
    given = np.random.default_rng(0).gamma(1.0, size=50)
    scaled = scaled_weights(given, 50)
    kish = given.sum() ** 2 / (given**2).sum()
    assert float(scaled.sum()) == pytest.approx(kish, rel=1e-12)
    assert kish_rows(scaled) == pytest.approx(kish, rel=1e-12)
    torch.testing.assert_close(scaled_weights(1e6 * given, 50), scaled)


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ([1.0, 2.0], "a weight for each of 3 rows"),
        ([1.0, -1.0, 1.0], "from 0 on; one is not"),
        ([1.0, np.nan, 1.0], "from 0 on; one is not"),
        ([0.0, 0.0, 0.0], "weight of every row is zero"),
    ],
)
def test_weights_that_mean_nothing_are_refused(weights: list[float], sentence: str) -> None:
    with pytest.raises(HeadstartError, match=sentence):
        scaled_weights(weights, 3)


def test_rows_are_taken_as_often_as_they_count() -> None:
    weights = torch.tensor([1.0, 2.0, 3.0, 0.0]).repeat(25)
    taken = torch.bincount(rows_as_counted(weights), minlength=100).double()
    assert bool((taken[weights == 0] == 0).all())
    assert (taken - weights * 100 / weights.sum()).abs().max() <= 1


def two_lines(rows: int = 240) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Half of the rows say y = x, the other half y = −x."""
    x = np.random.default_rng(0).uniform(-1, 1, size=(rows, 1))
    first = np.arange(rows) % 2 == 0
    return x, np.where(first, x[:, 0], -x[:, 0]), first


@pytest.mark.parametrize("trees", [False, True])
def test_a_net_learns_the_rows_that_count(trees: bool) -> None:
    x, y, first = two_lines()
    net = BayesianRegressor(**{**QUICK, "trees": trees}, noise="constant")
    slopes = [
        np.polyfit(x[:, 0], net.fit(x, y, sample_weight=weights).predict(x), 1)[0]
        for weights in (np.where(first, 1.0, 0.01), np.where(first, 0.01, 1.0))
    ]
    assert slopes[0] > 0.6
    assert slopes[1] < -0.6
    assert net.reasons_[-1] == "By their weights 240 rows count as 122.4."


def test_trees_are_grown_and_chosen_by_the_rows_that_count() -> None:
    x, y, first = two_lines(400)
    sizes = (TreeSize(8, 40, 0.2),)
    _, held_out = boost(x, y, "squared_error", weights=np.where(first, 1.0, 1e-3), sizes=sizes)
    assert np.corrcoef(held_out[:, 0], x[:, 0])[0, 1] > 0.9


def test_equal_weights_are_none() -> None:
    x, y, _ = two_lines(60)
    settings = {**QUICK, "steps": 10}
    plain = BayesianRegressor(**settings).fit(x, y).predict(x)
    weighted = BayesianRegressor(**settings).fit(x, y, np.full(60, 7.0)).predict(x)
    np.testing.assert_allclose(weighted, plain, atol=1e-4 * y.std())


def test_a_rare_class_may_count_as_much_as_the_others() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 1))
    y = np.where(x[:, 0] + rng.normal(size=400) > 2, "rare", "common")
    plain = BayesianClassifier(**QUICK).fit(x, y)
    balanced = BayesianClassifier(**QUICK, class_weight="balanced").fit(x, y)
    assert plain.predict_proba(x)[:, 1].mean() < 0.2
    assert balanced.predict_proba(x)[:, 1].mean() > 0.25
    assert "400 rows count as" in balanced.reasons_[-1]
    with pytest.raises(HeadstartError, match="leave out weights"):
        BayesianClassifier(**QUICK, refine=True, class_weight="balanced").fit(x, y)
