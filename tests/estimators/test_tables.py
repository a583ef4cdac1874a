"""Data frames as they are, explanations, conformal intervals and more rows, as on the terminal."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

import headstart as hs
from headstart.estimators import BayesianClassifier, BayesianRegressor
from headstart.tabular.schema import Schema

QUICK: dict[str, Any] = {
    "model": "mlp-1x20",
    "steps": 10,
    "samples": 2,
    "predict_samples": 16,
    "random_state": 0,
    "effort": "quick",
    "trees": False,
}
ROWS = 60


def table(seed: int = 0) -> pd.DataFrame:
    """Every kind of column that pandas has, rows with an index of their own."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.normal(size=ROWS), "b": rng.normal(size=ROWS)})
    frame["city"] = rng.choice(["Ulm", "Bonn"], ROWS)
    frame["kind"] = pd.Categorical(rng.integers(0, 3, ROWS))
    frame["when"] = pd.date_range("2020-01-01", periods=ROWS)
    frame["flag"] = pd.array(rng.random(ROWS) < 0.5, dtype="boolean")
    frame["rare"] = pd.arrays.SparseArray(np.where(rng.random(ROWS) < 0.2, 1.0, 0.0))
    frame["count"] = pd.array([None, *range(ROWS - 1)], dtype="Int64")
    frame.loc[:5, "a"] = np.nan
    return frame.set_index(pd.Index(range(100, 100 + ROWS), name="id"))


def target(frame: pd.DataFrame) -> pd.Series:
    return (frame.b + 2 * (frame.city == "Ulm")).rename("b")


@pytest.fixture(scope="module")
def net() -> BayesianRegressor:
    return BayesianRegressor(**QUICK).fit(table(), target(table()))


def test_a_data_frame_is_taken_as_it_is(net: BayesianRegressor) -> None:
    frame = table()
    kinds = {column.name: column.kind for column in net.schema_.columns}
    assert kinds == {
        **dict.fromkeys(["a", "b", "flag", "rare", "count"], "number"),
        "city": "category",
        # Levels, though they are numbers: pandas says so.
        "kind": "category",
        "when": "date",
    }
    assert net.feature_names_in_.tolist() == list(frame.columns)
    assert net.n_features_in_ == 8
    np.testing.assert_allclose(net.predict(frame.iloc[::-1])[::-1], net.predict(frame))
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(net)).predict(frame), net.predict(frame)
    )


def test_the_columns_are_those_of_the_command_line(net: BayesianRegressor) -> None:
    frame = table().reset_index(drop=True).drop(columns="kind").astype({"rare": float})
    frame["when"] = frame["when"].dt.strftime("%Y-%m-%d")
    schema = Schema.learn(frame.assign(y=target(frame)), "y", task="regression")
    others = [column for column in net.schema_.columns if column.name != "kind"]
    assert list(schema.columns) == others


def test_what_training_has_not_seen_is_told(net: BayesianRegressor) -> None:
    with pytest.warns(UserWarning, match="60 values of 'b' are of a kind that training has not"):
        net.predict(table().assign(b=np.nan))
    names = [f"row {row}" for row in range(ROWS)]
    with pytest.warns(UserWarning, match="'name' is not used: it names its rows"):
        BayesianRegressor(**QUICK).fit(table()[["a"]].assign(name=names), target(table()))
    with pytest.raises(hs.HeadstartError, match="X has no rows"):
        net.predict(table().iloc[:0])
    with pytest.raises(hs.HeadstartError, match="no column beside 'y' to predict it from"):
        BayesianRegressor(**QUICK).fit(np.full((ROWS, 2), np.nan), np.arange(ROWS))


def test_rows_are_explained_as_on_the_terminal(net: BayesianRegressor) -> None:
    frame = table(1)
    effects = net.explain(frame.iloc[:3])
    assert effects.index.tolist() == [100, 101, 102]
    np.testing.assert_allclose(effects["value"], net.predict(frame.iloc[:3]))
    assert {"epistemic", "effect_city", "doubt_city"} <= set(effects.columns)
    assert net.importances(frame)[0].name in {"b", "city"}
    assert net.unlike_training(frame.assign(b=1e6)).all()


def test_explanations_need_training_rows_and_one_target() -> None:
    rows, y = np.arange(24.0).reshape(12, 2), np.arange(12.0)
    few = BayesianRegressor(**QUICK).fit(rows[:5], y[:5])
    several = BayesianRegressor(**QUICK).fit(rows, np.column_stack([y, y]))
    for unknown in (few, several):
        with pytest.raises(hs.HeadstartError, match="Explanations compare with training rows"):
            unknown.explain(rows)


def test_intervals_are_conformal_where_they_are_asked_for() -> None:
    frame, y = table(), target(table())
    net = BayesianRegressor(**{**QUICK, "folds": 3}, conformal=True).fit(frame, y)
    assert len(net.run_.folds) == 3
    lower, upper = net.predict_interval(frame, 0.9)
    assert lower.shape == upper.shape == (ROWS,)
    run = net.run_
    expected = run.intervals(frame, run.predict(frame), [0.9])[0.9]
    np.testing.assert_array_equal(lower, expected[0])
    np.testing.assert_array_equal(upper, expected[1])
    assert np.mean((lower <= y) & (y <= upper)) >= 0.8
    with pytest.raises(hs.HeadstartError, match="partial_fit cannot keep conformal intervals"):
        net.partial_fit(frame, y)
    with pytest.raises(hs.HeadstartError, match="of one target"):
        BayesianRegressor(**QUICK, conformal=True).fit(frame, np.column_stack([y, y]))


@pytest.mark.parametrize("trees", [False, True])
def test_many_levels_are_told_apart_by_the_mean_of_the_target(trees: bool) -> None:
    rng = np.random.default_rng(0)
    town, a = rng.integers(0, 70, (2, 300)), rng.normal(size=(2, 300))
    frame, new = (
        pd.DataFrame({"town": pd.Categorical([f"t{i}" for i in each]), "a": x})
        for each, x in zip(town, a, strict=True)
    )
    y, truth = (np.sin(each) + x for each, x in zip(town, a, strict=True))
    quick = {**QUICK, "trees": trees, "noise": "constant", "steps": 100}
    net = BayesianRegressor(**quick).fit(frame, y)
    assert net.level_means_.columns == 1
    assert net.score(new, truth) > 0.75
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(net)).predict(new), net.predict(new))
    # What no row of weight tells of is not learned.
    weights = (town[0] % 2).astype(float)
    half = BayesianRegressor(**quick).fit(frame, np.where(town[0] % 2, y, 1e3), weights)
    known = half.schema_.columns[0].keyed
    silent = [place for place, level in enumerate(known) if int(level[1:]) % 2 == 0]
    means = half.level_means_.of_levels(np.array(silent)[:, None])[:, 0, 0]
    assert len(silent) > 20
    assert (means == half.level_means_.overall).all()
    levels = net.level_means_
    net.partial_fit(new, truth)
    assert net.level_means_ is levels
    assert net.importances(new)[0].name in {"a", "town"}


@pytest.mark.parametrize("count", [2, 3])
def test_classes_have_frequencies_by_level(count: int) -> None:
    rng = np.random.default_rng(0)
    town = rng.integers(0, 70, 400)
    frame = pd.DataFrame({"town": [f"t{i}" for i in town], "a": rng.normal(size=400)})
    net = BayesianClassifier(**QUICK, class_weight="balanced")
    with pytest.warns(UserWarning, match="'town' has 70 levels: the 50 most frequent get a"):
        net.fit(frame, town % count)
    assert net.level_means_.outputs == count - 1
    assert net.score(frame, town % count) > 0.9
    assert net.predict_proba(frame).shape == (400, count)


# More rows.
def test_more_rows_are_learned_with_what_was_known_as_the_prior() -> None:
    """Ten rows first, then fifty: the doubt shrinks, and the first rows are not forgotten."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 2))
    y = X.sum(1) + 0.1 * rng.normal(size=ROWS)
    net = BayesianRegressor(**{**QUICK, "steps": 200}, noise="constant").partial_fit(X[:10], y[:10])
    first = net.score(X, y), float(net.predictive(X).epistemic_std.mean())
    net.partial_fit(X[10:], y[10:])
    assert net.score(X, y) > max(0.9, first[0])
    assert float(net.predictive(X).epistemic_std.mean()) < first[1]


def test_classes_are_named_before_they_come() -> None:
    X = np.random.default_rng(0).normal(size=(ROWS, 2))
    y = np.where(X[:, 0] > 0, "hot", "cold")
    net = BayesianClassifier(**QUICK).partial_fit(X, y, classes=["cold", "hot", "warm"])
    assert net.predict_proba(X).shape == (ROWS, 3)
    net.partial_fit(X[:5], ["warm"] * 5)
    with pytest.raises(hs.HeadstartError, match="the class mild, which is not among"):
        net.partial_fit(X[:5], ["mild"] * 5)


def test_several_targets_stand_on_trees_of_their_own() -> None:
    X = np.random.default_rng(0).normal(size=(ROWS, 2))
    Y = np.column_stack([np.sign(X[:, 0]), 5 * np.sign(X[:, 1])])
    net = BayesianRegressor(**{**QUICK, "trees": True}, noise="constant").fit(X, Y)
    assert net.trees_.outputs == 2
    assert net.predict(X).shape == (ROWS, 2)
    assert net.score(X, Y) > 0.7
