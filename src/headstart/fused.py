"""The inner loops of a step, drawing and KL, with their gradients written out: fewer passes over memory, less to keep.

Each equals a plain expression, `plain_*` here, in value and in gradient; inside torch.func's transforms the plain one is what runs.
Noise is for S samples, or for half of them (`headstart.noise.whole`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from headstart.noise import whole


def plain_perturb(mean: Tensor, var: Tensor, noise: Tensor, samples: int) -> Tensor:
    """`mean + sqrt(var) · noise` for each of S samples: mean and var of N rows, noise and result of S·N."""
    each = whole(noise, samples * mean.shape[0]).unflatten(0, (samples, -1))
    return (mean + _least(var).sqrt() * each).flatten(0, 1)


def plain_dense(x: Tensor, mean: Tensor, logvar: Tensor, noise: Tensor, samples: int) -> Tensor:
    """`perturb(F.linear(x, μ, b), F.linear(x², d, d_b), noise)`, `d = exp(logvar)`, for matrices (units, fan_in or fan_in + 1), the bias last."""
    return plain_perturb(_linear(x, mean), _linear(x.square(), logvar.exp()), noise, samples)


def plain_drawn(x: Tensor, mean: Tensor, logvar: Tensor, noise: Tensor, samples: int) -> Tensor:
    """`F.linear(x_s, W_s, b_s)` for each sample, x the rows of all of them, by weights `mean + exp(logvar / 2) · noise`; noise (S, units, size)."""
    draws = mean + (0.5 * logvar).exp() * whole(noise, samples)
    return torch.vmap(_linear)(x.unflatten(0, (samples, -1)), draws).flatten(0, 1)


def plain_isotropic_kl(means: Sequence[Tensor], logvars: Sequence[Tensor], prior_var: float) -> Tensor:
    """`½ Σ [(mean² + exp(logvar)) / p − 1 − logvar + log p]`: KL(N(mean, exp logvar) ‖ N(0, p)), summed over weights and layers."""
    mean, logvar = _flat(means), _flat(logvars)
    return 0.5 * ((mean.square() + logvar.exp()) / prior_var - 1 - logvar + math.log(prior_var)).sum()


def perturb(mean: Tensor, var: Tensor, noise: Tensor, samples: int = 1) -> Tensor:
    """`plain_perturb`.

    Example:
        >>> perturb(torch.ones(1, 2), torch.full((1, 2), 9.0), torch.tensor([[0.0, 1.0], [2.0, 0.0]]), samples=2)
        tensor([[1., 4.],
                [7., 1.]])
    """
    if noise.requires_grad or _transformed():
        return plain_perturb(mean, var, noise, samples)
    out: Tensor = _Perturb.apply(mean, var, noise, samples)
    return out


def dense(x: Tensor, mean: Tensor, logvar: Tensor, noise: Tensor, samples: int = 1) -> Tensor:
    """`plain_dense`.

    Example:
        >>> dense(torch.ones(1, 2), torch.ones(1, 3), torch.full((1, 3), 3.0).log(), torch.tensor([[0.0], [1.0]]), samples=2)
        tensor([[3.],
                [6.]])
    """
    if _transformed():
        return plain_dense(x, mean, logvar, noise, samples)
    out: Tensor = _Dense.apply(x, mean, logvar, noise, samples)
    return out


def drawn(x: Tensor, mean: Tensor, logvar: Tensor, noise: Tensor, samples: int) -> Tensor:
    """`plain_drawn`.

    Example:
        >>> drawn(torch.ones(2, 1), torch.ones(1, 2), torch.zeros(1, 2), torch.ones(1, 1, 2), samples=2)  # ±1 on weight and bias
        tensor([[4.],
                [0.]])
    """
    if _transformed():
        return plain_drawn(x, mean, logvar, noise, samples)
    out: Tensor = _Drawn.apply(x, mean, logvar, noise, samples)
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


def _once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """`once_differentiable`, which costs as much as a small layer, only where a second derivative may be asked for."""
    guarded = once_differentiable(backward)

    @functools.wraps(backward)
    def run(ctx: Any, *grads: Tensor) -> Any:
        return (guarded if torch.is_grad_enabled() else backward)(ctx, *grads)

    return run


class _Perturb(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mean: Tensor, var: Tensor, noise: Tensor, samples: int) -> Tensor:
        out, slope = _draws(mean, _least(var).sqrt_(), noise, samples, in_place=False)
        ctx.save_for_backward(slope)
        return out

    @staticmethod
    @_once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        by_mean, by_var = _moments_grad(grad, *ctx.saved_tensors)
        return by_mean, by_var.mul_(0.5), None, None


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mean: Tensor, logvar: Tensor, noise: Tensor, samples: int) -> Tensor:
        var, rows = logvar.exp().clamp_min_(_tiny(logvar)), _with_ones(x, mean)
        out, sd = torch.mm(rows, mean.t()), torch.mm(rows * rows, var.t())
        ctx.fan_in = x.shape[1]
        if rows is x:  # a row of zeros has no variance; with a bias it does
            sd = sd.clamp_min_(_tiny(sd))
        out, slope = _draws(out, sd.sqrt_(), noise, samples, in_place=True)
        ctx.save_for_backward(x if samples == 1 else rows, mean, var, slope)
        return out

    @staticmethod
    @_once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None, None]:
        x, mean, var, slope = ctx.saved_tensors
        g, h = _moments_grad(grad, slope)
        rows, by_x = _with_ones(x, mean), None
        if ctx.needs_input_grad[0]:
            x = x[:, : ctx.fan_in]
            by_x = torch.mm(h, var[:, : ctx.fan_in]).mul_(x).addmm_(g, mean[:, : ctx.fan_in])
        by_var = torch.addmm(var, h.t(), rows * rows, beta=0, alpha=0.5)
        return by_x, torch.mm(g.t(), rows), by_var.mul_(var), None, None


class _Drawn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mean: Tensor, logvar: Tensor, noise: Tensor, samples: int) -> Tensor:
        units, size = mean.shape
        sd, noise = logvar.mul(0.5).exp_(), noise.view(-1, units, size)
        weights = _around(mean, sd, noise, samples).view(samples, units, size)
        ctx.save_for_backward(x, weights, sd, noise)
        return torch.bmm(_with_ones(x, mean).view(samples, -1, size), weights.mT).view(-1, units)

    @staticmethod
    @_once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None, None]:
        x, weights, sd, noise = ctx.saved_tensors
        samples, units, size = weights.shape
        grads, fan_in, by_x = grad.view(samples, -1, units), x.shape[1], None
        if ctx.needs_input_grad[0]:
            by_x = torch.bmm(grads, weights[..., :fan_in]).view(-1, fan_in)
        by_weights = torch.bmm(grads.mT, _with_ones(x, sd).view(samples, -1, size))
        by_mean, by_sd = _spread_grad(by_weights, noise)
        return by_x, by_mean, by_sd.mul_(sd).mul_(0.5), None, None


class _IsotropicKL(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, prior_var: float, *parameters: Tensor) -> Tensor:
        means, logvars = parameters[: len(parameters) // 2], parameters[len(parameters) // 2 :]
        mean, logvar = _flat(means), _flat(logvars)
        var = logvar.exp()
        ctx.prior_var, ctx.shapes = prior_var, [part.shape for part in means]
        ctx.save_for_backward(mean, var)
        quadratic = mean.dot(mean) + var.sum()  # the copy is aligned: BLAS adds in an order that depends on that
        return (quadratic / prior_var - logvar.sum() + mean.numel() * (math.log(prior_var) - 1)) / 2

    @staticmethod
    @_once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        mean, var = ctx.saved_tensors
        half = grad / 2
        flat = mean * (grad / ctx.prior_var), (var * (half / ctx.prior_var)).sub_(half)
        sizes = [shape.numel() for shape in ctx.shapes]
        return (None, *(p.view(shape) for each in flat for p, shape in zip(each.split(sizes), ctx.shapes, strict=True)))


def autocasting(x: Tensor) -> bool:
    """Whether autocast is at work, which knows plain operations only."""
    kind = x.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


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


def _draws(mean: Tensor, sd: Tensor, noise: Tensor, samples: int, in_place: bool) -> tuple[Tensor, Tensor]:
    """`mean + sd · noise`, and the slope noise / sd: (N, ...) for one sample, else for as many samples as there is noise for.

    sd is spoilt, and the mean too where it may be.
    """
    if samples > 1:
        each = noise.view(-1, *mean.shape)
        out = _around(mean, sd, each, samples).reshape(-1, *mean.shape[1:])
        return out, (each / sd).contiguous()
    if noise.ndim == mean.ndim:
        return (mean.addcmul_ if in_place else mean.addcmul)(sd, noise), noise / sd
    means, sds = (part.unflatten(0, (2, *noise.shape[:2])) for part in (mean, sd))
    sds[1].neg_()
    out = (means.addcmul_ if in_place else means.addcmul)(sds, noise)
    return out.flatten(0, 2), (noise / sds).reshape(mean.shape)


def _around(mean: Tensor, sd: Tensor, noise: Tensor, samples: int) -> Tensor:
    """`mean + sd · noise` for S samples; for half of them, and then the others on an axis before, where noise comes so."""
    if noise.shape[0] == samples:
        return torch.addcmul(mean, sd, noise)
    out = mean.new_empty((2, *noise.shape))
    torch.addcmul(mean, sd, noise, out=out[0])
    torch.addcmul(mean, sd, noise, value=-1, out=out[1])
    return out


def _spread_grad(grads: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients by mean and sd in `_around`, of that by its result, the samples on one axis."""
    by_mean, half = grads.sum(0), noise.shape[0]
    if grads.shape[0] != half:
        return by_mean, (grads[:half] - grads[half:]).mul_(noise).sum(0)
    return by_mean, torch.linalg.vecdot(grads, noise, dim=0)


def _moments_grad(grad: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient by the mean and twice that by the variance; the slope is that of `_draws`."""
    if slope.ndim == grad.ndim:
        return grad, grad * slope
    return _spread_grad(grad.reshape(-1, *slope.shape[1:]), slope)


def _with_ones(x: Tensor, matrix: Tensor) -> Tensor:
    """The rows that the matrix multiplies: x, and a 1 for the bias where the matrix holds one."""
    return x if matrix.shape[1] == x.shape[1] else torch.cat([x, x.new_ones(x.shape[0], 1)], dim=1)


def _linear(x: Tensor, matrix: Tensor) -> Tensor:
    size = x.shape[1]
    return F.linear(x, matrix[:, :size], matrix[:, size] if matrix.shape[1] > size else None)
