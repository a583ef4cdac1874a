"""The inner loops of a step, drawing and KL, with their gradients written out.

They take fewer passes over memory, and keep less. Each equals a plain expression
(`headstart.kernels.plain`) in value and in gradient; inside torch.func's transforms and
torch.compile the plain one runs.
Noise may have its samples on axes of their own (`headstart.kernels.noise.folded`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from headstart.kernels import private as torch_private
from headstart.kernels.plain import (
    IsotropicKL,
    above_zero,
    flattened,
    plain_dense,
    plain_dense_by_weights,
    plain_isotropic_kl,
    plain_perturb,
    smallest_positive,
)


def perturb(
    mean: Tensor, var: Tensor, noise: Tensor, samples: int = 1, own_noise: bool = False
) -> Tensor:
    """`plain_perturb`; with `own_noise` the noise may be overwritten, since nobody else has it.

    Example:
        >>> noise = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
        >>> perturb(torch.ones(1, 2), torch.full((1, 2), 9.0), noise, samples=2)
        tensor([[1., 4.],
                [7., 1.]])
    """
    if noise.requires_grad or transformed():
        return plain_perturb(mean, var, noise, samples)
    if not torch.is_grad_enabled():
        return _draws(mean, above_zero(var).sqrt_(), noise, samples, False, own_noise)
    out: Tensor = torch_private.apply(_Perturb, mean, var, noise, samples)
    return out


def dense(x: Tensor, mean: Tensor, var: Tensor, noise: Tensor, samples: int = 1) -> Tensor:
    """`plain_dense`; variances larger than zero.

    Example:
        >>> mean, var = torch.ones(1, 3), torch.full((1, 3), 3.0)
        >>> dense(torch.ones(1, 2), mean, var, torch.tensor([[0.0], [1.0]]), samples=2)
        tensor([[3.],
                [6.]])
    """
    if transformed():
        return plain_dense(x, mean, var, noise, samples)
    if not torch.is_grad_enabled():
        _, means, sd = _dense_moments(x, mean, var, samples)
        return _draws(means, sd, noise, samples, in_place=True)
    out: Tensor = torch_private.apply(_Dense, x, mean, var, noise, samples)
    return out


def dense_by_weights(x: Tensor, mean: Tensor, var: Tensor, noise: Tensor, samples: int) -> Tensor:
    """`plain_dense_by_weights`; variances larger than zero.

    Example:
        >>> noise = torch.tensor([[[1.0, 1.0]], [[-1.0, -1.0]]])
        >>> dense_by_weights(torch.ones(2, 1), torch.ones(1, 2), torch.ones(1, 2), noise, samples=2)
        tensor([[4.],
                [0.]])
    """
    if transformed():
        return plain_dense_by_weights(x, mean, var, noise, samples)
    out: Tensor = torch_private.apply(_DenseByWeights, x, mean, var, noise, samples)
    return out


def isotropic_kl(
    means: Sequence[Tensor], logvars: Sequence[Tensor], prior_var: float
) -> IsotropicKL:
    """`plain_isotropic_kl`.

    Where layers draw with what it gives, the gradients of draws and KL reach the parameters in one
    pass.

    Example:
        >>> found = isotropic_kl([torch.tensor([3.0])], [torch.tensor([0.0])], 1.0)
        >>> found.kl, found.variances[0]
        (tensor(4.5000), tensor([1.]))
    """
    if transformed():
        return plain_isotropic_kl(means, logvars, prior_var)
    kl, *others = torch_private.apply(_FusedIsotropicKL, prior_var, *means, *logvars)
    return IsotropicKL(kl, others[: len(means)], others[len(means) :])


def once_differentiable_if_asked(backward: Callable[..., Any]) -> Callable[..., Any]:
    """`once_differentiable`, which costs as much as a small layer, only where it may be needed.

    That is where a second derivative may be asked for.
    """
    guarded = once_differentiable(backward)

    @functools.wraps(backward)
    def run(ctx: Any, *grads: Tensor) -> Any:
        return (guarded if torch.is_grad_enabled() else backward)(ctx, *grads)

    return run


class _Perturb(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mean: Tensor, var: Tensor, noise: Tensor, samples: int) -> Tensor:
        sd = above_zero(var).sqrt_()
        ctx.save_for_backward(_noise_slope(mean, sd, noise, samples))
        return _draws(mean, sd, noise, samples, in_place=False)

    @staticmethod
    @once_differentiable_if_asked
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        by_mean, by_var = _moments_grad(grad, *ctx.saved_tensors)
        return by_mean, by_var.mul_(0.5), None, None


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mean: Tensor, var: Tensor, noise: Tensor, samples: int
    ) -> Tensor:
        rows, out, sd = _dense_moments(x, mean, var, samples)
        ctx.fan_in = x.shape[1]
        slope = _noise_slope(out, sd, noise, samples)
        ctx.save_for_backward(x if samples == 1 else rows, mean, var, slope)
        return _draws(out, sd, noise, samples, in_place=True)

    @staticmethod
    @once_differentiable_if_asked
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None, None]:
        saved, mean, var, slope = ctx.saved_tensors
        g, h = _moments_grad(grad, slope)
        rows, by_x = with_ones(saved, mean.shape[1]), None
        if ctx.needs_input_grad[0]:
            x, mean, var = (_leading_columns(each, ctx.fan_in) for each in (saved, mean, var))
            by_x = torch.mm(h, var).mul_(x).addmm_(g, mean)
        by_mean = torch.mm(g.t(), rows)
        by_var = torch.mm(h.t(), _squares(rows, in_place=rows is not saved)).mul_(0.5)
        return by_x, by_mean, by_var, None, None


class _DenseByWeights(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mean: Tensor, var: Tensor, noise: Tensor, samples: int
    ) -> Tensor:
        units, size = mean.shape
        noise, sd = noise.flatten(-3, -2) if noise.ndim > 3 else noise, var.sqrt()
        weights = torch.addcmul(mean, sd, noise).reshape(samples, units, size)
        ctx.save_for_backward(x, weights, sd, _first(noise, 3))
        out = torch.bmm(with_ones(x, size).view(samples, -1, size), weights.mT)
        # A view could not be worked on in place.
        return out.as_strided_((x.shape[0], units), (units, 1))

    @staticmethod
    @once_differentiable_if_asked
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None, None]:
        x, weights, sd, first = ctx.saved_tensors
        samples, units, size = weights.shape
        grads, fan_in, by_x = grad.view(samples, -1, units), x.shape[1], None
        if ctx.needs_input_grad[0]:
            by_x = torch.bmm(grads, weights.narrow(2, 0, fan_in)).view(-1, fan_in)
        by_weights = torch.bmm(grads.mT, with_ones(x, size).view(samples, -1, size))
        by_mean, by_sd = _spread_grad(by_weights, first, in_place=True)
        return by_x, by_mean, by_sd.div_(2 * sd), None, None


class _FusedIsotropicKL(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, prior_var: float, *parameters: Tensor) -> tuple[Tensor, ...]:
        means, logvars = parameters[: len(parameters) // 2], parameters[len(parameters) // 2 :]
        every = flattened(logvars)
        entropy = every.sum()
        every.exp_().clamp_min_(smallest_positive(every))
        quadratic = flattened(means).square_().sum() + every.sum()
        # Most priors have variance 1, and every operation on a number counts in a short step.
        quadratic = quadratic if prior_var == 1 else quadratic / prior_var
        kl = (quadratic - entropy + every.numel() * (math.log(prior_var) - 1)) / 2
        parts = every.split([logvar.numel() for logvar in logvars])
        variances = [part.view_as(logvar) for part, logvar in zip(parts, logvars, strict=True)]
        moments = [*(mean.detach() for mean in means), *variances]
        frozen = [
            each
            for each, needed in zip(moments, ctx.needs_input_grad[1:], strict=True)
            if not needed
        ]
        # So that nothing below them is gone back through.
        ctx.mark_non_differentiable(*frozen)
        ctx.prior_var = prior_var
        ctx.save_for_backward(*moments)
        return kl, *moments

    @staticmethod
    @once_differentiable_if_asked
    def backward(ctx: Any, grad: Tensor, *grads: Tensor) -> tuple[Tensor | None, ...]:
        parts, layers = ctx.saved_tensors, len(grads) // 2
        pull, less = grad if ctx.prior_var == 1 else grad / ctx.prior_var, grad * -0.5
        half = 0.5 * pull
        by_means = [
            torch.addcmul(by, mean, pull)
            for by, mean in zip(grads[:layers], parts[:layers], strict=True)
        ]
        by_variances = zip(grads[layers:], parts[layers:], strict=True)
        return None, *by_means, *[torch.addcmul(less, by + half, var) for by, var in by_variances]


def autocasting(x: Tensor) -> bool:
    """Whether autocast is at work, which knows plain operations only."""
    if not torch_private.autocast_anywhere():
        return False
    kind = x.device.type
    # A compiler follows only the second question, which raises for devices without autocast
    known = torch.compiler.is_compiling() or torch.amp.is_autocast_available(kind)
    return known and torch.is_autocast_enabled(kind)


def whole_precision(x: Tensor) -> AbstractContextManager[Any]:
    """No autocast on the tensor's device."""
    return torch.autocast(x.device.type, enabled=False) if autocasting(x) else nullcontext()


def transformed() -> bool:
    """Whether one of torch.func's transforms is at work, or a compiler.

    They see through plain expressions only.
    """
    return torch.compiler.is_compiling() or torch_private.transforming()


def _dense_moments(
    x: Tensor, mean: Tensor, var: Tensor, samples: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The rows with a 1 for the bias, and mean and standard deviation of what a layer gives.

    For one sample the rows are overwritten, unless they are x itself.
    """
    rows = with_ones(x, mean.shape[1])
    out = F.linear(rows, mean)
    spread = F.linear(_squares(rows, in_place=samples == 1 and rows is not x), var)
    if rows is x:
        # Without a bias a row of zeros has no variance.
        spread.clamp_min_(smallest_positive(spread))
    return rows, out, spread.sqrt_()


def _draws(
    mean: Tensor, sd: Tensor, noise: Tensor, samples: int, in_place: bool, own_noise: bool = False
) -> Tensor:
    """`mean + sd · noise`; with `in_place` the mean of one sample is overwritten.

    The result is no view, unless it overwrites the noise: who gets it may work on it in place.
    """
    means, sds, each = _beside_noise(mean, sd, noise, samples)
    if samples > 1 or not in_place:
        out = torch.addcmul(means, sds, each, out=each if own_noise else None)
        return _joined(out, mean.ndim)
    means.addcmul_(sds, each)
    return mean


def _noise_slope(mean: Tensor, sd: Tensor, noise: Tensor, samples: int) -> Tensor:
    """The slope noise / sd of draws.

    It is (N, ...) for one sample, else that of the samples whose noise is not the negative of
    another's.
    """
    means, sds, each = _beside_noise(mean, sd, noise, samples)
    if samples > 1:
        return (_first(each, means.ndim + 1) / sds).reshape(-1, *mean.shape)
    return (each / sds).reshape(mean.shape)


def _beside_noise(
    mean: Tensor, sd: Tensor, noise: Tensor, samples: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, standard deviation and noise, with axes that fit each other."""
    if samples == 1:
        return mean.view(noise.shape), sd.view(noise.shape), noise
    each = noise if noise.ndim > mean.ndim else noise.view(samples, *mean.shape)
    if each.ndim > mean.ndim + 1 and each.shape[2] != mean.shape[0]:
        # Several samples come in, and each is drawn from again.
        each = each.unflatten(1, (samples // 2, -1))
        return mean.view(each.shape[2:]), sd.view(each.shape[2:]), each
    return mean, sd, each


def _joined(out: Tensor, ndim: int) -> Tensor:
    """Of so many axes, those of the samples joined to that of the rows.

    It is done in place, because nobody could work on a view in place.
    """
    flat = out.flatten(0, out.ndim - ndim)
    if not torch_private.is_view(flat, out):
        return flat
    return out.as_strided_(flat.shape, flat.stride())


def _first(noise: Tensor, ndim: int) -> Tensor:
    """The noise that the others are minus of; without an axis for that, all of it."""
    return noise if noise.ndim == ndim else noise[0]


def _spread_grad(grads: Tensor, first: Tensor, in_place: bool = False) -> tuple[Tensor, Tensor]:
    """The gradients by mean and sd in `mean + sd · noise`, from those by its result.

    The samples are on one axis. With `in_place` the gradients given are overwritten.
    """
    by_mean = grads.sum(0)
    if grads.shape[0] == first.shape[0]:
        return by_mean, torch.linalg.vecdot(grads, first, dim=0)
    plus, minus = grads.chunk(2)
    return by_mean, (plus.sub_(minus) if in_place else plus - minus).mul_(first).sum(0)


def _moments_grad(grad: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient by the mean and twice that by the variance; the slope is that of `_draws`."""
    if slope.ndim == grad.ndim:
        return grad, grad * slope
    return _spread_grad(grad.reshape(-1, *slope.shape[1:]), slope)


def with_ones(x: Tensor, size: int) -> Tensor:
    """The rows that a matrix (units, size) multiplies: x, and a 1 for its bias if it has one."""
    return x if size == x.shape[1] else torch.constant_pad_nd(x, (0, 1), 1.0)


def _leading_columns(matrix: Tensor, many: int) -> Tensor:
    """The first columns of it."""
    return matrix if matrix.shape[1] == many else matrix.narrow(1, 0, many)


def _squares(rows: Tensor, in_place: bool) -> Tensor:
    return rows.mul_(rows) if in_place else rows * rows
