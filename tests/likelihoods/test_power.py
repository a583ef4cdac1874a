"""Powers of positive labels: density, moments and quantiles against closed forms and SciPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import headstart as hs
from headstart.likelihoods.power import likeliest_power

pytestmark = pytest.mark.usefixtures("float64")


def lognormal(power: float = 0.0) -> hs.Power:
    return hs.Power(power, options={"noise_var": 0.25, "learn_noise": False})


def test_the_logarithm_is_the_lognormal_distribution() -> None:
    f, y = torch.randn(3, 5, 1), torch.rand(5, 1) + 0.1
    oracle = stats.lognorm(0.5, scale=f.exp().numpy())
    lik = lognormal()
    np.testing.assert_allclose(lik.log_prob(f, y), oracle.logpdf(y.numpy())[..., 0], atol=1e-12)
    np.testing.assert_allclose(lik.mean(f), oracle.mean(), rtol=1e-10)
    np.testing.assert_allclose(lik.variance(f), oracle.var(), rtol=1e-9)
    one = f[:1]
    np.testing.assert_allclose(
        lik.quantile(one, 0.975)[:, 0], stats.lognorm(0.5, scale=one.exp()[0, :, 0]).ppf(0.975)
    )


@pytest.mark.parametrize("power", [0.0, 0.3, 1.0])
def test_a_density_has_mass_one(power: float) -> None:
    grid = torch.linspace(1e-6, 60, 600_001)[:, None]
    f = torch.full((len(grid), 1), 1.5)
    mass = torch.trapezoid(lognormal(power).log_prob(f, grid).exp(), grid[:, 0])
    assert float(mass) == pytest.approx(1.0, abs=5e-3)


@pytest.mark.parametrize("power", [0.0, 0.3, 1.0])
def test_the_inverse_undoes_the_transform(power: float) -> None:
    y = torch.rand(50) * 9 + 0.01
    lik = hs.Power(power)
    torch.testing.assert_close(lik.inverse(lik.transform(y)), y, atol=1e-9, rtol=0)
    y = y.requires_grad_()
    (slope,) = torch.autograd.grad(lik.transform(y).sum(), y)
    torch.testing.assert_close(slope.log(), lik.log_slope(y), atol=1e-9, rtol=0)
    assert float(lik.inverse(torch.tensor(-1e6))) == 0.0


def test_units_and_files(tmp_path: Path) -> None:
    y = torch.randn(100).mul(0.7).exp() * 1000
    lik = hs.Power(0.0, options={"noise_var": 0.1}).standardize_(y)
    torch.testing.assert_close(lik.base.loc, y.log().mean()[None])
    model = hs.bayesianize(hs.models.create("mlp-1x4", 2, 1))
    hs.save(tmp_path / "m", model, lik)
    again = hs.load(tmp_path / "m")[1]
    f = torch.randn(2, 5, 1)
    torch.testing.assert_close(again.mean(f), lik.mean(f), atol=0, rtol=0)


def test_the_power_is_found() -> None:
    z = torch.randn(2000, generator=torch.Generator().manual_seed(0))
    assert likeliest_power(z.exp()) == 0.0
    assert likeliest_power((5 + z).clamp_min(0.1) ** 2) == pytest.approx(0.5, abs=0.11)


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(hs.HeadstartError, match="positive numbers"):
        hs.Power(0.0).check(torch.tensor([1.0, 0.0]), 1)
    with pytest.raises(hs.HeadstartError, match="between 0 and 1, not at 2"):
        hs.Power(2.0)
    with pytest.raises(hs.HeadstartError, match="base of Power"):
        hs.Power(0.0, "poisson")
