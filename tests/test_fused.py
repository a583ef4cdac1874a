"""The fused inner loops equal the plain expressions, in value and in gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headstart.fused import dense, isotropic_kl, perturb, plain_dense, plain_isotropic_kl, plain_perturb

pytestmark = pytest.mark.usefixtures("float64")


def parameter(*shape: int) -> Tensor:
    return torch.randn(shape).requires_grad_()


def assert_same(found: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(found)
    for mine, theirs in zip(
        torch.autograd.grad(found, inputs, weight), torch.autograd.grad(expected, inputs, weight), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("samples", [1, 5])
@pytest.mark.parametrize("shape", [(7, 3), (2, 3, 4, 5)])
def test_perturb(samples: int, shape: tuple[int, ...]) -> None:
    mean, var = parameter(*shape), torch.rand(shape).requires_grad_()
    noise = torch.randn(samples * shape[0], *shape[1:])
    assert_same(perturb(mean, var, noise.clone()), plain_perturb(mean, var, noise), [mean, var])
    first = noise[: shape[0]]
    torch.testing.assert_close(plain_perturb(mean, var, first), mean + var.sqrt() * first)


def test_noise_that_depends_on_parameters_gets_its_gradient() -> None:
    mean, var, noise = parameter(4, 3), torch.rand(4, 3).requires_grad_(), parameter(8, 3)
    assert_same(perturb(mean, var, noise), plain_perturb(mean, var, noise), [mean, var, noise])


@pytest.mark.parametrize("samples", [1, 5])
@pytest.mark.parametrize("bias", [True, False])
def test_dense(samples: int, bias: bool) -> None:
    x, mean, logvar = parameter(7, 4), parameter(3, 4 + bias), parameter(3, 4 + bias)
    noise = torch.randn(samples * 7, 3)
    assert_same(dense(x, mean, logvar, noise.clone()), plain_dense(x, mean, logvar, noise), [x, mean, logvar])
    by_hand = (
        x @ mean[:, :4].T
        + (x.square() @ logvar[:, :4].exp().T + (logvar[:, 4].exp() if bias else 0)).sqrt() * noise[:7]
    )
    torch.testing.assert_close(dense(x, mean, logvar, noise[:7].clone()), by_hand + (mean[:, 4] if bias else 0))


@pytest.mark.parametrize("bias", [True, False])
def test_a_row_of_zeros_has_a_finite_gradient(bias: bool) -> None:
    x, mean = torch.zeros(2, 4).requires_grad_(), parameter(3, 4 + bias)
    logvar = torch.full((3, 4 + bias), -1e4).requires_grad_()  # its exponential is zero
    dense(x, mean, logvar, torch.randn(2, 3)).sum().backward()
    for tensor in (x, mean, logvar):
        assert tensor.grad is not None
        assert bool(tensor.grad.isfinite().all())


def test_isotropic_kl() -> None:
    means, logvars = ([parameter(3, 4), parameter(2, 5)] for _ in range(2))
    found, expected = isotropic_kl(means, logvars, 0.3), plain_isotropic_kl(means, logvars, 0.3)
    assert_same(found, expected, [*means, *logvars])
    law = [
        torch.distributions.Normal(m.flatten(), (0.5 * v).exp().flatten()) for m, v in zip(means, logvars, strict=True)
    ]
    prior = torch.distributions.Normal(0.0, 0.3**0.5)
    by_torch = torch.stack([torch.distributions.kl_divergence(q, prior).sum() for q in law]).sum()
    torch.testing.assert_close(found, by_torch)


def test_per_example_gradients() -> None:
    """`torch.func`'s vmap of grad goes the plain way."""
    x, mean, logvar = torch.randn(6, 4), torch.randn(3, 5), torch.randn(3, 5)
    noise = torch.randn(6, 1, 3)

    def loss(mean: Tensor, x: Tensor, noise: Tensor) -> Tensor:
        return dense(x.unsqueeze(0), mean, logvar, noise).square().sum()

    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(mean, x, noise)
    expected = torch.stack([torch.func.grad(loss)(mean, a, n) for a, n in zip(x, noise, strict=True)])
    torch.testing.assert_close(found, expected)
