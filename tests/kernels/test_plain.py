"""The plain expressions, each against torch's own distributions and layers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Normal, kl_divergence

from headstart.kernels.plain import (
    above_zero,
    flattened,
    plain_dense,
    plain_dense_by_weights,
    plain_isotropic_kl,
    plain_perturb,
    positive,
    smallest_positive,
)

pytestmark = pytest.mark.usefixtures("float64")
S, N, UNITS, SIZE = 3, 5, 2, 4


def test_every_sample_is_the_mean_and_its_own_noise() -> None:
    mean, var, noise = torch.randn(N, UNITS), torch.rand(N, UNITS), torch.randn(S * N, UNITS)
    found = plain_perturb(mean, var, noise, S)
    for k, sample in enumerate(found.split(N)):
        torch.testing.assert_close(sample, mean + var.sqrt() * noise[k * N : (k + 1) * N])


def test_noise_may_come_on_two_axes_of_samples() -> None:
    mean, var = torch.randn(N, UNITS), torch.rand(N, UNITS)
    half = torch.randn(1, 2, N, UNITS)
    apart = torch.cat([half, -half])
    found = plain_perturb(mean, var, apart, 4)
    assert torch.equal(found, plain_perturb(mean, var, apart.reshape(4 * N, UNITS), 4))
    # Opposite noise: the two halves have the mean between them.
    torch.testing.assert_close(found.chunk(2)[0] + found.chunk(2)[1], 2 * mean.repeat(2, 1))


@pytest.mark.parametrize("bias", [True, False])
def test_a_dense_layer_draws_its_outputs_from_their_moments(bias: bool) -> None:
    x, noise = torch.randn(N, SIZE), torch.randn(S * N, UNITS)
    mean, var = torch.randn(UNITS, SIZE + bias), torch.rand(UNITS, SIZE + bias)
    ones = torch.ones(N, int(bias))
    inputs = torch.cat([x, ones], 1)
    output, spread = inputs @ mean.T, inputs.square() @ var.T
    expected = torch.cat([output + spread.sqrt() * each for each in noise.split(N)])
    torch.testing.assert_close(plain_dense(x, mean, var, noise, S), expected)


@pytest.mark.parametrize("bias", [True, False])
def test_a_dense_layer_by_weights_runs_every_sample_through_its_own(bias: bool) -> None:
    x, noise = torch.randn(S * N, SIZE), torch.randn(S, UNITS, SIZE + bias)
    mean, var = torch.randn(UNITS, SIZE + bias), torch.rand(UNITS, SIZE + bias)
    draws = mean + var.sqrt() * noise
    expected = [
        F.linear(rows, weight[:, :SIZE], weight[:, SIZE] if bias else None)
        for rows, weight in zip(x.split(N), draws, strict=True)
    ]
    found = plain_dense_by_weights(x, mean, var, noise, S)
    torch.testing.assert_close(found, torch.cat(expected))


def test_the_kl_to_an_isotropic_prior_is_that_of_the_distributions() -> None:
    means = [torch.randn(2, 3), torch.randn(4)]
    logvars = [torch.randn(2, 3), torch.randn(4)]
    found = plain_isotropic_kl(means, logvars, 0.3)
    laws = [Normal(m, (v / 2).exp()) for m, v in zip(means, logvars, strict=True)]
    expected = sum(kl_divergence(law, Normal(0.0, 0.3**0.5)).sum() for law in laws)
    torch.testing.assert_close(found.kl, expected, atol=1e-9, rtol=0)
    for mean, var, law in zip(found.means, found.variances, laws, strict=True):
        torch.testing.assert_close(mean, law.mean)
        torch.testing.assert_close(var, law.variance)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_variance_stays_above_zero_where_the_exponential_underflows(dtype: torch.dtype) -> None:
    smallest = smallest_positive(torch.zeros((), dtype=dtype))
    found = positive(torch.tensor([-1e4, 0.0], dtype=dtype))
    assert found.tolist() == [smallest, 1.0]
    assert smallest > 0
    # There is no number between it and zero.
    assert not torch.tensor(smallest, dtype=dtype).mul(0.5).gt(0)


def test_the_gradient_of_a_draw_without_variance_is_finite() -> None:
    mean, var = torch.zeros(N, UNITS).requires_grad_(), torch.zeros(N, UNITS).requires_grad_()
    plain_perturb(mean, var, torch.randn(N, UNITS), 1).sum().backward()
    assert torch.equal(mean.grad, torch.ones(N, UNITS))
    assert bool(var.grad.isfinite().all())
    assert above_zero(torch.tensor([0.0, 2.0])).tolist() == [smallest_positive(mean), 2.0]


def test_tensors_are_laid_end_to_end() -> None:
    found = flattened([torch.tensor([[1.0, 2.0], [3.0, 4.0]]).T, torch.tensor(5.0)])
    assert found.tolist() == [1.0, 3.0, 2.0, 4.0, 5.0]
