"""Rows unlike the training data: the stated rate on ordinary rows, units errors by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn import datasets

from headstart.errors import HeadstartError
from headstart.tabular.familiarity import Familiarity, FeatureLeverage, choose_thresholds
from headstart.tabular.fit import fit_table
from headstart.tabular.run import FAMILIARITY_FILE, TableRun
from headstart.tabular.schema import Schema
from headstart.tabular.words import familiarity_in_words
from headstart.training.recipe import Recipe

SPLITS = 12


def real(name: str) -> pd.DataFrame:
    """A table of scikit-learn, its last column the target."""
    options = {"scaled": False} if name == "diabetes" else {}
    return getattr(datasets, f"load_{name}")(as_frame=True, **options).frame


def halves(frame: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    order = np.random.default_rng(seed).permutation(len(frame))
    cut = len(frame) // 3
    return frame.iloc[order[cut:]], frame.iloc[order[:cut]]


def random_features(schema: Schema, frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """The rows, and what a net with random weights would make of them."""
    x = schema.encode(frame).astype(float)
    weights = np.random.default_rng(0).normal(size=(x.shape[1], 50)) / np.sqrt(x.shape[1])
    return {"numbers": x, "features": np.maximum(x @ weights + np.linspace(-1, 1, 50), 0)}


@pytest.mark.parametrize("name", ["diabetes", "breast_cancer", "wine", "iris"])
def test_ordinary_rows_pass_at_the_stated_rate_and_units_errors_do_not(name: str) -> None:
    """Over splits of small real tables; each column in turn is multiplied by 1000."""
    flags, named, rates = [], [], []
    for seed in range(SPLITS):
        train, test = halves(real(name), seed)
        schema = Schema.learn(train, "target")
        known = Familiarity.fit(schema.columns, train, random_features(schema, train))
        assert 0.005 < known.rate <= 0.01
        rates.append(known.rate)
        found = known.compare(schema.columns, test, random_features(schema, test))
        flags += found.flags.tolist()
        for column in schema.columns if seed == 0 else ():
            # A zero stays a zero.
            wrong = test[test[column.name] != 0]
            wrong = wrong.assign(**{column.name: 1000 * wrong[column.name]})
            found = known.compare(schema.columns, wrong, random_features(schema, wrong))
            named += [f"{column.name} is" in reason for reason in found.reasons]
            assert found.by_column[column.name] == sum(named[-len(wrong) :])
    low, high = stats.binom(len(flags), np.mean(rates)).interval(0.99)
    assert low <= sum(flags) <= high
    assert np.mean(named) >= 0.99


def test_a_table_too_small_for_one_percent_says_so() -> None:
    """Beyond every one of n rows lies one row in n + 1."""
    rng = np.random.default_rng(0)
    flags = []
    for _ in range(300):
        frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "c"])
        frame["y"] = rng.normal(size=60)
        train, test = frame.iloc[:30], frame.iloc[30:]
        schema = Schema.learn(train, "y", task="regression")
        known = Familiarity.fit(schema.columns, train, {"numbers": train[["a", "b"]].to_numpy()})
        assert known.rate == 1 / 31
        assert known.thresholds["numbers"] == np.inf
        features = {"numbers": test[["a", "b"]].to_numpy()}
        flags += known.compare(schema.columns, test, features).flags.tolist()
    assert 0.5 / 31 < np.mean(flags) < 1.3 / 31


def test_leverage_is_that_of_the_regression_without_the_row() -> None:
    """`h / (1 − h)` is exact for rows that were left out, but for the mean of the features."""
    features = np.random.default_rng(0).normal(size=(40, 3))
    found = np.exp(FeatureLeverage.fit(features).left_out(features))
    whole = np.column_stack([np.ones(40), features])
    for row in range(3):
        others = np.delete(whole, row, 0)
        exact = whole[row] @ np.linalg.solve(others.T @ others, whole[row])
        assert found[row] == pytest.approx(exact, rel=2e-3)


def test_holes_new_levels_and_combinations_are_told() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=400), "c": list("uv") * 200, "y": range(400)})
    frame["b"] = frame["a"] + 0.01 * rng.normal(size=400)
    schema = Schema.learn(frame.drop(columns="y").assign(y=rng.normal(size=400)), "y")

    def features(rows: pd.DataFrame) -> dict[str, np.ndarray]:
        return {"numbers": rows[["a", "b"]].fillna(0).to_numpy(float)}

    known = Familiarity.fit(schema.columns, frame, features(frame))
    rows = pd.DataFrame(
        {"a": [0.0, np.nan, 1.0, 0.5], "b": [0.0, 0.0, -1.0, 0.5], "c": ["u", "v", "u", "w"]}
    )
    found = known.compare(schema.columns, rows, features(rows))
    assert found.flags.tolist() == [False, True, True, True]
    assert found.reasons[0] == ""
    assert found.reasons[1].startswith("a is missing")
    assert found.reasons[2] == "an unusual combination of values"
    assert found.reasons[3].startswith("c is 'w'")


def test_thresholds_are_passed_at_the_rate_whatever_the_scores_have_in_common() -> None:
    """Of normal scores, equal, opposed and independent, over many tables."""
    rng = np.random.default_rng(0)
    for other in (lambda a: a, lambda a: -a, lambda a: rng.normal(size=len(a))):
        passed, rates = [], []
        for _ in range(200):
            a = rng.normal(size=1400)
            b = other(a)
            found, rate = choose_thresholds({"a": a[:400], "b": b[:400]}, 0.01)
            passed.append(np.mean((a[400:] > found["a"]) | (b[400:] > found["b"])))
            rates.append(rate)
        assert max(rates) <= 0.01
        assert np.mean(passed) == pytest.approx(np.mean(rates), rel=0.25)


def test_values_that_do_not_belong_together_are_flagged() -> None:
    """Each column of a real table in another order: every value is ordinary."""
    train, test = halves(real("breast_cancer"), 0)
    schema = Schema.learn(train, "target")
    known = Familiarity.fit(schema.columns, train, random_features(schema, train))
    rng = np.random.default_rng(0)
    mixed = test.apply(lambda column: rng.permutation(column.to_numpy()))
    found = known.compare(schema.columns, mixed, random_features(schema, mixed))
    assert found.flags.mean() > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["diabetes", "breast_cancer"])
def test_a_fitted_table_flags_from_disk_as_from_memory(tmp_path: Path, name: str) -> None:
    train, test = halves(real(name), 0)
    run = fit_table(train, "target", recipe=Recipe(steps=60))
    run.save(tmp_path / "run")
    again = TableRun.load(tmp_path / "run")
    for table in (test, test.assign(**{test.columns[0]: 1000 * test[test.columns[0]]})):
        first, second = run.compare(table), again.compare(table)
        assert first is not None
        assert second is not None
        assert first.reasons == second.reasons
        assert first.flags.tolist() == second.flags.tolist()
    assert first.flags.all()
    assert run.familiarity is not None
    said = f"about {run.familiarity.rate:.1%} of ordinary rows are flagged by mistake"
    assert said in familiarity_in_words(run)
    entry = json.loads((tmp_path / "run" / FAMILIARITY_FILE).read_text())
    entry["read_outs"]["features"]["center"] = "none"
    (tmp_path / "run" / FAMILIARITY_FILE).write_text(json.dumps(entry))
    with pytest.raises(HeadstartError, match="damaged"):
        TableRun.load(tmp_path / "run")
