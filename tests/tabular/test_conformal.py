"""Cross-conformal intervals: the definition, its guarantee, files and few rows."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from headstart.errors import HeadstartError
from headstart.tabular.conformal import (
    check_conformal_rows,
    conformal_place,
    conformal_recipe,
    cross_conformal,
    rows_for_level,
)
from headstart.tabular.evaluation import Scored, pooled, row_scores
from headstart.tabular.fit import fit_table
from headstart.tabular.monitor import monitor
from headstart.tabular.predict import PredictionOptions, prediction_frame
from headstart.tabular.run import TableRun
from headstart.training.recipe import Recipe


def test_the_ends_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    folds, rows, level = 3, 4, 0.9
    means, sds = rng.normal(size=(folds, rows)), rng.uniform(0.5, 2, size=(folds, rows))
    scores = [rng.exponential(size=size) for size in (11, 10, 12)]
    low, high = cross_conformal(
        torch.tensor(means), torch.tensor(sds), [torch.tensor(s) for s in scores], level
    )
    count = sum(map(len, scores))
    for row in range(rows):
        lows = sorted(means[k, row] - r * sds[k, row] for k in range(folds) for r in scores[k])
        highs = sorted(means[k, row] + r * sds[k, row] for k in range(folds) for r in scores[k])
        first = math.floor((1 - level) * (count + 1))
        last = math.ceil(level * (count + 1))
        assert float(low[row]) == pytest.approx(lows[first - 1], abs=1e-12)
        assert float(high[row]) == pytest.approx(highs[last - 1], abs=1e-12)


def test_the_mean_of_other_rows_covers_as_promised() -> None:
    """400 tables of 40 rows, skewed: by the means of four folds at 90 %, a new row each."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        y = rng.exponential(size=41)
        parts = np.arange(40).reshape(4, 10)
        means, scores = [], []
        for part in parts:
            rest = np.delete(y[:40], part)
            means.append(rest.mean())
            scores.append(torch.tensor(np.abs(y[part] - rest.mean()) / rest.std()))
        sds = [np.delete(y[:40], part).std() for part in parts]
        low, high = cross_conformal(
            torch.tensor(means)[:, None], torch.tensor(sds)[:, None], scores, 0.9
        )
        covered += int(float(low) <= y[40] <= float(high))
    # Four standard errors of a binomial around 0.9: ±0.06.
    assert 0.84 <= covered / 400 <= 0.96


def test_too_few_rows() -> None:
    with pytest.raises(HeadstartError, match=r"at least 19 validation rows .* there are 18"):
        check_conformal_rows(18)
    low, high = cross_conformal(torch.zeros(1, 2), torch.ones(1, 2), [torch.ones(9)], 0.95)
    assert low.tolist() == [-math.inf] * 2
    assert high.tolist() == [math.inf] * 2


def test_a_run_of_few_rows_is_conformal_and_comes_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=40)})
    frame["y"] = frame.a + 0.3 * rng.normal(size=40)
    recipe = Recipe(model="mlp-1x8", steps=20, samples=2, noise="constant")
    run = fit_table(frame, "y", recipe=recipe, conformal=True)
    assert len(run.folds) == 3
    assert sum(len(fold.scores) for fold in run.folds) == run.found["train_rows"] == 36
    run.save(tmp_path / "run")
    again = TableRun.load(tmp_path / "run")
    options = PredictionOptions(levels=(0.5, 0.8, 0.975))
    before, after = (prediction_frame(r, frame, options) for r in (run, again))
    pd.testing.assert_frame_equal(before, after)
    assert {"lower_50", "upper_80", "lower_97.5"} <= set(before.columns)
    assert (before["lower_97.5"] < before["lower_50"]).all()
    assert before["upper_80"].sub(before["lower_80"]).mean() < 2.5
    again.save(tmp_path / "run", overwrite=True)


def test_lower_ends_of_counts_are_not_negative() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=150)})
    frame["y"] = rng.poisson(np.exp(1 + 0.5 * frame.a))
    recipe = Recipe(model="mlp-1x8", steps=20, samples=2, effort="quick", validation=0.2)
    run = fit_table(frame, "y", task="regression", recipe=recipe, conformal=True)
    found = prediction_frame(run, frame)
    assert found["lower_95"].min() >= 0
    assert (found["upper_95"] >= found["lower_95"]).all()
    # Scores are those of the intervals that are served, not of the net's own.
    y, pred = torch.tensor(frame["y"].to_numpy(float)), run.predict(frame)
    part = Scored(frame, pred, y, held_out=False)
    scores = pooled([part], row_scores(run, [part]))
    inside = frame["y"].between(found["lower_95"], found["upper_95"]).mean()
    assert scores["coverage_95"] == pytest.approx(inside, abs=1e-9)
    assert scores["coverage_95"] != pred.evaluate(y)["coverage_95"]
    assert monitor(run, frame).scores["coverage_95"] == pytest.approx(inside, abs=1e-9)


def test_rows_for_a_level_are_the_fewest_with_finite_ends() -> None:
    for level in (0.01, 0.5, 0.9, 0.95, 0.975, 0.99, 0.9998, 0.9999):
        rows = rows_for_level(level)
        assert conformal_place(level, rows) <= rows
        assert rows == 1 or conformal_place(level, rows - 1) > rows - 1


def test_rounding_does_not_move_the_quantile() -> None:
    """0.55 · 100 is 55.00000000000001 in floating point: the 55th of 99 scores, not the 56th."""
    scores = torch.arange(1.0, 100.0)
    _, high = cross_conformal(torch.zeros(1, 1), torch.ones(1, 1), [scores], 0.55)
    assert high.tolist() == [55.0]


def test_few_rows_are_held_out_in_folds_and_too_few_are_refused_before_any_work() -> None:
    quick = Recipe(effort="quick")
    assert conformal_recipe(quick, 60).folds == 3
    assert conformal_recipe(quick, 400) == quick
    # By default folds are taken anyway.
    assert conformal_recipe(Recipe(), 60) == Recipe()
    for recipe, rows, ordered in (
        (quick, 15, False),
        (quick, 60, True),
        (Recipe(folds=1), 60, False),
        (Recipe(refine=True), 60, False),
    ):
        with pytest.raises(HeadstartError, match="needs at least 19 validation rows"):
            conformal_recipe(recipe, rows, ordered=ordered)
