"""The estimators keep scikit-learn's contract, predict real data, and know their uncertainty."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.metrics import log_loss, r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, RobustScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import headstart as hs
from headstart.estimators import BayesianClassifier, BayesianRegressor, base
from headstart.training.recipe import Recipe

QUICK: dict[str, Any] = {
    "model": "mlp-1x20",
    "steps": 10,
    "samples": 2,
    "predict_samples": 64,
    "random_state": 0,
    "effort": "quick",
    "trees": False,
}


UNEQUAL = {
    "check_sample_weight_equivalence_on_dense_data": "rows are drawn at random into batches and "
    "validation rows, and weights count in proportion: a weight of 2 is not a row twice",
}
"""Checks of scikit-learn that must fail, and why."""


@parametrize_with_checks(
    [BayesianRegressor(**QUICK), BayesianClassifier(**QUICK)],
    expected_failed_checks=lambda estimator: UNEQUAL,
)
def test_scikit_learns_contract(estimator: Any, check: Any) -> None:
    check(estimator)


def line(rows: int = 60, features: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """A noisy plane in units far from 1."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, features)) * 20 + 100
    return X, 1e3 * X[:, 0] + 500 * rng.normal(size=rows)


@pytest.fixture(scope="module")
def diabetes() -> tuple[BayesianRegressor, np.ndarray, np.ndarray]:
    X, X_test, y, y_test = train_test_split(*load_diabetes(return_X_y=True), random_state=0)
    return BayesianRegressor(steps=200, effort="quick", random_state=0).fit(X, y), X_test, y_test


@pytest.fixture(scope="module")
def wine() -> tuple[BayesianClassifier, np.ndarray, np.ndarray]:
    X, y = load_wine(return_X_y=True)
    X, X_test, y, y_test = train_test_split(
        X, np.array(["red", "rosé", "white"])[y], random_state=0, stratify=y
    )
    return BayesianClassifier(steps=200, effort="quick", random_state=0).fit(X, y), X_test, y_test


def test_the_parameters_are_the_recipes() -> None:
    mine = inspect.signature(BayesianRegressor.__init__).parameters
    recipe = {
        name: p.default
        for name, p in inspect.signature(Recipe).parameters.items()
        if name != "seed"
    }
    assert {name: mine[name].default for name in recipe} == recipe
    both = [set(kind().get_params().items()) for kind in (BayesianClassifier, BayesianRegressor)]
    assert both[0] ^ both[1] == {("class_weight", None), ("conformal", False)}


# Regression on real data.
def test_diabetes_is_predicted_with_honest_intervals(diabetes: Any) -> None:
    net, X, y = diabetes
    # Ridge regression has 0.37 on this split.
    assert net.score(X, y) > 0.27
    mean, std = net.predict(X, return_std=True)
    lower, upper = net.predict_interval(X)
    assert mean.shape == std.shape == lower.shape == y.shape
    assert mean.dtype == np.float64
    assert 0.88 <= np.mean((lower <= y) & (y <= upper)) <= 1
    assert np.all((lower < mean) & (mean < upper))
    inner = net.predict_interval(X, level=0.5)
    assert np.all((lower < inner[0]) & (inner[0] < inner[1]) & (inner[1] < upper))
    # Nearly Gaussian here.
    np.testing.assert_allclose((upper - lower) / std, 3.92, rtol=0.05)
    far = net.predict(X + 10 * X.std(0), return_std=True)[1]
    assert far.mean() > 1.5 * std.mean()


def test_draws_have_the_predictive_moments(diabetes: Any) -> None:
    net, X, _ = diabetes
    mean, std = net.predict(X, return_std=True)
    draws = net.sample(X, 2000, random_state=1)
    assert draws.shape == (2000, len(X))
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.5 * std.mean())
    np.testing.assert_allclose(draws.std(0), std, rtol=0.15)
    np.testing.assert_array_equal(
        net.sample(X[:2], 5, random_state=1), net.sample(X[:2], 5, random_state=1)
    )
    assert not np.array_equal(
        net.sample(X[:2], 5, random_state=1), net.sample(X[:2], 5, random_state=2)
    )


def test_the_predictive_distribution_is_at_hand(diabetes: Any) -> None:
    net, X, _ = diabetes
    found = net.predictive(X)
    mean, std = net.predict(X, return_std=True)
    np.testing.assert_allclose(found.mean[:, 0], mean)
    np.testing.assert_allclose(
        (found.epistemic_std.square() + found.aleatoric_std.square())[:, 0], std**2
    )


# Classification on real data.
def test_breast_cancer_is_told_apart() -> None:
    X, X_test, y, y_test = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
    net = BayesianClassifier(steps=150, effort="quick", random_state=0).fit(X, y)
    assert net.score(X_test, y_test) > 0.95
    probs = net.predict_proba(X_test)
    assert log_loss(y_test, probs) < 0.15
    assert float(hs.metrics.ece(torch.as_tensor(probs), torch.as_tensor(y_test))) < 0.08


def test_wine_keeps_its_names(wine: Any) -> None:
    net, X, y = wine
    assert net.classes_.tolist() == ["red", "rosé", "white"]
    assert net.score(X, y) > 0.93
    probs = net.predict_proba(X)
    np.testing.assert_allclose(probs.sum(1), 1)
    np.testing.assert_allclose(net.predict_log_proba(X), np.log(probs), atol=1e-9)
    np.testing.assert_array_equal(net.predict(X), net.classes_[probs.argmax(1)])
    draws = net.sample(X, 1000, random_state=0)
    assert draws.shape == (1000, len(X))
    np.testing.assert_allclose((draws == "red").mean(0), probs[:, 0], atol=0.2)
    found = net.predictive(X)
    assert bool((found.mutual_information <= found.entropy + 1e-9).all())


def test_log_probabilities_stay_finite_far_out(wine: Any) -> None:
    net, X, _ = wine
    assert np.isfinite(net.predict_log_proba(1e4 * X)).all()


# Among other tools.
def test_pipelines_searches_and_scores() -> None:
    X, y = line()
    pipe = make_pipeline(RobustScaler(), PolynomialFeatures(2), BayesianRegressor(**QUICK))
    search = GridSearchCV(pipe, {"bayesianregressor__prior": [1.0, "fan-in"]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.8
    mean, std = search.best_estimator_.predict(X, return_std=True)
    assert mean.shape == std.shape == (60,)
    scores = cross_val_score(
        BayesianClassifier(**QUICK), *load_wine(return_X_y=True), cv=2, scoring="neg_log_loss"
    )
    assert scores.mean() > -0.9


@pytest.mark.parametrize("kind", [BayesianRegressor, BayesianClassifier])
def test_copies_and_pickles(kind: Any) -> None:
    X, y = line()
    net = kind(**QUICK).fit(X, y.round(-4).astype(int))
    again = clone(net)
    assert not hasattr(again, "model_")
    assert again.get_params() == net.get_params()
    np.testing.assert_array_equal(again.fit(X, y.round(-4).astype(int)).predict(X), net.predict(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(net)).predict(X), net.predict(X))
    assert not np.array_equal(
        kind(**{**QUICK, "random_state": 1}).fit(X, y.round(-4)).model_[1].posterior.mean.detach(),
        net.model_[1].posterior.mean.detach(),
    )


def test_a_fitted_model_can_be_saved_without_pickle(tmp_path: Any) -> None:
    X, y = line()
    net = BayesianRegressor(**QUICK).fit(X, y)
    hs.save(tmp_path / "net", net.model_, net.likelihood_)
    model, likelihood = hs.load(tmp_path / "net")
    found = hs.predict(model, likelihood, net.inputs(X), 64, sampler="weights", seed=net.seed_)
    np.testing.assert_allclose(found.mean[:, 0], net.predict(X))


def test_data_frames_keep_their_columns() -> None:
    X, y = line()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    net = BayesianRegressor(**QUICK).fit(frame, pd.Series(y))
    assert net.feature_names_in_.tolist() == ["a", "b", "c"]
    assert net.n_features_in_ == 3
    np.testing.assert_allclose(net.predict(frame), BayesianRegressor(**QUICK).fit(X, y).predict(X))
    with pytest.raises(ValueError, match="feature names"):
        net.predict(frame.rename(columns={"a": "z"}))


def test_global_random_states_are_left_alone() -> None:
    X, y = line()
    before = torch.get_rng_state(), repr(np.random.get_state())  # noqa: NPY002
    BayesianRegressor(**QUICK).fit(X, y).sample(X, 3, random_state=0)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == repr(np.random.get_state())  # noqa: NPY002


# Shapes and units.
def test_several_targets_each_in_its_units() -> None:
    X, y = line()
    Y = np.column_stack([y, 1e-3 * y, np.full(len(y), 7.0)])
    net = BayesianRegressor(**QUICK).fit(X, Y)
    mean, std = net.predict(X, return_std=True)
    lower, upper = net.predict_interval(X)
    assert mean.shape == std.shape == lower.shape == upper.shape == (60, 3)
    assert net.sample(X, 4).shape == (4, 60, 3)
    assert 100 < (std[:, 0] / std[:, 1]).mean() < 10_000
    np.testing.assert_allclose(mean[:, 2], 7, atol=0.5)
    assert r2_score(Y[:, :2], mean[:, :2]) > 0.9
    column = BayesianRegressor(**QUICK).fit(X, y[:, None])
    assert column.predict(X).shape == (60, 1)


def test_units_are_the_users_however_large_the_offset() -> None:
    X, y = line()
    small = BayesianRegressor(**QUICK, noise="constant").fit(X, y)
    # Single precision would have 1e8 ± 8.
    large = BayesianRegressor(**QUICK, noise="constant").fit(X * 1e-6 + 3, y * 1e-3 + 1e8)
    for a, b in zip(small.predict_interval(X), large.predict_interval(X * 1e-6 + 3), strict=True):
        np.testing.assert_allclose(a * 1e-3 + 1e8, b, rtol=0, atol=0.02 * y.std() * 1e-3)
    ratio = (large.likelihood_.noise_var / small.likelihood_.noise_var).detach()
    np.testing.assert_allclose(ratio, 1e-6, rtol=0.01)


def test_chunks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch, wine: Any) -> None:
    net, X, _ = wine
    whole = net.predict_proba(X)
    monkeypatch.setattr(base, "MAX_CHUNK_ROWS", 7)
    np.testing.assert_allclose(net.predict_proba(X), whole, rtol=1e-9)


def test_columns_that_never_vary_and_few_rows_are_no_trouble() -> None:
    X, y = line()
    X[:, 1] = 4.0
    assert np.isfinite(BayesianRegressor(**QUICK).fit(X, y).predict(X)).all()
    assert np.isfinite(BayesianRegressor(**QUICK).fit(X[:3], y[:3]).predict(X)).all()
    assert np.isfinite(BayesianRegressor(**QUICK).fit(X, np.zeros(60)).predict(X)).all()
    assert set(BayesianClassifier(**QUICK).fit(X[:3], ["a", "b", "c"]).predict(X)) <= {
        "a",
        "b",
        "c",
    }


# Mistakes.
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"model": "mpl-1x20"}, "There is no model 'mpl-1x20'"),
        ({"steps": -1}, "steps must be at least 0, not -1"),
        ({"predict_samples": 0}, "predict_samples must be at least 1, not 0"),
        (
            {"validation": 1.5},
            "validation is the fraction of rows held out, between 0 and 1, not 1.5",
        ),
        ({"posterior": "meanfield"}, "did you mean 'mean_field'"),
        ({"init": "pretrained"}, "copies the weights of a trained net"),
    ],
)
def test_a_bad_setting_gets_a_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(hs.HeadstartError, match=sentence):
        BayesianRegressor(**{**QUICK, **settings}).fit(*line())


def test_bad_data_gets_a_sentence() -> None:
    X, y = line()
    net = BayesianRegressor(**QUICK).fit(X, y)
    with pytest.raises(ValueError, match="one class, 3"):
        BayesianClassifier(**QUICK).fit(X, np.full(60, 3))
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        BayesianClassifier(**QUICK).fit(X, y)
    with pytest.raises(ValueError, match="infinity"):
        net.predict(np.full((1, 3), np.inf))
    with pytest.raises(TypeError, match="Sparse"):
        net.predict(csr_array(X))
    with pytest.raises(
        ValueError, match="2 features, but BayesianRegressor is expecting 3 features"
    ):
        net.predict(X[:, :2])
    with pytest.raises(ValueError, match="level lies between 0 and 1, not 95"):
        net.predict_interval(X, level=95)
    with pytest.raises(ValueError, match="at least one sample, not 0"):
        net.sample(X, 0)


@pytest.mark.slow
def test_the_package_imports_scikit_learn_and_engines_only_when_asked() -> None:
    code = """
import sys, headstart as hs
for name in hs.__all__:
    getattr(hs, name)
assert not {"sklearn", "lightning", "lightning_fabric", "ray"} & set(sys.modules)
print(hs.estimators.BayesianRegressor())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "BayesianRegressor()", done.stderr
