"""The paper's experiments by name."""

from __future__ import annotations

import pytest

from headstart import data
from headstart.errors import HeadstartError
from headstart.experiments.suites import ALL, BUDGETS, INITS, SUITES, plan
from headstart.experiments.summary import paper
from headstart.initializers import INITIALIZERS


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("suite", SUITES)
def test_every_suite_is_a_product_of_data_sets_splits_and_all_six_initialisers(suite: str, budget: str) -> None:
    runs = plan(suite, budget)
    splits = SUITES[suite].budget(budget).splits
    assert len(runs) == len(SUITES[suite].datasets) * splits * len(INITS)
    assert len({run.key for run in runs}) == len(runs)
    assert {run.init for run in runs} == set(INITS)
    assert set(SUITES[suite].datasets) <= set(data.NAMES)
    assert set(INITS) <= INITIALIZERS.keys()
    assert all(run.seed == run.split for run in runs)
    assert all((run.steps is None) != (run.epochs is None) for run in runs)
    assert all((run.samples, run.batch, run.lr, run.prior, run.kl_weight) == (16, 64, 1e-3, 1.0, 1.0) for run in runs)


def test_the_papers_budget() -> None:
    run = plan("classification-deep", "paper")[-1]
    assert (run.epochs, run.eval_samples, run.split) == (100, 128, 4)


def test_all_is_all() -> None:
    assert {run.suite for run in plan(ALL)} == set(SUITES)


def test_overrides_leave_a_suite_without_training_alone() -> None:
    assert {run.steps for run in plan(ALL, "paper", steps=7, splits=1)} == {0, 7}
    assert {run.split for run in plan(ALL, "paper", steps=7, splits=1)} == {0}


def test_unknown_suites_and_budgets_are_one_sentence_with_a_suggestion() -> None:
    with pytest.raises(HeadstartError, match="did you mean 'regression-deep'"):
        plan("regresion-deep")
    with pytest.raises(HeadstartError, match="There is no budget 'slow'"):
        plan("regression-deep", "slow")


@pytest.mark.parametrize("suite", [name for name, suite in SUITES.items() if suite.paper])
def test_the_paper_has_a_number_or_nc_for_everything(suite: str) -> None:
    metric = "rmse" if suite.startswith("regression") else "error"
    for name in (metric, "mnll"):
        table = paper(SUITES[suite].paper, name)
        assert set(table) == set(SUITES[suite].datasets)
        assert all(set(inits) == set(INITS) for inits in table.values())
    assert paper("classification_deep", "error")["eeg"]["lsuv"].show() == "NC"
    assert paper("regression_deep", "rmse")["protein"]["iblm"].show() == "0.6683 ± 0.007"
