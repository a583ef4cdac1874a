"""The Tobit model: density and probability, moments by quadrature, quantiles, targets."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from torch import nn

import headstart as hs
from tests.likelihoods.linear import linear_truth, start_and_end

pytestmark = pytest.mark.usefixtures("float64")

LIMITS = [(-0.5, None), (None, 1.0), (-0.5, 1.0)]


@pytest.mark.parametrize(("lower", "upper"), LIMITS)
def test_density_and_moments_are_those_of_a_clamped_gaussian(
    lower: float | None, upper: float | None
) -> None:
    lik = hs.CensoredGaussian(lower, upper, 0.8, loc=0.5, scale=2.0).requires_grad_(False)
    f, sd = torch.linspace(-3, 3, 13).unsqueeze(1), math.sqrt(0.8)
    latent = scipy.stats.norm((0.5 + 2 * f).numpy(), sd)
    # An equal grid of the latent's probabilities, refined until sums are integrals.
    grid = latent.ppf((np.arange(200_000) + 0.5) / 200_000)
    drawn = torch.tensor(grid).clamp(lower, upper)
    assert torch.allclose(lik.mean(f)[:, 0], drawn.mean(1), atol=1e-5)
    assert torch.allclose(lik.variance(f)[:, 0], drawn.var(1), atol=1e-4)
    inside = torch.full((13, 1), 0.2)
    density = torch.tensor(latent.logpdf(inside.numpy())).sum(1)
    assert torch.allclose(lik.log_prob(f, inside), density, atol=1e-9, rtol=0)
    for limit, tail in ((lower, latent.logcdf), (upper, latent.logsf)):
        if limit is not None:
            y = torch.full((13, 1), limit)
            expected = torch.tensor(tail(y.numpy())).sum(1)
            assert torch.allclose(lik.log_prob(f, y), expected, atol=1e-9, rtol=0)


def test_far_beyond_a_limit_all_is_finite() -> None:
    lik = hs.CensoredGaussian(0.0, 1.0, 1e-4).requires_grad_(False)
    for kind in (torch.float32, torch.float64):
        f = torch.tensor([[-30.0], [30.0]], dtype=kind)
        for y in (torch.zeros(2, 1, dtype=kind), torch.ones(2, 1, dtype=kind)):
            slope, curvature = lik.curvature(f, y)
            assert bool(lik.log_prob(f, y).isfinite().all())
            assert bool(slope.isfinite().all() & curvature.isfinite().all())
        assert lik.mean(f)[:, 0].tolist() == pytest.approx([0.0, 1.0], abs=1e-5)
        assert float(lik.variance(f).max()) < 1e-6


def test_quantiles_are_those_of_the_latent_mixture_censored() -> None:
    lik, f = hs.CensoredGaussian(-0.5, 1.0, 0.3), torch.randn(20, 40, 1)
    latent = hs.Gaussian(0.3)
    for level in (0.025, 0.5, 0.975):
        expected = latent.quantile(f, level).clamp(-0.5, 1.0)
        assert torch.allclose(lik.quantile(f, level), expected, atol=1e-12)


def test_limits_that_are_far_away_are_a_gaussian() -> None:
    lik, plain = hs.CensoredGaussian(-1e3, 1e3, 0.3), hs.Gaussian(0.3)
    f, y = torch.randn(4, 6, 1), torch.randn(6, 1)
    assert torch.allclose(lik.log_prob(f, y), plain.log_prob(f, y), atol=1e-12)
    assert torch.allclose(lik.mean(f), plain.mean(f), atol=1e-12)
    assert torch.allclose(lik.variance(f), plain.variance(f), atol=1e-9)
    x = torch.randn(100, 2)
    y = x.sum(1)
    starts = [linear_truth(part, 1, x, y) for part in (lik, plain)]
    assert torch.allclose(*starts, atol=1e-9)


def test_the_start_finds_the_latent_where_a_gaussian_is_biased() -> None:
    x, truth = torch.randn(20_000, 2), torch.tensor([[1.0, -0.5, 0.2]])
    y = (x @ truth[0, :2] + truth[0, 2] + 0.5 * torch.randn(20_000)).clamp(0, None)
    found = linear_truth(hs.CensoredGaussian(0.0, noise_var=0.25), 1, x, y) - truth
    plain = linear_truth(hs.Gaussian(0.25), 1, x, y) - truth
    assert float(found.abs().max()) < 0.4 * float(plain.abs().max())


def test_the_noise_is_the_most_likely_one() -> None:
    lik, f = hs.CensoredGaussian(0.0), torch.randn(1, 3000, 1)
    y = (f[0] + 0.7 * torch.randn(3000, 1)).clamp(0, None)
    lik.fit_(f, y)
    assert float(lik.noise_var.detach()) == pytest.approx(0.49, rel=0.1)
    (slope,) = torch.autograd.grad(lik.log_prob(f, y).mean(), lik.log_noise_var)
    assert abs(float(slope)) < 1e-5


@pytest.mark.slow
def test_the_start_beats_the_constant_and_training_beats_the_start() -> None:
    x = torch.randn(600, 2)
    y = (2 * x[:, :1].sin() + 0.5 * x[:, 1:].square() + 0.3 * torch.randn(600, 1)).clamp(0, None)
    constant = hs.CensoredGaussian(0.0)
    constant.fit_(torch.full((1, 600, 1), 0.5), y)
    worst = -float(constant.log_prob(torch.full((600, 1), 0.5), y).mean().detach())
    net = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 1))
    start, end = start_and_end(net, hs.CensoredGaussian(0.0), x, y)
    assert end < start < worst


def test_rounded_limits_are_limits_and_labels_beyond_get_a_sentence() -> None:
    lik = hs.CensoredGaussian(0.1, 0.7)
    # 0.1 in single precision is not 0.1 in double.
    y = torch.tensor([[0.1], [0.4], [0.7]]).float().double()
    assert (lik.check(y, 1) == torch.tensor([[0.1], [0.0], [0.7]])).flatten().tolist() == [
        True,
        False,
        True,
    ]
    with pytest.raises(hs.HeadstartError, match=r"labels below lower=0\.1"):
        lik.check(torch.tensor([0.0]), 1)
    with pytest.raises(hs.HeadstartError, match=r"labels above upper=0\.7"):
        lik.check(torch.tensor([1.0]), 1)


@pytest.mark.parametrize("limits", [{}, {"lower": 1.0, "upper": 0.0}, {"lower": math.inf}])
def test_limits_that_are_none_get_a_sentence(limits: dict[str, Any]) -> None:
    with pytest.raises(hs.HeadstartError, match="needs a finite limit"):
        hs.CensoredGaussian(**limits)


def test_a_net_made_by_name_is_tried_with_labels_that_are_valid(tmp_path: Path) -> None:
    """0 is below the limit, and no label."""
    lik = hs.CensoredGaussian(lower=2.0)
    hs.save(tmp_path / "m", hs.bayesianize(hs.models.create("mlp-1x5", 3, 1)), lik)
    _, again = hs.load(tmp_path / "m")
    assert repr(again) == repr(lik)
