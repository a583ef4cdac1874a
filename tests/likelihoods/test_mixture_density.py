"""Mixtures of Gaussians: density, moments, quantiles, and two branches that the start finds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, MixtureSameFamily, Normal

import headstart as hs
from tests.likelihoods.linear import start_and_end

pytestmark = pytest.mark.usefixtures("float64")

LOC, SCALE = torch.tensor([1.0, -2.0]).double(), torch.tensor([2.0, 0.5]).double()


def oracle(f: Tensor) -> MixtureSameFamily:
    """Two targets with three components each."""
    logits, means, log_var = f.unflatten(-1, (2, 3, 3)).unbind(-2)
    loc, scale = LOC.unsqueeze(-1), SCALE.unsqueeze(-1)
    parts = Normal(loc + scale * means, scale * (0.7 * log_var.exp()).sqrt())
    return MixtureSameFamily(Categorical(logits=logits), parts)


def test_density_and_moments_are_torch_s() -> None:
    lik = hs.MixtureDensity(3, 0.7, loc=LOC, scale=SCALE)
    f, y = torch.randn(4, 6, 18), torch.randn(6, 2)
    expected = oracle(f)
    log_prob = expected.log_prob(y).sum(-1)
    assert torch.allclose(lik.log_prob(f, y), log_prob, atol=1e-9, rtol=0)
    assert torch.allclose(lik.mean(f), expected.mean, atol=1e-9, rtol=0)
    assert torch.allclose(lik.variance(f), expected.variance, atol=1e-9, rtol=0)


@pytest.mark.parametrize("level", [0.025, 0.5, 0.9])
def test_quantiles_are_those_of_the_mixture_over_draws(level: float) -> None:
    lik, f = hs.MixtureDensity(3, 0.7, loc=LOC, scale=SCALE), torch.randn(7, 5, 18)
    below = oracle(f).cdf(lik.quantile(f, level)).mean(0)
    assert torch.allclose(below, torch.full_like(below, level), atol=1e-9, rtol=0)


def branches(x: Tensor) -> Tensor:
    sign = torch.where(torch.rand_like(x) < 0.5, -1.0, 1.0)
    return sign * x + 0.1 * torch.randn_like(x)


def one_mode(x: Tensor) -> Tensor:
    return x + torch.randn_like(x)


@pytest.mark.slow
@pytest.mark.parametrize(("labels", "ahead"), [(branches, 0.8), (one_mode, 0.0)])
def test_the_start_beats_the_constant_and_training_beats_the_start(
    labels: Callable[[Tensor], Tensor], ahead: float
) -> None:
    x = torch.rand(800, 1) * 2 + 0.5
    y = labels(x)
    constant = -float(Normal(y.mean(), y.std()).log_prob(y).mean())
    net = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 6))
    start, end = start_and_end(net, hs.MixtureDensity(2).standardize_(y), x, y)
    assert end < start < constant - ahead


def test_wrong_options_and_outputs_get_a_sentence() -> None:
    with pytest.raises(hs.HeadstartError, match="at least two components"):
        hs.MixtureDensity(1)
    with pytest.raises(hs.HeadstartError, match="a multiple of 6 outputs, not 4"):
        hs.MixtureDensity(2).check(torch.zeros(3, 1), 4)
    with pytest.raises(hs.HeadstartError, match="noise_var must be positive"):
        hs.MixtureDensity(2, noise_var=0.0)
