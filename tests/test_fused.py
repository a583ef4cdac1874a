"""The fused inner loops equal the plain expressions, in value and in gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.fused import dense, perturb, second_moment


def plain(mean: Tensor, var: Tensor, noise: Tensor) -> Tensor:
    return mean + var.sqrt() * noise


def assert_same(found: Tensor, expected: Tensor, inputs: tuple[Tensor, ...]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(found)
    for mine, theirs in zip(
        torch.autograd.grad(found, inputs, weight), torch.autograd.grad(expected, inputs, weight), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("samples", [1, 5])
@pytest.mark.parametrize("shape", [(7, 3), (2, 3, 4, 5)])
def test_perturb(samples: int, shape: tuple[int, ...]) -> None:
    mean, var = torch.randn(shape).double().requires_grad_(), torch.rand(shape).double().requires_grad_()
    noise = torch.randn(samples, *shape).double()
    assert_same(perturb(mean, var, noise), plain(mean, var, noise), (mean, var))


@pytest.mark.parametrize("samples", [1, 5])
@pytest.mark.parametrize("bias", [True, False])
def test_dense(samples: int, bias: bool) -> None:
    x = torch.randn(7, 4).double().requires_grad_()
    mean = torch.randn(3, 4 + bias).double().requires_grad_()
    var = torch.rand(3, 4 + bias).double().requires_grad_()
    noise = torch.randn(samples, 7, 3).double()
    parts = [F.linear(a, m[:, :4], m[:, 4] if bias else None) for a, m in ((x, mean), (x.square(), var))]
    assert_same(dense(x, mean, var, noise), plain(parts[0], parts[1], noise), (x, mean, var))


def test_second_moment() -> None:
    mean, logvar = (torch.randn(3, 4).double().requires_grad_() for _ in range(2))
    assert_same(second_moment(mean, logvar), (mean.square() + logvar.exp()).sum(), (mean, logvar))


def test_per_example_gradients() -> None:
    """`torch.func`'s vmap of grad sees through the fused function."""
    x, mean, var = torch.randn(6, 4), torch.randn(3, 5), torch.rand(3, 5)
    noise = torch.randn(6, 1, 1, 3)

    def loss(mean: Tensor, x: Tensor, noise: Tensor) -> Tensor:
        return dense(x.unsqueeze(0), mean, var, noise).square().sum()

    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(mean, x, noise)
    expected = torch.stack([torch.func.grad(loss)(mean, a, n) for a, n in zip(x, noise, strict=True)])
    torch.testing.assert_close(found, expected)
