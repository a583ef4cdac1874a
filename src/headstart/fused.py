"""The inner loops of a step, local reparameterisation and KL, with their gradients written out: fewer passes over memory, less to keep.

They equal the plain expressions in their docstrings, in value and gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def perturb(mean: Tensor, var: Tensor, noise: Tensor) -> Tensor:
    """`mean + sqrt(var) · noise`, for noise of one or several samples (S, *mean.shape).

    Example:
        >>> perturb(torch.ones(2), torch.full((2,), 9.0), torch.tensor([[0.0, 1.0]]))
        tensor([[1., 4.]])
    """
    out: Tensor = _Perturb.apply(mean, var, noise)[0]
    return out


def dense(x: Tensor, mean: Tensor, var: Tensor, noise: Tensor) -> Tensor:
    """`perturb(F.linear(x, μ, b), F.linear(x², d, d_b), noise)` for matrices (units, fan_in or fan_in + 1), the bias last.

    Example:
        >>> dense(torch.ones(1, 2), torch.ones(1, 3), torch.full((1, 3), 3.0), torch.tensor([[[0.0]], [[1.0]]]))
        tensor([[[3.]],
        <BLANKLINE>
                [[6.]]])
    """
    out: Tensor = _Dense.apply(x, mean, var, noise)[0]
    return out


def second_moment(mean: Tensor, logvar: Tensor) -> Tensor:
    """`Σ mean² + exp(logvar)`.

    Example:
        >>> second_moment(torch.tensor([3.0]), torch.tensor([0.0]))
        tensor(10.)
    """
    out: Tensor = _SecondMoment.apply(mean, logvar)[0]
    return out


class _SecondMoment(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(mean: Tensor, logvar: Tensor) -> tuple[Tensor, Tensor]:
        var = logvar.exp()
        flat = mean.flatten().clone()  # a fresh tensor is aligned, and BLAS adds in an order that depends on that
        return flat.dot(flat) + var.sum(), var

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        mean, var = ctx.saved_tensors
        return mean * (2 * grad), var * grad


class _Perturb(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(mean: Tensor, var: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        sd = _sd(var.clone())
        return torch.addcmul(mean, sd, noise), sd

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1], inputs[2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
        by_mean, by_var = _moments_grad(grad, *ctx.saved_tensors)
        return by_mean, by_var.mul_(0.5), None


class _Dense(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, mean: Tensor, var: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        sd = _sd(_linear(x * x, var))
        return torch.addcmul(_linear(x, mean), sd, noise), sd

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        x, mean, var, noise, sd = ctx.saved_tensors
        g, h = _moments_grad(grad, sd, noise)
        size, by_x = x.shape[1], None
        if ctx.needs_input_grad[0]:
            by_x = torch.mm(h, var[:, :size]).mul_(x).addmm_(g, mean[:, :size])
        return by_x, _weight_grad(g, x, mean), _weight_grad(h, x * x, var).mul_(0.5), None


def _sd(var: Tensor) -> Tensor:
    """The root, in place. A row of zeros has no variance, and sqrt'(0) is inf."""
    return var.clamp_min_(torch.finfo(var.dtype).tiny).sqrt_()


def _moments_grad(grad: Tensor, sd: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient by the mean and twice that by the variance, summed over the samples."""
    if len(grad) == 1:
        return grad[0], (grad[0] * noise[0]).div_(sd)
    return grad.sum(0), torch.linalg.vecdot(grad, noise, dim=0).div_(sd)


def _linear(x: Tensor, matrix: Tensor) -> Tensor:
    size = x.shape[1]
    out = torch.mm(x, matrix[:, :size].t())
    return out if matrix.shape[1] == size else out.add_(matrix[:, size].contiguous())


def _weight_grad(grad: Tensor, x: Tensor, matrix: Tensor) -> Tensor:
    """The gradient of `_linear` by its matrix."""
    size = x.shape[1]
    if matrix.shape[1] == size:
        return torch.mm(grad.t(), x)
    return torch.cat([torch.mm(grad.t(), x), grad.sum(0).unsqueeze(1)], dim=1)
