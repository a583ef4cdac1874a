"""A fitted table in sentences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headstart.tabular.run import TableRun
from headstart.tabular.target import Target
from headstart.tabular.words import scores_in_words, start_in_words, table_in_words, target_in_words


@pytest.fixture(scope="module")
def run() -> TableRun:
    return TableRun.load(Path(__file__).parent / "run_0_1")


def test_the_table_column_by_column(run: TableRun) -> None:
    said = table_in_words(run)
    assert said[0] == "Predicting price, a quantity (regression), from 4 columns and 400 rows."
    assert "Read as date: 'sold'." in said
    assert "Not used: 'wet' was to be ignored." in said


def test_scores_of_a_quantity(run: TableRun) -> None:
    rmse, mnll, interval = scores_in_words(run)
    assert rmse.startswith("RMSE ")
    assert "on 40 test rows; always predicting the mean:" in rmse
    assert mnll.startswith("Negative log-likelihood (MNLL) ")
    assert interval.endswith("of these rows (conformal).")


def test_scores_of_classes(run: TableRun) -> None:
    target = Target("wet", "classification", ("no", "yes"))
    found = {
        "test_rows": 40,
        "scores": {"error": 0.125, "mnll": 0.25, "ece": 0.0312},
        "trivial": {"error": 0.5},
    }
    classes = replace(run, schema=replace(run.schema, target=target), found=found)
    error, mnll, ece = scores_in_words(classes)
    assert error.startswith("Error 12.5% on 40 test rows")
    assert "equal probabilities give 0.693" in mnll
    assert "off by 3.1 percentage points" in ece
    assert target_in_words(target) == "one of 2 classes (classification)"


def test_a_start_without_measurements_says_less(run: TableRun) -> None:
    start = run.found["initialization"]
    assert len(start_in_words(start)) == 3
    silent = {**start, "expected_nll": None, "layers": [], "warnings": ["a sentence"]}
    assert start_in_words(silent)[1:] == ["Note: a sentence"]


def test_intervals_that_were_judged_are_not_called_conformal_where_they_are_not(
    run: TableRun,
) -> None:
    conformal = replace(run, found={**run.found, "conformal": True})
    assert scores_in_words(conformal)[2].endswith("of these rows (conformal).")
    in_turn = replace(run, found={**conformal.found, "test_rows": 0, "scored_rows": 40})
    assert "before it is made conformal" in scores_in_words(in_turn)[2]


def test_a_model_that_is_behind_the_mean_explains_no_variance(run: TableRun) -> None:
    scores = {**run.found["scores"], "rmse": 2.0}
    worse = replace(run, found={**run.found, "scores": scores, "trivial": {"rmse": 1.5}})
    assert scores_in_words(worse)[0].endswith("the mean: 1.5 (better than the model).")
