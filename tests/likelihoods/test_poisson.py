"""The Poisson likelihood: density, quantiles, and targets that find a known rate."""

from __future__ import annotations

import pytest
import scipy.stats
import torch

import headstart as hs
from tests.likelihoods.linear import linear_truth

pytestmark = pytest.mark.usefixtures("float64")


def test_poisson_density_and_quantiles() -> None:
    f, y = torch.randn(4, 6, 2), torch.poisson(torch.rand(6, 2) * 5)
    torch.testing.assert_close(
        hs.Poisson().log_prob(f, y), torch.distributions.Poisson(f.exp()).log_prob(y).sum(-1)
    )
    rate = torch.tensor([[0.3, 4.0, 60.0]])
    for level in (0.025, 0.5, 0.975):
        found = hs.Poisson().quantile(rate.log().unsqueeze(0), level)
        assert found.tolist() == scipy.stats.poisson.ppf(level, rate.numpy()).tolist()


@pytest.mark.parametrize("dispersion", [None, 1e-6, 1e-3])
def test_large_counts_keep_their_density_in_single_precision(dispersion: float | None) -> None:
    y = torch.tensor([[0.0], [3.0], [1e5], [1e7]], dtype=torch.float32)
    f = (1.001 * y.clamp_min(1)).log()
    rate, counts = f.double().exp().numpy(), y.double().numpy()
    if dispersion is None:
        found, expected = hs.Poisson().log_prob(f, y), scipy.stats.poisson.logpmf(counts, rate)
    else:
        lik, size = hs.NegativeBinomial(dispersion), 1 / dispersion
        found = lik.log_prob(f, y).detach()
        expected = scipy.stats.nbinom.logpmf(counts, size, size / (size + rate))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), torch.as_tensor(expected)[:, 0], rtol=0, atol=1e-3)


def test_the_poisson_targets_find_a_known_log_rate() -> None:
    x = torch.randn(20_000, 2)
    truth = torch.tensor([0.3, -0.2, 2.5])
    y = torch.poisson((x @ truth[:2] + truth[2]).exp())
    found = linear_truth(hs.Poisson(), 1, x, y)[0]
    torch.testing.assert_close(found[:2], truth[:2], atol=0.02, rtol=0)
    # Weights by the counts themselves lean upwards by half an inverse count.
    assert float(found[2]) == pytest.approx(2.5, abs=0.06)
