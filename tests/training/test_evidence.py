"""`evidence` is the log marginal likelihood of labels on known features."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal

import headstart as hs
from tests.training.problems import regressor, table


@pytest.mark.usefixtures("float64")
def test_evidence_of_a_frozen_body_is_that_of_its_features() -> None:
    x, y = table(50)
    net = nn.Sequential(nn.Linear(4, 10), nn.Tanh(), nn.Linear(10, 1))
    found = hs.evidence(hs.bayesianize(net, where="last"), hs.Gaussian(), (x, y))
    rows = torch.cat([net[:2](x), torch.ones(50, 1)], 1).detach()
    assert found.prior_var is not None
    cov = found.noise_var[0] * torch.eye(50) + found.prior_var * rows @ rows.T
    expected = float(MultivariateNormal(torch.zeros(50), cov).log_prob(y[:, 0]))
    assert found.log_evidence == pytest.approx(expected, abs=1e-8)
    assert found.per_row == pytest.approx(expected / 50, abs=1e-9)


def test_features_that_say_more_have_more_evidence() -> None:
    x, y = table(300)
    good, lik = regressor()
    hs.initialize_(good, "iblm", lik, (x[:150], y[:150]))
    blind = hs.bayesianize(nn.Sequential(nn.Linear(4, 1), nn.Tanh(), nn.Linear(1, 1)))
    other = x[150:], y[150:]
    assert hs.evidence(good, lik, other).per_row > hs.evidence(blind, lik, other).per_row + 0.1


def test_several_outputs_in_units_of_their_own() -> None:
    x, y = table(60)
    labels = torch.cat([10 * y, y], 1)
    lik = hs.Gaussian([0.1, 0.1]).standardize_(labels)
    found = hs.evidence(hs.bayesianize(nn.Linear(4, 2)), lik, (x, labels))
    assert len(found.noise_var) == 2
    assert found.noise_var[0] == pytest.approx(100 * found.noise_var[1], rel=1e-3)


def test_classes_have_no_closed_form() -> None:
    x, _ = table(20)
    with pytest.raises(hs.HeadstartError, match="no closed form for Bernoulli"):
        hs.evidence(hs.bayesianize(nn.Linear(4, 1)), hs.Bernoulli(), (x, (x[:, 0] > 0).long()))
