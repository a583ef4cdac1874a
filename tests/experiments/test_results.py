"""Rows put together, and the paper's numbers."""

from __future__ import annotations

import pytest

from headstart.experiments.catalogue import SUITES
from headstart.experiments.code import code_hash
from headstart.experiments.results import Results, newest_code, paper_table, results_of
from headstart.experiments.variants import INITS, PAPER_RACE_VARIANTS
from tests.experiments.conftest import row

PAPERS = [
    name for name, suite in SUITES.items() if suite.paper and suite.variants == PAPER_RACE_VARIANTS
]


def test_results_come_in_the_order_of_the_suite() -> None:
    inits = (
        {"init": "orthogonal"},
        {"init": "iblm", "label": "noise 1"},
        {"init": "iblm", "label": "default"},
    )
    rows = [
        {"suite": "iblm-ablation", "dataset": "toy", "model": "mlp-5x100", **init} for init in inits
    ]
    assert results_of("iblm-ablation", rows).labels == ["default", "noise 1", "orthogonal"]


def test_results_are_of_one_code() -> None:
    """Today's, wherever it stands in the file; else the last; rows of version 0.1 have none."""
    today, other = row("iblm", 0, 0, 1.0), row("iblm", 0, 0, 2.0, code="0" * 12)
    old = {name: value for name, value in row("iblm", 0, 0, 3.0).items() if name != "code"}
    assert newest_code([today, other]) == newest_code([other, today]) == code_hash()
    assert newest_code([old, other]) == "0" * 12
    assert newest_code([other, old]) == newest_code([]) == ""
    results = Results([today, other, old])
    assert ([r["rmse"] for r in results.rows], results.left_out) == ([1.0], 2)


@pytest.mark.parametrize("suite", PAPERS)
def test_the_paper_has_a_number_or_nc_for_everything(suite: str) -> None:
    metric = "rmse" if suite.startswith("regression") else "error"
    for name in (metric, "mnll"):
        table = paper_table(SUITES[suite].paper, name)
        assert set(table) >= set(SUITES[suite].datasets)
        assert all(set(inits) == set(INITS) for inits in table.values())
    assert paper_table("vgg16_cifar10", "error")["cifar10"]["mc-dropout"].mean == 0.2147
    assert paper_table("classification_deep", "error")["eeg"]["lsuv"].show() == "NC"
    assert paper_table("regression_deep", "rmse")["protein"]["iblm"].show() == "0.6683 ± 0.007"


def test_a_problem_whose_runs_all_broke_down_has_the_metric_of_its_suite() -> None:
    shared = {"dataset": "mnist", "init": "iblm", "step": 0}
    rows = [
        {**shared, "model": "alexnet", "run": "a", "failed": "The loss", "last": True},
        {**shared, "model": "vgg16", "run": "b", "error": 0.5, "mnll": 1.5, "last": True},
    ]
    results = Results(rows)
    assert [results.metric(problem) for problem in results.problems] == ["error", "error"]
