"""Leverage is the read-out's variance; its flag keeps the rate of false alarms it promises."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import headstart as hs
from headstart.training.leverage import LeverageFlag, leverage
from tests.training.problems import regressor, table


@pytest.mark.usefixtures("float64")
def test_leverage_of_a_linear_model_is_its_hat_matrix() -> None:
    x, y = table(60)
    model, lik = hs.bayesianize(nn.Linear(4, 1)), hs.Gaussian()
    found = hs.condition(model, lik, (x, y))
    rows = torch.cat([x, torch.ones(60, 1)], 1)
    noise = float(found.likelihood.noise_var.detach())
    precision = rows.T @ rows / noise + torch.eye(5) / found.prior_var
    expected = torch.einsum("nd,de,ne->n", rows, torch.linalg.inv(precision), rows)
    assert torch.allclose(leverage(found, x), expected, atol=1e-9)


def test_one_in_a_hundred_like_the_training_data_and_most_far_from_it_are_flagged() -> None:
    x, y = table(400)
    model, lik = regressor()
    hs.initialize_(model, "iblm", lik, (x, y))
    flag = LeverageFlag.calibrate(hs.condition(model, lik, (x, y)), torch.randn(1500, 4))
    alarms = int(flag(torch.randn(4000, 4)).sum())
    # 40 expected; the threshold itself varies by a quarter.
    assert 10 <= alarms <= 90
    assert float(flag(torch.randn(500, 4) + 6).float().mean()) > 0.9
    assert float(flag(6 * torch.randn(500, 4)).float().mean()) > 0.6


def test_too_few_rows_for_a_rate_are_refused() -> None:
    x, y = table(60)
    found = hs.condition(hs.bayesianize(nn.Linear(4, 1)), hs.Gaussian(), (x, y))
    with pytest.raises(hs.HeadstartError, match="pass at least 99"):
        LeverageFlag.calibrate(found, x)
    with pytest.raises(hs.HeadstartError, match="between 0 and 1"):
        LeverageFlag.calibrate(found, x, rate=1.0)
