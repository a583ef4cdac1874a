"""The inner loops of a step, local reparameterisation and KL, with their gradients written out: fewer passes over memory, less to keep.

Each equals a plain expression, `plain_*` here, in value and in gradient; inside torch.func's transforms the plain one is what runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def plain_perturb(mean: Tensor, var: Tensor, noise: Tensor) -> Tensor:
    """`mean + sqrt(var) · noise` for each of S samples: mean and var of N rows, noise and result of S·N."""
    noise = noise.unflatten(0, (-1, len(mean)))
    return (mean + _least(var).sqrt() * noise).flatten(0, 1)


def plain_dense(x: Tensor, mean: Tensor, logvar: Tensor, noise: Tensor) -> Tensor:
    """`perturb(F.linear(x, μ, b), F.linear(x², d, d_b), noise)`, `d = exp(logvar)`, for matrices (units, fan_in or fan_in + 1), the bias last."""
    size = x.shape[1]

    def linear(x: Tensor, matrix: Tensor) -> Tensor:
        return F.linear(x, matrix[:, :size], matrix[:, size] if matrix.shape[1] > size else None)

    return plain_perturb(linear(x, mean), linear(x.square(), logvar.exp()), noise)


def plain_isotropic_kl(means: Sequence[Tensor], logvars: Sequence[Tensor], prior_var: float) -> Tensor:
    """`½ Σ [(mean² + exp(logvar)) / p − 1 − logvar + log p]`: KL(N(mean, exp logvar) ‖ N(0, p)), summed over weights and layers."""
    mean, logvar = _flat(means), _flat(logvars)
    return 0.5 * ((mean.square() + logvar.exp()) / prior_var - 1 - logvar + math.log(prior_var)).sum()


def perturb(mean: Tensor, var: Tensor, noise: Tensor) -> Tensor:
    """`plain_perturb`; the memory of `noise` is used again, for something else.

    Example:
        >>> perturb(torch.ones(1, 2), torch.full((1, 2), 9.0), torch.tensor([[0.0, 1.0], [2.0, 0.0]]))
        tensor([[1., 4.],
                [7., 1.]])
    """
    if noise.requires_grad or _transformed():
        return plain_perturb(mean, var, noise)
    out: Tensor = _Perturb.apply(mean, var, noise)
    return out


def dense(x: Tensor, mean: Tensor, logvar: Tensor, noise: Tensor) -> Tensor:
    """`plain_dense`; the memory of `noise` is used again, for something else.

    Example:
        >>> dense(torch.ones(1, 2), torch.ones(1, 3), torch.full((1, 3), 3.0).log(), torch.tensor([[0.0], [1.0]]))
        tensor([[3.],
                [6.]])
    """
    if _transformed():
        return plain_dense(x, mean, logvar, noise)
    out: Tensor = _Dense.apply(x, mean, logvar, noise)
    return out


def isotropic_kl(means: Sequence[Tensor], logvars: Sequence[Tensor], prior_var: float) -> Tensor:
    """`plain_isotropic_kl`.

    Example:
        >>> isotropic_kl([torch.tensor([3.0])], [torch.tensor([0.0])], 1.0)
        tensor(4.5000)
    """
    if _transformed():
        return plain_isotropic_kl(means, logvars, prior_var)
    out: Tensor = _IsotropicKL.apply(prior_var, *means, *logvars)
    return out


class _Perturb(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mean: Tensor, var: Tensor, noise: Tensor) -> Tensor:
        sd = _least(var).sqrt_()
        each = noise.view(-1, *mean.shape)
        out = torch.addcmul(mean, sd, each)
        ctx.save_for_backward(each.div_(sd))
        return out.flatten(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        by_mean, by_var = _moments_grad(grad, *ctx.saved_tensors)
        return by_mean, by_var.mul_(0.5), None


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mean: Tensor, logvar: Tensor, noise: Tensor) -> Tensor:
        var, rows = logvar.exp().clamp_min_(_tiny(logvar)), _with_ones(x, mean)
        out, sd = torch.mm(rows, mean.t()), torch.mm(rows * rows, var.t())
        if rows is x:  # a row of zeros has no variance; with a bias it does
            sd = sd.clamp_min_(_tiny(sd))
        sd = sd.sqrt_()
        each = noise.view(-1, *out.shape)
        out = out.addcmul_(sd, noise) if len(each) == 1 else torch.addcmul(out, sd, each).flatten(0, 1)
        ctx.save_for_backward(x, mean, var, each.div_(sd))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        x, mean, var, slope = ctx.saved_tensors
        g, h = _moments_grad(grad, slope)
        rows, size, by_x = _with_ones(x, mean), x.shape[1], None
        if ctx.needs_input_grad[0]:
            by_x = torch.mm(h, var[:, :size]).mul_(x).addmm_(g, mean[:, :size])
        by_mean = torch.mm(g.t(), rows)
        by_var = torch.mm(h.t(), rows * rows)
        return by_x, by_mean, by_var.mul_(var).mul_(0.5), None


class _IsotropicKL(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, prior_var: float, *parameters: Tensor) -> Tensor:
        means, logvars = parameters[: len(parameters) // 2], parameters[len(parameters) // 2 :]
        mean, logvar = _flat(means), _flat(logvars)
        var = logvar.exp()
        ctx.prior_var = prior_var
        ctx.save_for_backward(*means, var)
        quadratic = mean.dot(mean) + var.sum()  # the copy is aligned: BLAS adds in an order that depends on that
        return (quadratic / prior_var - logvar.sum() + mean.numel() * (math.log(prior_var) - 1)) / 2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *means, var = ctx.saved_tensors
        half = grad / 2
        by_mean, by_logvar = _flat(means).mul_(grad / ctx.prior_var), (var * (half / ctx.prior_var)).sub_(half)
        sizes = [mean.numel() for mean in means]
        parts = (*by_mean.split(sizes), *by_logvar.split(sizes))
        return (None, *(part.view_as(mean) for part, mean in zip(parts, means * 2, strict=True)))


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def _transformed() -> bool:
    """Whether one of torch.func's transforms is at work: they see through plain expressions only."""
    return torch._C._are_functorch_transforms_active()


def _least(var: Tensor) -> Tensor:
    """A row of zeros has no variance, and sqrt'(0) is inf."""
    return var.clamp_min(_tiny(var))


def _tiny(like: Tensor) -> float:
    return torch.finfo(like.dtype).tiny


def _moments_grad(grad: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient by the mean and twice that by the variance, summed over the samples; `slope` (S, N, ...) is noise / sd."""
    if len(slope) == 1:
        return grad, grad * slope[0]
    each = grad.view_as(slope)
    return each.sum(0), torch.linalg.vecdot(each, slope, dim=0)


def _with_ones(x: Tensor, matrix: Tensor) -> Tensor:
    """The rows that the matrix multiplies: x, and a 1 for the bias where the matrix holds one."""
    return x if matrix.shape[1] == x.shape[1] else torch.cat([x, x.new_ones(x.shape[0], 1)], dim=1)
