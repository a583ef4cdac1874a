"""What has changed: drift at a stated rate of false alarms, strange rows, calibration."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from headstart.errors import HeadstartError
from headstart.tabular.fit import fit_table
from headstart.tabular.monitor import compare_bins, holm, monitor, surprise_of_count
from headstart.tabular.profile import LevelProfile, NumberProfile
from headstart.tabular.run import TableRun
from headstart.training.recipe import Recipe
from tests.tabular.tables import Headstart, houses


def test_holm_is_that_of_the_book() -> None:
    assert holm([0.01, 0.02, 0.03, 0.005]) == pytest.approx([0.03, 0.04, 0.04, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_bins_are_compared_by_a_chi_square_test() -> None:
    known, new = np.array([60, 40]), np.array([25, 25])
    distance, p = compare_bins(known, new)
    assert distance == pytest.approx(0.1)
    assert p == pytest.approx(stats.chi2_contingency([known, new], correction=False).pvalue)
    # Where a bin has no new row to be expected, its neighbor takes it.
    assert compare_bins(np.array([100, 1]), np.array([30, 0]))[1] == 1.0


@pytest.mark.parametrize("kind", ["numbers", "counts", "levels"])
def test_nothing_drifts_where_nothing_has_changed(kind: str) -> None:
    """The p-values of rows of the same law are below 5 % in about 5 of 100 tables."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(400):
        if kind == "levels":
            rows = rng.choice(list("abcd"), 400, p=[0.5, 0.3, 0.15, 0.05]).astype(object)
            profile = LevelProfile.learn("x", rows[:300])
        else:
            rows = rng.normal(size=400) if kind == "numbers" else rng.poisson(2, 400).astype(float)
            rows[rng.random(400) < 0.1] = np.nan
            profile = NumberProfile.learn("x", rows[:300])
        found.append(compare_bins(profile.known_bins, profile.bins(rows[300:]))[1] < 0.05)
    low, high = stats.binom(400, 0.05).interval(0.99)
    assert low <= sum(found) <= high


def test_bins_of_the_training_rows_are_those_of_the_profile() -> None:
    values = np.array([1.0, 1, 1, 2, 2, 5, np.nan])
    profile = NumberProfile.learn("x", values)
    assert profile.known_bins.tolist() == profile.bins(values).tolist()
    assert profile.known_bins[-1] == 1
    assert profile.known_bins.sum() == 7


def test_a_table_is_compared_with_its_training_rows(fitted: Path) -> None:
    run = TableRun.load(fitted / "run")
    same = monitor(run, houses(200, seed=11))
    assert {drift.name for drift in same.drifts if drift.drifted} <= {"built"}
    assert same.labeled == 200
    assert same.unlike <= 8
    other = houses(200, seed=12)
    other["size"] *= 1.5
    other["city"] = other["city"].replace("Ulm", "Bonn")
    found = monitor(run, other.drop(columns="price"))
    assert {"size", "city"} <= {drift.name for drift in found.drifts if drift.drifted}
    assert found.changed
    assert found.labeled == 0
    with pytest.raises(HeadstartError, match="too few"):
        monitor(run, other.head(5))


def test_the_command_says_what_has_changed(
    fitted: Path, headstart: Headstart, tmp_path: Path
) -> None:
    new = houses(150, seed=13)
    new["price"] += 400_000
    new.to_csv(tmp_path / "new.csv", index=False)
    said = headstart("monitor", fitted / "run", tmp_path / "new.csv")
    assert said.code == 0, said.err
    assert "No longer calibrated: the 95% interval holds" in said.out
    assert "`headstart recalibrate` mends that" in said.out
    assert "of 150 rows are unlike the training data" in said.out
    said = headstart("monitor", fitted / "run", tmp_path / "new.csv", "--json", "--check")
    assert said.code == 1
    told = json.loads(said.out)
    assert told["changed"] is True
    assert {"name", "distance", "p_value", "drifted"} == set(told["drifts"][0])
    pd.DataFrame({"size": [1.0] * 30}).to_csv(tmp_path / "less.csv", index=False)
    assert headstart("monitor", fitted / "run", tmp_path / "less.csv").code == 2


def test_classes_that_training_has_not_seen_are_told(headstart: Headstart, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=120)})
    frame["y"] = np.where(frame["a"] > 0, "up", "down")
    run = fit_table(frame, "y", recipe=Recipe(model="mlp-1x8", steps=5, effort="quick"))
    run.save(tmp_path / "run")
    assert monitor(run, frame).new_classes == {}
    odd = frame.assign(y=np.where(np.arange(120) < 9, "Up", frame["y"]))
    odd.loc[20, "y"] = None
    found = monitor(run, odd)
    assert (found.new_classes, found.labeled, found.changed) == ({"Up": 9}, 110, True)
    odd.to_csv(tmp_path / "odd.csv", index=False)
    said = headstart("monitor", tmp_path / "run", tmp_path / "odd.csv", "--check")
    assert said.code == 1
    assert "9 rows with a 'y' that the model does not know ('Up')" in said.out


def test_a_count_by_chance_is_not_called_a_change() -> None:
    """Thresholds of 300 training rows, ten thousand new rows of the same law: 1 % false alarms."""
    rng = np.random.default_rng(0)
    alarms, trials, known, rows = 0, 2000, 300, 10_000
    for _ in range(trials):
        # The third largest of uniform scores has this law: so many new ones are beyond it.
        beyond = rng.beta(3, known - 2)
        unlike = rng.binomial(rows, beyond)
        alarms += surprise_of_count(unlike, rows, 3 / (known + 1), known) < 0.01
    assert alarms / trials < 0.02
    assert surprise_of_count(900, rows, 3 / (known + 1), known) < 1e-4
