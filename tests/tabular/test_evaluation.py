"""Scores of rows that were not learned from: pooled over parts, with their standard errors."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from headstart import metrics
from headstart.tabular.fit import fit_table
from headstart.tabular.run import TableRun
from headstart.tabular.words import scores_in_words
from headstart.training.derived import TREES_FILE
from headstart.training.recipe import Recipe

RECIPE = Recipe(model="mlp-1x8", steps=20, samples=2, effort="quick")


def table(rows: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, rows))
    return pd.DataFrame({"a": a, "b": b, "y": a - b + 0.1 * rng.normal(size=rows)})


def test_without_test_rows_the_scores_are_of_rows_held_out_in_turn() -> None:
    frame = table()
    recipe = Recipe(model="mlp-1x8", steps=20, samples=2, trees=False, noise="constant")
    run = fit_table(frame, "y", recipe=recipe, test_share=0.0)
    found = run.found
    assert (found["rows"], found["train_rows"], found["test_rows"]) == (120, 120, 0)
    assert found["scored_rows"] == 120
    assert found["scores"]["rmse"] == pytest.approx(found["validation_scores"]["rmse"])
    assert found["scores"]["mnll"] == pytest.approx(found["validation_scores"]["mnll"])
    assert len(found["points"]["true"]) == 120
    assert "on 120 rows, each predicted by a model that had not seen it" in " ".join(
        scores_in_words(run)
    )


def test_headline_scores_have_standard_errors() -> None:
    found = fit_table(table(), "y", recipe=RECIPE).found
    points = {name: np.array(values) for name, values in found["points"].items()}
    squares = (points["predicted"] - points["true"]) ** 2
    rmse = math.sqrt(squares.mean())
    assert found["scores"]["rmse"] == pytest.approx(rmse)
    error = squares.std(ddof=1) / math.sqrt(len(squares)) / (2 * rmse)
    assert found["standard_errors"]["rmse"] == pytest.approx(error)
    errors = {"rmse", "mnll", "crps", "interval_score_95", "coverage_95"}
    assert set(found["standard_errors"]) == errors
    assert 0 < found["scores"]["crps"] < found["trivial"]["rmse"]
    assert found["scores"]["interval_score_95"] > 0


def test_a_run_with_trees_comes_back_whole(tmp_path: Path) -> None:
    frame = table()
    frame["y"] = np.where(frame.a > 0, 1.0, -1.0) * (frame.b > 0) + 0.01 * frame.y
    recipe = Recipe(model="mlp-1x8", steps=20, samples=2, effort="quick", trees=True)
    run = fit_table(frame, "y", recipe=recipe)
    run.save(tmp_path / "run")
    assert (tmp_path / "run" / TREES_FILE).is_file()
    again = TableRun.load(tmp_path / "run")
    assert again.inputs(frame).shape == (120, 3)
    torch.testing.assert_close(run.predict(frame).mean, again.predict(frame).mean, atol=0, rtol=0)
    (tmp_path / "run" / TREES_FILE).unlink()
    with pytest.raises(ValueError, match=r"trees\.safetensors"):
        TableRun.load(tmp_path / "run")


def test_crps_is_that_of_all_pairs_of_draws() -> None:
    draws, y = torch.randn(7, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    pairs = (draws[:, None] - draws).abs().sum((0, 1)) / (7 * 6)
    torch.testing.assert_close(
        metrics.crps(draws, y), (draws - y).abs().mean(0) - pairs / 2, atol=1e-12, rtol=0
    )
    # Of N(0, 1) at 0: (√2 − 1)/√π.
    many = torch.randn(200_000, 1, generator=torch.Generator().manual_seed(0)).double()
    expected = (math.sqrt(2) - 1) / math.sqrt(math.pi)
    assert float(metrics.crps(many, torch.zeros(1).double())) == pytest.approx(expected, abs=0.005)
