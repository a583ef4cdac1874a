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


def test_an_interval_leaves_above_what_it_cannot_leave_below() -> None:
    """Of rates ½, 2, 5 and 50, by hand from scipy's distribution functions."""
    rate = torch.tensor([[0.5, 2.0, 5.0, 50.0]])
    low, high = hs.Poisson().interval(rate.log().unsqueeze(0), 0.95)
    assert low.tolist() == [[0, 0, 1, 37]]
    # The quantiles at .975 are 2, 5, 10 and 64. [0, 4] holds .947 of rate 2 and [1, 9] .962 of 5.
    assert high.tolist() == [[2, 5, 9, 64]]
    f = torch.tensor([[[0.34]]]).log()
    # [0, 1] holds .954 of rate .34, whose quantile at .975 is 2.
    for lik in (hs.Poisson(), hs.Weighted(hs.Poisson())):
        low, high = hs.Predictive(f, lik).interval(0.95)
        assert (low.item(), high.item(), lik.quantile(f, 0.975).item()) == (0, 1, 2)
    assert hs.Predictive(f, hs.Poisson()).evaluate(torch.tensor([2.0]))["coverage_95"] == 0
