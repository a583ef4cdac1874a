"""Leverage is the read-out's variance; its flag keeps the rate of false alarms it promises."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import headstart as hs
from headstart import LeverageFlag, leverage
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


@pytest.mark.usefixtures("float64")
def test_leverage_of_a_refined_net_is_that_of_its_read_out() -> None:
    x, y = table(60)
    body = nn.Sequential(nn.Linear(4, 6), nn.Tanh())
    model = hs.bayesianize(nn.Sequential(*body, nn.Linear(6, 1)), where="last")
    lik = hs.Gaussian()
    report = hs.refine_(model, lik, (x, y))
    rows = torch.cat([body(x).detach(), torch.ones(60, 1)], 1)
    assert report.noise_after is not None
    assert report.prior_after is not None
    precision = rows.T @ rows / report.noise_after[0] + torch.eye(7) / report.prior_after
    expected = torch.einsum("nd,de,ne->n", rows, torch.linalg.inv(precision), rows)
    assert torch.allclose(leverage(model, x), expected, atol=1e-9)


def test_the_leverage_of_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    x, y = table(60)
    model, lik = regressor()
    hs.initialize_(model, "iblm", lik, (x, y))
    state = torch.get_rng_state()
    for source in (model, hs.condition(model, lik, (x, y), draws=3)):
        whole = leverage(source, x)
        assert torch.allclose(leverage(source, x[7:9]), whole[7:9], rtol=1e-6)
        assert torch.allclose(leverage(source, x.flip(0)).flip(0), whole, rtol=1e-6)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("kind", ["conditioned", "refined"])
def test_the_rate_of_false_alarms_is_the_one_stated(kind: str) -> None:
    """3000 times 99 held-out rows and a new one: as many alarms as a binomial law of 1 % has."""
    x, y = table(200)
    model, lik = regressor()
    hs.initialize_(model, "iblm", lik, (x, y))
    hs.refine_(model, lik, (x, y))
    source = hs.condition(model, lik, (x, y), draws=2) if kind == "conditioned" else model
    rate, held_out, times = 0.01, 99, 3000
    rows = torch.randn(times, held_out + 1, 4)
    found = leverage(source, rows.flatten(0, 1)).unflatten(0, (times, -1))
    # Of 99 rows the flag's threshold is the largest leverage.
    for chosen in range(3):
        flag = LeverageFlag.calibrate(source, rows[chosen, 1:], rate)
        assert math.isclose(flag.threshold, float(found[chosen, 1:].max()), rel_tol=1e-6)
        assert flag(rows[chosen, :1]).tolist() == [bool(found[chosen, 0] > flag.threshold)]
    alarms = int((found[:, 0] > found[:, 1:].amax(1)).sum())
    z = (alarms - times * rate) / math.sqrt(times * rate * (1 - rate))
    assert abs(z) < 4


def test_predictions_say_which_rows_are_unlike_the_training_data() -> None:
    x, y = table(300)
    model, lik = regressor()
    hs.initialize_(model, "iblm", lik, (x, y))
    hs.refine_(model, lik, (x, y))
    held_out, near, far = torch.randn(500, 4), torch.randn(200, 4), torch.randn(50, 4) + 8
    flag = LeverageFlag.calibrate(model, held_out)
    plain = hs.predict(model, lik, near, 16, seed=0)
    assert plain.unlike_training is None
    flagged = hs.predict(model, lik, near, 16, seed=0, flag=flag)
    assert torch.equal(flagged.draws, plain.draws)
    unlike = flagged.unlike_training
    assert unlike is not None
    assert unlike.shape == (200,)
    assert unlike.dtype == torch.bool
    assert float(unlike.float().mean()) < 0.06
    away = hs.predict(model, lik, far, 16, flag=flag).unlike_training
    assert away is not None
    assert bool(away.all())
    # The flag is of the net as it was.
    hs.fit(model, lik, (x, y), steps=3, progress=False)
    assert torch.equal(flag(near), unlike)

    assert hs.condition(model, lik, (x, y), draws=2).predict(near, 4).unlike_training is None
    found = hs.condition(model, lik, (x, y), draws=4, held_out=held_out)
    assert found.max_leverage == LeverageFlag.calibrate(found, held_out).threshold
    away = found.predict(far, 8).unlike_training
    assert away is not None
    assert bool(away.all())
    with pytest.raises(hs.HeadstartError, match="pass at least 99"):
        hs.condition(model, lik, (x, y), draws=2, held_out=held_out[:50])


def test_too_few_rows_for_a_rate_are_refused() -> None:
    x, y = table(60)
    found = hs.condition(hs.bayesianize(nn.Linear(4, 1)), hs.Gaussian(), (x, y))
    with pytest.raises(hs.HeadstartError, match="pass at least 99"):
        LeverageFlag.calibrate(found, x)
    with pytest.raises(hs.HeadstartError, match="between 0 and 1"):
        LeverageFlag.calibrate(found, x, rate=1.0)
