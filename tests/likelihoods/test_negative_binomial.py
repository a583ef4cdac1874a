"""The negative binomial likelihood: density, quantiles, its dispersion, and its targets."""

from __future__ import annotations

import pytest
import scipy.stats
import torch
from torch import Tensor, nn

import headstart as hs
from tests.likelihoods.linear import linear_truth, start_and_end

pytestmark = pytest.mark.usefixtures("float64")


def draw(mean: Tensor, dispersion: float) -> Tensor:
    shape = torch.full_like(mean, 1 / dispersion)
    return torch.poisson(mean * torch.distributions.Gamma(shape, shape).sample())


def test_density_and_moments_are_scipy_s() -> None:
    f, y = torch.randn(4, 6, 2), torch.poisson(torch.rand(6, 2) * 9)
    dispersion = torch.tensor([0.02, 3.0])
    lik = hs.NegativeBinomial(dispersion).requires_grad_(False)
    r = (1 / dispersion).numpy()
    oracle = scipy.stats.nbinom(r, r / (r + f.exp().numpy()))
    expected = torch.tensor(oracle.logpmf(y.numpy())).sum(-1)
    assert torch.allclose(lik.log_prob(f, y), expected, atol=1e-9, rtol=0)
    assert torch.allclose(lik.mean(f), torch.tensor(oracle.mean()), atol=1e-9)
    assert torch.allclose(lik.variance(f), torch.tensor(oracle.var()), atol=1e-9)


def test_next_to_no_dispersion_is_poisson() -> None:
    f, y = torch.randn(6, 1), torch.poisson(torch.rand(6, 1) * 9)
    near = hs.NegativeBinomial(1e-6).requires_grad_(False)
    assert torch.allclose(near.log_prob(f, y), hs.Poisson().log_prob(f, y), atol=1e-4)
    # In single precision the constant is as good.
    single = near.log_prob(f.float(), y.float()).double()
    assert torch.allclose(single, near.log_prob(f, y), atol=1e-4)


@pytest.mark.parametrize("level", [0.001, 0.025, 0.5, 0.975, 0.9999])
def test_quantiles_are_scipy_s(level: float) -> None:
    mean = torch.tensor([[0.3, 4.0, 600.0]])
    for dispersion in (0.01, 1.0, 20.0):
        lik = hs.NegativeBinomial(dispersion)
        found = lik.quantile(mean.log().unsqueeze(0), level)
        r = 1 / dispersion
        assert found.tolist() == scipy.stats.nbinom.ppf(level, r, r / (r + mean.numpy())).tolist()


def test_quantiles_of_a_mixture_reach_their_level_first() -> None:
    lik, f = hs.NegativeBinomial(0.7), 2 * torch.randn(20, 5, 1)
    at, p = lik.quantile(f, 0.9).numpy(), 1 / (1 + 0.7 * f.exp().numpy())
    assert (scipy.stats.nbinom.cdf(at, 1 / 0.7, p).mean(0) >= 0.9).all()
    assert (scipy.stats.nbinom.cdf(at - 1, 1 / 0.7, p).mean(0) < 0.9).all()


def test_the_dispersion_is_found() -> None:
    """Within three standard errors of the truth, by the curvature at the maximum."""
    torch.manual_seed(1)
    f = torch.randn(2000, 1) + 1
    lik, y = hs.NegativeBinomial(0.01), draw(f.exp(), 0.5)
    lik.fit_(f.unsqueeze(0), y)
    at = lik.log_dispersion
    loss = -lik.log_prob(f, y).sum()
    (slope,) = torch.autograd.grad(loss, at, create_graph=True)
    (curvature,) = torch.autograd.grad(slope, at)
    assert abs(float(slope.detach())) < 1e-3 * float(curvature)
    error = float(curvature) ** -0.5
    assert float(at.detach()) == pytest.approx(float(torch.tensor(0.5).log()), abs=3 * error)


def test_the_targets_find_a_known_log_mean() -> None:
    x = torch.randn(20_000, 2)
    truth = torch.tensor([0.3, -0.2, 2.5])
    y = draw((x @ truth[:2] + truth[2]).exp(), 0.2)
    found = linear_truth(hs.NegativeBinomial(0.2), 1, x, y)[0]
    assert torch.allclose(found[:2], truth[:2], atol=0.03)
    assert float(found[2]) == pytest.approx(2.5, abs=0.1)


@pytest.mark.slow
def test_the_start_beats_the_constant_and_training_beats_the_start() -> None:
    x = torch.randn(400, 2)
    y = draw((1 + x[:, :1].sin() * 1.5 + 0.5 * x[:, 1:]).exp(), 0.3)
    constant, flat = hs.NegativeBinomial(), y.mean().log().expand(1, 400, 1)
    constant.fit_(flat, y)
    worst = -float(constant.log_prob(flat[0], y).mean().detach())
    net = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 1))
    start, end = start_and_end(net, hs.NegativeBinomial(), x, y)
    assert end < start < worst


def test_wrong_options_and_labels_get_a_sentence() -> None:
    for dispersion in (0.0, -1.0, float("nan")):
        with pytest.raises(hs.HeadstartError, match="dispersion must lie between"):
            hs.NegativeBinomial(dispersion)
    with pytest.raises(hs.HeadstartError, match="dispersion has 3 values"):
        hs.NegativeBinomial([1.0, 2.0, 3.0]).check(torch.zeros(4, 2), 2)
    with pytest.raises(hs.HeadstartError, match="NegativeBinomial wants counts"):
        hs.NegativeBinomial().check(torch.tensor([0.5]), 1)


@pytest.mark.parametrize("level", [0.02, 0.5, 0.9, 0.95, 0.999])
def test_intervals_hold_what_they_promise_and_no_more_than_the_central_one(level: float) -> None:
    """Of mixtures over draws, exactly: at least the level, never without need, and nested."""
    torch.manual_seed(0)
    lik, f = hs.NegativeBinomial(0.7), torch.randn(20, 1) + torch.linspace(-4, 5, 60)
    f = f.unsqueeze(-1)
    p = 1 / (1 + 0.7 * f.exp().numpy())

    def mass(low: Tensor, high: Tensor) -> Tensor:
        ends = [scipy.stats.nbinom.cdf(end.numpy(), 1 / 0.7, p).mean(0) for end in (low - 1, high)]
        return torch.tensor(ends[1] - ends[0])

    low, high = lik.interval(f, level)
    central = [lik.quantile(f, (1 + side * level) / 2) for side in (-1, 1)]
    assert bool((mass(low, high) >= level - 1e-12).all())
    assert torch.equal(low, central[0])
    assert bool((high <= central[1]).all())
    # Where next to nothing can be left below, the upper end is the lowest that holds the level.
    most_at_zero = mass(torch.zeros_like(low), torch.zeros_like(low)) >= 1 - level
    assert bool((mass(low, high - 1)[most_at_zero & (high > 0)] < level).all())
    for less in (0.99 * level, 0.97 * level):
        inner = lik.interval(f, less)
        assert bool((inner[0] >= low).all())
        assert bool((inner[1] <= high).all())


@pytest.mark.parametrize("mean", [0.4, 1.0, 3.0, 12.0])
def test_intervals_of_simulated_counts_hold_their_level(mean: float) -> None:
    """Within four standard errors above .95, and not above .975 as central ones of small counts."""
    torch.manual_seed(0)
    rate = torch.full((40_000, 1), mean) * torch.linspace(0.8, 1.25, 40_000).unsqueeze(1)
    lik, y = hs.NegativeBinomial(1.5), draw(rate, 1.5)
    low, high = lik.interval(rate.log().unsqueeze(0), 0.95)
    inside = ((y >= low) & (y <= high)).double().mean()
    assert 0.95 - 4 * (0.05 * 0.95 / 40_000) ** 0.5 < float(inside) < 0.975
