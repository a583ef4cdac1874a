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
from headstart.kernels.draws import (
    draw_samples,
    first_noise,
    leading_columns,
    moments_grad,
    noise_slope,
    spread_grad,
    squares,
    with_ones,
)
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
        return draw_samples(mean, above_zero(var).sqrt_(), noise, samples, False, own_noise)
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
        rows = with_ones(x, mean.shape[1])
        means, sd, _ = dense_moments(rows, mean, var, rows is not x, in_place=rows is not x)
        return draw_samples(means, sd, noise, samples, in_place=True)
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
        ctx.save_for_backward(noise_slope(mean, sd, noise, samples))
        return draw_samples(mean, sd, noise, samples, in_place=False)

    @staticmethod
    @once_differentiable_if_asked
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        by_mean, by_var = moments_grad(grad, *ctx.saved_tensors)
        return by_mean, by_var.mul_(0.5), None, None


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mean: Tensor, var: Tensor, noise: Tensor, samples: int
    ) -> Tensor:
        rows, biased = with_ones(x, mean.shape[1]), mean.shape[1] > x.shape[1]
        # For one sample x is kept, and the rows that were made of it are overwritten.
        out, sd, _ = dense_moments(rows, mean, var, biased, in_place=biased and samples == 1)
        slope = noise_slope(out, sd, noise, samples)
        ctx.fan_in = x.shape[1]
        ctx.save_for_backward(x if samples == 1 else rows, mean, var, slope)
        return draw_samples(out, sd, noise, samples, in_place=True)

    @staticmethod
    @once_differentiable_if_asked
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None, None]:
        saved, mean, var, slope = ctx.saved_tensors
        g, h = moments_grad(grad, slope)
        rows, by_x = with_ones(saved, mean.shape[1]), None
        if ctx.needs_input_grad[0]:
            by_x = dense_input_grad(g, h, leading_columns(saved, ctx.fan_in), mean, var)
        by_mean = torch.mm(g.t(), rows)
        by_var = torch.mm(h.t(), squares(rows, in_place=rows is not saved)).mul_(0.5)
        return by_x, by_mean, by_var, None, None


class _DenseByWeights(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mean: Tensor, var: Tensor, noise: Tensor, samples: int
    ) -> Tensor:
        units, size = mean.shape
        noise, sd = noise.flatten(-3, -2) if noise.ndim > 3 else noise, var.sqrt()
        weights = torch.addcmul(mean, sd, noise).reshape(samples, units, size)
        ctx.save_for_backward(x, weights, sd, first_noise(noise, 3))
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
        by_mean, by_sd = spread_grad(by_weights, first, in_place=True)
        return by_x, by_mean, by_sd.div_(2 * sd), None, None


class _FusedIsotropicKL(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, prior_var: float, *parameters: Tensor) -> tuple[Tensor, ...]:
        means, logvars = parameters[: len(parameters) // 2], parameters[len(parameters) // 2 :]
        kl, variances = kl_and_variances(means, logvars, prior_var)
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
        pull, less = kl_slopes(grad, ctx.prior_var)
        half = 0.5 * pull
        by_means = [
            torch.addcmul(by, mean, pull)
            for by, mean in zip(grads[:layers], parts[:layers], strict=True)
        ]
        by_variances = zip(grads[layers:], parts[layers:], strict=True)
        return None, *by_means, *[torch.addcmul(less, by + half, var) for by, var in by_variances]


def kl_and_variances(
    means: Sequence[Tensor], logvars: Sequence[Tensor], prior_var: float
) -> tuple[Tensor, list[Tensor]]:
    """The KL of `plain_isotropic_kl`, and the variances of each layer, without a graph.

    Args:
        means: Of the weights of each layer.
        logvars: As the means.
        prior_var: p.
    """
    every = flattened(logvars)
    entropy = every.sum()
    every.exp_().clamp_min_(smallest_positive(every))
    quadratic = flattened(means).square_().sum() + every.sum()
    # Most priors have variance 1, and every operation on a number counts in a short step.
    quadratic = quadratic if prior_var == 1 else quadratic / prior_var
    kl = (quadratic - entropy + every.numel() * (math.log(prior_var) - 1)) / 2
    parts = every.split([logvar.numel() for logvar in logvars])
    return kl, [part.view_as(logvar) for part, logvar in zip(parts, logvars, strict=True)]


def kl_slopes(grad: Tensor, prior_var: float) -> tuple[Tensor, Tensor]:
    """What a mean is multiplied by in the gradient of the KL, and what a log-variance adds to it.

    Half of the first is what a variance is multiplied by.

    Args:
        grad: The gradient by the KL.
        prior_var: p.
    """
    return grad if prior_var == 1 else grad / prior_var, grad * -0.5


def dense_moments(
    rows: Tensor, mean: Tensor, var: Tensor, biased: bool, in_place: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and standard deviation of what a layer gives, and the squares of its rows.

    Args:
        rows: Its inputs, with a 1 for the bias if it has one.
        mean: Of its weights.
        var: As the mean.
        biased: Whether it has a bias: without one a row of zeros has no variance.
        in_place: Whether the rows are overwritten by their squares.
    """
    out, squared = F.linear(rows, mean), squares(rows, in_place)
    spread = F.linear(squared, var)
    if not biased:
        spread.clamp_min_(smallest_positive(spread))
    return out, spread.sqrt_(), squared


def dense_input_grad(g: Tensor, h: Tensor, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """The gradient by a layer's inputs, from what `moments_grad` returned.

    Args:
        g: The gradient by the mean of what the layer gives.
        h: Twice that by its variance.
        x: The inputs, without the 1 for a bias.
        mean: Of the weights.
        var: As the mean.
    """
    mean, var = (leading_columns(each, x.shape[1]) for each in (mean, var))
    return torch.mm(h, var).mul_(x).addmm_(g, mean)


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
