"""Answer or abstain: thresholds by cost, and the risk of what is answered."""

from __future__ import annotations

import math

import pytest
import torch

from headstart.errors import HeadstartError
from headstart.likelihoods import Categorical, Gaussian
from headstart.predictive import Predictive
from headstart.tabular.decisions import abstains, decisions, risk_coverage, weigh_cost
from headstart.tabular.target import Target

CLASSES = Target("c", "classification", ("x", "y"))
QUANTITY = Target("q", "regression")


def of_probabilities(p: list[float]) -> Predictive:
    """Predictions of the second class with these probabilities."""
    logits = torch.tensor(p, dtype=torch.double).logit()
    draws = torch.stack([torch.zeros_like(logits), logits], 1).unsqueeze(0)
    return Predictive(draws, Categorical(2))


def test_a_class_is_answered_where_an_error_is_improbable() -> None:
    """Chow's rule: abstain where 1 − p is more than the cost."""
    pred = of_probabilities([0.95, 0.7, 0.45, 0.04])
    assert abstains(pred, CLASSES, 0.1).tolist() == [False, True, True, False]
    y = torch.tensor([1, 0, 1, 0])
    found = weigh_cost(pred, y, CLASSES, 0.1)
    assert found.answered == 0.5
    assert found.risk == 0
    # Two errors of four cost 0.5 a row; two abstentions cost 0.05.
    assert found.saved == pytest.approx(0.45)


def test_a_quantity_is_answered_where_its_sd_is_small() -> None:
    draws = torch.tensor([[[-1.0], [-3.0]], [[1.0], [3.0]]], dtype=torch.double)
    pred = Predictive(draws, Gaussian(1e-12, learn_noise=False))
    assert abstains(pred, QUANTITY, 2.0).tolist() == [False, True]
    found = weigh_cost(pred, torch.tensor([1.0, 4.0]), QUANTITY, 2.0)
    assert (found.answered, found.risk) == (0.5, 1.0)
    # Squared: (1 + 16) / 2 answered in full, (1 + 4) / 2 with one abstention.
    assert found.saved == pytest.approx(6.0)
    curve = risk_coverage(pred, torch.tensor([1.0, 4.0]), QUANTITY)
    assert curve["coverage"] == [0.5, 1.0]
    assert curve["risk"] == pytest.approx([1.0, 8.5**0.5])


def test_a_report_lists_costs() -> None:
    pred = of_probabilities([0.99, 0.9, 0.6, 0.2])
    found = decisions(pred, torch.tensor([1, 1, 0, 0]), CLASSES)
    answered = [row["answered"] for row in found["costs"]]
    assert answered == sorted(answered)
    assert found["curve"]["risk"][-1] == 0.25


@pytest.mark.parametrize(
    ("cost", "target"), [(0.0, QUANTITY), (1.0, CLASSES), (-1.0, CLASSES), (math.nan, QUANTITY)]
)
def test_costs_that_decide_nothing_are_refused(cost: float, target: Target) -> None:
    with pytest.raises(HeadstartError, match="cost of abstaining"):
        abstains(of_probabilities([0.5]), target, cost)
