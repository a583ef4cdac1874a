"""The Student-t likelihood: density, quantiles, what is learned, and targets without outliers."""

from __future__ import annotations

import pytest
import scipy.stats
import torch
from torch import nn

import headstart as hs
from tests.likelihoods.linear import linear_truth, start_and_end

pytestmark = pytest.mark.usefixtures("float64")


def test_student_t_density_in_the_user_s_units() -> None:
    lik = hs.StudentT([0.3, 2.0], df=[3.0, 7.0], loc=[1.0, -2.0], scale=[2.0, 0.5])
    f, y = torch.randn(4, 6, 2), torch.randn(6, 2)
    df = torch.tensor([3.0, 7.0])
    sigma = (torch.tensor([0.3, 2.0]) * (df - 2) / df).sqrt()
    center = torch.tensor([1.0, -2.0]) + torch.tensor([2.0, 0.5]) * f
    oracle = torch.distributions.StudentT(df, center, sigma)
    assert torch.allclose(lik.log_prob(f, y), oracle.log_prob(y).sum(-1), atol=1e-9, rtol=0)
    assert torch.allclose(lik.variance(f), oracle.variance, atol=1e-9, rtol=0)
    assert torch.allclose(lik.mean(f), oracle.mean, atol=1e-9, rtol=0)


def test_many_degrees_of_freedom_are_a_gaussian() -> None:
    f, y = torch.randn(6, 1), torch.randn(6, 1)
    near, limit = hs.StudentT(0.5, df=1e4), hs.Gaussian(0.5)
    assert torch.allclose(near.log_prob(f, y), limit.log_prob(f, y), atol=1e-2)
    # In single precision the constant is as good.
    single = near.log_prob(f.float(), y.float()).double()
    assert torch.allclose(single, near.log_prob(f, y), atol=1e-5)


@pytest.mark.parametrize("level", [1e-4, 0.025, 0.5, 0.9])
def test_quantiles_are_those_of_the_mixture(level: float) -> None:
    lik, f = hs.StudentT([0.3, 2.0], df=[2.5, 7.0], loc=1.0, scale=2.0), torch.randn(20, 5, 2)
    at = lik.quantile(f, level)
    df = torch.tensor([2.5, 7.0])
    sigma = (torch.tensor([0.3, 2.0]) * (df - 2) / df).sqrt()
    below = scipy.stats.t.cdf(at.numpy(), df.numpy(), (1 + 2 * f).numpy(), sigma.numpy())
    assert torch.allclose(torch.tensor(below).mean(0), torch.tensor(level), atol=1e-9, rtol=0)


def test_noise_and_degrees_of_freedom_are_found() -> None:
    """The maximum of the likelihood is scipy's, and fixed options stay."""
    torch.manual_seed(3)
    y = 0.5 * torch.distributions.StudentT(4.0).sample((2000, 1))
    lik = hs.StudentT(0.1, df=30.0)
    lik.fit_(torch.zeros(1, 2000, 1), y)
    df, _, sigma = scipy.stats.t.fit(y.numpy(), floc=0)
    assert float(lik.df.detach()) == pytest.approx(df, rel=1e-2)
    assert float(lik.log_spread.detach().exp().sqrt()) == pytest.approx(sigma, rel=1e-3)
    assert all(p.grad is None for p in lik.parameters())
    fixed = hs.StudentT(0.1, df=30.0, learn_df=False)
    fixed.fit_(torch.zeros(1, 2000, 1), y)
    assert float(fixed.df.detach()) == pytest.approx(30.0)
    assert float(fixed.noise_var.detach()) != pytest.approx(0.1, rel=0.1)


def test_gaussian_labels_take_all_the_degrees_of_freedom_there_are() -> None:
    lik, y = hs.StudentT(), torch.linspace(-1, 1, 500).unsqueeze(1)
    lik.fit_(torch.zeros(1, 500, 1), y)
    assert 100 < float(lik.df.detach()) <= 1e4
    assert float(lik.noise_var.detach()) == pytest.approx(float(y.square().mean()), rel=0.05)


def test_outliers_move_the_start_less_than_a_gaussian_s() -> None:
    x = torch.randn(500, 2)
    truth = torch.tensor([[1.0, -2.0, 0.5]])
    y = x @ truth[0, :2] + truth[0, 2] + 0.1 * torch.randn(500)
    y[::10] += 20 * (1 + x[::10, 0])
    robust = linear_truth(hs.StudentT(0.04, df=3.0), 1, x, y) - truth
    plain = linear_truth(hs.Gaussian(0.04), 1, x, y) - truth
    assert float(robust.abs().max()) < 0.25 * float(plain.abs().max())


@pytest.mark.slow
def test_the_start_beats_the_constant_and_training_beats_the_start() -> None:
    x = torch.randn(400, 2)
    y = x[:, :1].sin() * 2 + x[:, 1:] + 0.2 * torch.distributions.StudentT(3.0).sample((400, 1))
    lik, constant = hs.StudentT().standardize_(y), hs.StudentT()
    constant.standardize_(y).fit_(torch.zeros(1, 400, 1), y)
    worst = -float(constant.log_prob(torch.zeros(400, 1), y).mean().detach())
    net = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 1))
    start, end = start_and_end(net, lik, x, y)
    assert end < start < worst


def test_wrong_options_get_a_sentence() -> None:
    for df in (2.0, 1e5, float("nan")):
        with pytest.raises(hs.HeadstartError, match="df must lie above 2"):
            hs.StudentT(df=df)
    with pytest.raises(hs.HeadstartError, match="noise_var must be positive"):
        hs.StudentT(0.0)
    with pytest.raises(hs.HeadstartError, match="df has 3 values but the net has 2 outputs"):
        hs.StudentT(df=[3.0, 4.0, 5.0]).check(torch.zeros(4, 2), 2)
