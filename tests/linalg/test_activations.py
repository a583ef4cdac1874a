"""Moments of activations of a Gaussian, beside numerical integration."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from scipy.integrate import quad
from scipy.stats import norm
from torch import Tensor

from headstart.linalg.activations import by_quadrature, rectified

CASES = [(0.0, 1.0), (1.3, 0.2), (-1.3, 0.2), (2.0, 4.0), (-3.0, 1.0), (20.0, 1.0), (-20.0, 1.0)]


def integrated(function: object, mean: float, var: float) -> tuple[float, float]:
    """Mean and variance of a function that may have a kink at zero, by adaptive quadrature."""
    sd = var**0.5
    ends = (mean - 12 * sd, min(max(0.0, mean - 12 * sd), mean + 12 * sd), mean + 12 * sd)

    def expected(power: float, center: float) -> float:
        def integrand(x: float) -> float:
            value = float(function(torch.tensor(x, dtype=torch.float64)))  # type: ignore[operator]
            return (value - center) ** power * norm.pdf(x, mean, sd)

        pairs = pairwise(ends)
        return sum(
            quad(integrand, a, b, epsabs=1e-13, epsrel=1e-12, limit=200)[0] for a, b in pairs
        )

    first = expected(1, 0.0)
    return first, expected(2, first)


@pytest.mark.parametrize("slope", [0.0, 0.1])
@pytest.mark.parametrize(("mean", "var"), CASES)
def test_rectified_moments_are_those_of_the_integral(mean: float, var: float, slope: float) -> None:
    def leaky(x: Tensor) -> Tensor:
        return torch.where(x > 0, x, slope * x)

    given = torch.tensor([mean, var], dtype=torch.float64)
    found = torch.stack(rectified(given[0], given[1], slope))
    expected = torch.tensor(integrated(leaky, mean, var), dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("var", "bound"), [(0.25, 1e-3), (1.0, 0.015), (4.0, 0.08), (25.0, 0.17)])
@pytest.mark.parametrize("name", ["tanh", "sigmoid", "gelu", "silu", "softplus"])
def test_quadrature_is_as_near_as_it_is_said_to_be(name: str, var: float, bound: float) -> None:
    """Beside sums over a fine grid, for means from -3 to 3; what has hardly a variance apart."""
    function = getattr(F, name)
    mean = torch.linspace(-3, 3, 13, dtype=torch.float64)
    grid = torch.linspace(-12, 12, 24_001, dtype=torch.float64)
    weights = torch.exp(-0.5 * grid.square())
    weights = weights / weights.sum()
    values = function(mean.unsqueeze(1) + var**0.5 * grid)
    center = values @ weights
    sd = ((values - center.unsqueeze(1)).square() @ weights).sqrt()
    found = by_quadrature(function, mean, torch.full_like(mean, var))
    varied = sd > 0.03
    assert int(varied.sum()) >= 9
    assert float((found[1].sqrt() / sd - 1)[varied].abs().max()) < bound
    assert float(((found[0] - center) / sd)[varied].abs().max()) < bound


@pytest.mark.parametrize(("mean", "var", "bound"), [(0.3, 0.04, 1e-9), (-1.0, 0.5, 5e-4)])
def test_quadrature_is_near_the_integral(mean: float, var: float, bound: float) -> None:
    given = torch.tensor([mean, var], dtype=torch.float64)
    found = torch.stack(by_quadrature(torch.tanh, given[0], given[1]))
    expected = torch.tensor(integrated(torch.tanh, mean, var), dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=bound)


def test_a_variance_of_zero_leaves_a_number() -> None:
    x = torch.tensor([-2.0, 0.0, 3.0])
    mean, var = rectified(x, torch.zeros(3))
    assert torch.equal(mean, x.relu())
    assert torch.equal(var, torch.zeros(3))


def test_single_precision_keeps_the_variance_of_far_means() -> None:
    mean = torch.tensor([1000.0, 3.0, 30.0], dtype=torch.float64)
    var = torch.tensor([1e-4, 1.0, 0.01], dtype=torch.float64)
    expected = rectified(mean, var)[1]
    found = rectified(mean.float(), var.float())[1]
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0)
