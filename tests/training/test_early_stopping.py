"""Early stopping: the best parameters come back, patience ends, and a checkpoint knows both."""

from __future__ import annotations

import pytest
from torch import nn

import headstart as hs
from headstart.training.early_stopping import EarlyStopping


def stopping(
    scores: list[float], monitor: str = "rmse", patience: int | None = None
) -> EarlyStopping:
    """After evaluations at steps 1, 2, ..., at each of which the one weight is the step."""
    found = EarlyStopping(nn.Linear(1, 1, bias=False), monitor, patience)
    for step, score in enumerate(scores, 1):
        nn.init.constant_(found.module.weight, step)
        found.update(step, {monitor: score})
    return found


@pytest.mark.parametrize(("monitor", "best"), [("rmse", 2), ("mnll", 2), ("auroc", 3)])
def test_the_best_parameters_come_back(monitor: str, best: int) -> None:
    """The lowest error or loss is best, and the highest AUROC."""
    found = stopping([0.5, 0.3, 0.9, 0.4], monitor)
    assert found.restore_() == best
    assert found.module.weight.item() == best


def test_the_first_of_equal_scores_is_the_best() -> None:
    assert stopping([0.5, 0.5, 0.5]).restore_() == 1


def test_without_an_evaluation_the_start_comes_back() -> None:
    found = stopping([])
    before = found.module.weight.item()
    nn.init.constant_(found.module.weight, 7.0)
    assert found.restore_() == 0
    assert found.module.weight.item() == before


def test_patience_counts_evaluations_in_a_row() -> None:
    assert stopping([0.5, 0.6, 0.4, 0.6], patience=2).reason == ""
    assert stopping([0.5, 0.6, 0.7], patience=2).reason == "no better rmse in 2 evaluations"
    assert stopping([0.5, 0.6, 0.7], patience=None).reason == ""


def test_a_score_that_is_no_number_is_never_the_best() -> None:
    assert stopping([0.5, float("nan")]).restore_() == 1


def test_a_state_goes_on_elsewhere() -> None:
    found, other = stopping([0.5, 0.6], patience=2), stopping([], patience=2)
    other.load_state_(found.state())
    other.update(3, {"rmse": 0.7})
    assert other.reason
    assert other.restore_() == 1
    assert other.module.weight.item() == 1


@pytest.mark.parametrize("monitor", ["coverage_95", "auroc"])
def test_a_metric_must_be_there_and_have_a_better_side(monitor: str) -> None:
    with pytest.raises(hs.HeadstartError, match=f"metric to monitor '{monitor}'"):
        EarlyStopping(nn.Linear(1, 1), monitor).update(1, {"coverage_95": 0.9, "rmse": 0.1})
