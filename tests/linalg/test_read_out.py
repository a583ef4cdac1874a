"""The collapsed bound, its maximum, and rows left out, against what they are by definition."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from headstart.linalg.blm import log_evidence
from headstart.linalg.read_out import CollapsedBound, Moments, leave_one_out, maximize

pytestmark = pytest.mark.usefixtures("float64")


def moments(x: Tensor, t: Tensor) -> Moments:
    """Of draws (S, N, D) and targets (S, N, U), one group."""
    flat, targets = x.flatten(0, 1), t.flatten(0, 1)
    sums = (flat.T @ flat)[None], (targets.T @ flat)[None], targets.square().sum(0)[None]
    return Moments(*(part / len(x) for part in sums), float(x.shape[1]))


@pytest.mark.parametrize("rows", [3, 30])
def test_with_features_that_are_known_the_bound_is_the_evidence(rows: int) -> None:
    x, t = torch.randn(1, rows, 5), torch.randn(1, rows, 2)
    noise = torch.tensor([0.3, 0.8])
    found = CollapsedBound(moments(x, t)).value(noise, torch.tensor(1.7))
    expected = log_evidence(x[0], t[0], noise.expand(rows, 2), 1.7)
    assert torch.allclose(found, expected, rtol=0, atol=1e-10)


def test_the_bound_is_the_elbo_of_the_conditioned_weights() -> None:
    x, t, noise, prior = torch.randn(4, 20, 5), torch.randn(4, 20, 2), torch.tensor([0.3, 0.8]), 1.7
    sums = moments(x, t)
    eye = torch.eye(5).expand(2, 5, 5)
    q = sums.condition(noise, torch.zeros(2, 5), math.sqrt(prior) * eye)
    tril = torch.linalg.cholesky(torch.linalg.inv(q.precision()))
    error = sums.expected_error(q.mean, None, tril.permute(2, 0, 1))
    by_hand = (t - x @ q.mean.T).square() + torch.einsum("snd,ude->snue", x, tril).square().sum(-1)
    assert torch.allclose(error, by_hand.mean(0).sum(0), atol=1e-10)
    law = torch.distributions.MultivariateNormal(q.mean, scale_tril=tril)
    p = torch.distributions.MultivariateNormal(torch.zeros(2, 5), prior * eye)
    kl = torch.distributions.kl_divergence(law, p)
    elbo = -0.5 * (20 * (2 * math.pi * noise).log() + error / noise) - kl
    assert torch.allclose(CollapsedBound(sums).value(noise, torch.tensor(prior)), elbo, atol=1e-10)


def test_a_diagonal_counts_like_the_factors_it_stands_for() -> None:
    sums = moments(torch.randn(3, 20, 5), torch.randn(3, 20, 2))
    mean, var = torch.randn(2, 5), torch.rand(2, 5)
    factors = torch.diag_embed(var.sqrt()).permute(2, 0, 1)
    found = sums.expected_error(mean, var, None)
    assert torch.allclose(found, sums.expected_error(mean, None, factors), atol=1e-12)


def test_whitened_moments_have_the_evidence_of_their_prior() -> None:
    x, t, noise = torch.randn(1, 12, 4), torch.randn(1, 12, 2), torch.tensor([0.3, 0.8])
    mean, tril = torch.randn(2, 4), torch.randn(2, 4, 4).tril() + 3 * torch.eye(4)
    found = CollapsedBound(moments(x, t).whitened(mean, tril)).value(noise, torch.tensor(1.0))
    for unit in range(2):
        half = x[0] @ tril[unit]
        law = torch.distributions.MultivariateNormal(
            x[0] @ mean[unit], noise[unit] * torch.eye(12) + half @ half.T
        )
        assert float(found[unit]) == pytest.approx(float(law.log_prob(t[0, :, unit])), abs=1e-9)


def test_a_row_left_out_is_a_row_that_was_never_there() -> None:
    draws, rows = 3, 15
    x, t = torch.randn(draws, rows, 4), torch.randn(draws, rows, 2)
    noise, prior = torch.tensor([0.3, 0.8]), torch.eye(4).expand(2, 4, 4)
    zero = torch.zeros(2, 4)
    t = t[:1].expand_as(t)
    q = moments(x, t).condition(noise, zero, prior)
    mean, var = leave_one_out(x[None], t, q, noise)
    for row in range(rows):
        others = [n for n in range(rows) if n != row]
        without = moments(x[:, others], t[:, others]).condition(noise, zero, prior)
        assert torch.allclose(mean[:, row], x[:, row] @ without.mean.T, atol=1e-10)
        spread = torch.einsum(
            "sd,ude,se->su", x[:, row], torch.linalg.inv(without.precision()), x[:, row]
        )
        assert torch.allclose(var[:, row], spread, atol=1e-10)


def test_maximize_finds_the_top_and_stays_in_the_box() -> None:
    def hill(at: Tensor) -> Tensor:
        off = (at - torch.tensor([1.0, -2.0])) @ torch.tensor([[1.0, 0.5], [0.2, 3.0]])
        return -(1 + off.square() + off**4).log().sum()

    wide = torch.tensor([9.0, 9.0])
    found = maximize(hill, torch.tensor([-1.0, 1.0]), -wide, wide)
    assert torch.allclose(found, torch.tensor([1.0, -2.0]), atol=1e-7)
    held = maximize(hill, torch.tensor([0.0, 0.0]), torch.tensor([-9.0, -1.0]), wide)
    assert float(held[1]) == -1.0
    along = torch.autograd.functional.jacobian(hill, held)
    assert float(along[0]) == pytest.approx(0.0, abs=1e-6)
    fixed = torch.tensor([0.3, 4.0])
    assert torch.equal(maximize(hill, torch.zeros(2), fixed, fixed), fixed)


def test_a_flat_place_that_is_lower_is_no_maximum() -> None:
    """Beside a peak too sharp for any step the slope is smaller, and so is the value."""

    def peak(at: Tensor) -> Tensor:
        return -at.abs().log1p().sum()

    start, far = torch.tensor([1e-12]), torch.tensor([10.0])
    assert torch.equal(maximize(peak, start, -far, far), start)
