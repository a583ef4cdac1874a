"""The heteroscedastic likelihood: density, and targets that find a known noise."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.distributions import Normal

import headstart as hs
from tests.likelihoods.linear import linear_truth

pytestmark = pytest.mark.usefixtures("float64")


def test_heteroscedastic_density() -> None:
    f, y = torch.randn(4, 6, 4), torch.randn(6, 2)
    oracle = Normal(1 + 2 * f[..., :2], 2 * (f[..., 2:] / 2).exp()).log_prob(y).sum(-1)
    torch.testing.assert_close(hs.Heteroscedastic(loc=1.0, scale=2.0).log_prob(f, y), oracle)


def test_the_heteroscedastic_targets_find_a_known_noise() -> None:
    x = torch.randn(20_000, 2)
    mean, log_variance = torch.tensor([1.0, -2.0, 0.5]), torch.tensor([0.6, 0.3, -1.0])
    y = (
        x @ mean[:2]
        + mean[2]
        + (0.5 * (x @ log_variance[:2] + log_variance[2])).exp() * torch.randn(20_000)
    )
    found = linear_truth(hs.Heteroscedastic(), 2, x, y)
    torch.testing.assert_close(found[0], mean, atol=0.03, rtol=0)
    torch.testing.assert_close(found[1], log_variance, atol=0.08, rtol=0)


def test_no_row_has_more_noise_than_the_loudest_training_row(tmp_path: Path) -> None:
    lik = hs.Heteroscedastic(scale=2.0)
    seen = torch.stack([torch.zeros(5), torch.linspace(-1, 1, 5)], -1).expand(3, 5, 2)
    lik.bound_(seen)
    far = torch.tensor([[[0.0, 14.0], [0.0, -14.0], [0.0, 0.5]]])
    variances = 4 * torch.tensor([1.0, -1.0, 0.5]).exp()
    torch.testing.assert_close(lik.variance(far)[0, :, 0], variances)
    model = hs.bayesianize(hs.models.create("mlp-0x1", 1, 2))
    hs.save(tmp_path / "m", model, lik)
    assert hs.load(tmp_path / "m")[1].config() == lik.config()
    with pytest.raises(hs.HeadstartError, match="log_var_range"):
        hs.Heteroscedastic(log_var_range=(1.0, 0.0))
