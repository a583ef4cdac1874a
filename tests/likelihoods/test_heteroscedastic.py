"""The heteroscedastic likelihood: density, and targets that find a known noise."""

from __future__ import annotations

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
