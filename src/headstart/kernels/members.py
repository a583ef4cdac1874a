"""Draws of K members at once, with their gradients written out: `perturb` and `dense` of several.

The members of a mixture have weights of their own, so their rows lie apart: axis 0 of an output
counts member by member, sample by sample, row by row. Each function equals the plain one beside it,
in value and in gradient; inside torch.func's transforms and torch.compile the plain one runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from headstart.kernels import private as torch_private
from headstart.kernels.draws import with_ones
from headstart.kernels.fused import once_differentiable_if_asked, transformed
from headstart.kernels.noise import Noise
from headstart.kernels.plain import above_zero, smallest_positive


class Fold(NamedTuple):
    """How the samples of K members lie along axis 0 of a layer's input, and of its output."""

    members: int
    """K."""
    received: int
    """The samples of each member that come in, r."""
    branches: int
    """How many draws are made from each of them."""
    shared: bool
    """Whether the input is one batch for all members."""

    def rows(self, x: Tensor) -> int:
        """The number of rows B of the batch in an input x."""
        return x.shape[0] if self.shared else x.shape[0] // (self.members * self.received)


def member_noise(noise: Noise, fold: Fold, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Noise of every member's samples, of a batch of a shape: (K, S, B, ...).

    Antithetic noise comes as (K, 2, S / 2, B, ...), in memory that the two halves share: the pairs
    are samples of one member.

    Args:
        noise: Where the numbers come from.
        fold: How samples lie.
        shape: Of an output of the batch, (B, ...).
        like: A tensor of the type and on the device wanted.
    """
    drawn = noise((fold.received * fold.branches, fold.members, *shape), like)
    return drawn.movedim(drawn.ndim - len(shape) - 1, 0)


def perturb_each(mean: Tensor, var: Tensor, noise: Tensor) -> Tensor:
    """`plain_perturb_each`.

    Example:
        >>> mean, var = torch.zeros(2, 1, 1, 1), torch.tensor([[[[1.0]]], [[[4.0]]]])
        >>> perturb_each(mean, var, torch.tensor([1.0, -1.0]).expand(2, 2).reshape(2, 2, 1, 1))
        tensor([[ 1.],
                [-1.],
                [ 2.],
                [-2.]])
    """
    if noise.requires_grad or transformed():
        return plain_perturb_each(mean, var, noise)
    out: Tensor = torch_private.apply(_PerturbEach, mean, var, noise)
    return out


def plain_perturb_each(mean: Tensor, var: Tensor, noise: Tensor) -> Tensor:
    """`mean + sqrt(var) · noise` for each of the S samples of each of K members.

    Args:
        mean: Of the r samples of each member that come in, (K, r, B, ...).
        var: As the mean.
        noise: Of the S = branches · r that leave, (K, S, B, ...), or as `member_noise` gives it.

    Returns:
        The draws, (K·S·B, ...).
    """
    noise = noise if noise.ndim == mean.ndim else noise.flatten(1, 2)
    each = noise.unflatten(1, (-1, mean.shape[1]))
    draws = (mean.unsqueeze(1) + above_zero(var).sqrt().unsqueeze(1) * each).flatten(0, 3)
    # A copy: in a graph that is exported for any number of rows, strides must not depend on it.
    return draws.clone(memory_format=torch.contiguous_format)


def dense_each(x: Tensor, mean: Tensor, var: Tensor, noise: Tensor, fold: Fold) -> Tensor:
    """`plain_dense_each`; variances larger than zero.

    Example:
        >>> mean, var = torch.tensor([[1.0], [5.0]]), torch.tensor([[1.0], [4.0]])
        >>> dense_each(torch.ones(1, 1), mean, var, torch.ones(2, 1, 1, 1), Fold(2, 1, 1, True))
        tensor([[2.],
                [7.]])
    """
    if transformed():
        return plain_dense_each(x, mean, var, noise, fold)
    out: Tensor = torch_private.apply(_DenseEach, x, mean, var, noise, fold)
    return out


def plain_dense_each(x: Tensor, mean: Tensor, var: Tensor, noise: Tensor, fold: Fold) -> Tensor:
    """`perturb_each(x_k μ_kᵀ, x_k² σ_k²ᵀ, noise)`, the weights those of each member k.

    Args:
        x: The batch (B, fan_in) where members share it, else (K·r·B, fan_in).
        mean: (K·units, fan_in), or (K·units, fan_in + 1) with the bias last.
        var: As the mean.
        noise: As `member_noise` gives it.
        fold: How samples lie.
    """
    blocks = x if fold.shared else x.unflatten(0, (fold.members, -1))

    def moments(rows: Tensor, weights: Tensor) -> Tensor:
        each = weights.unflatten(0, (fold.members, -1))
        size = rows.shape[-1]
        out = rows @ each[..., :size].mT
        out = out if each.shape[-1] == size else out + each[..., size].unsqueeze(1)
        return out.unflatten(1, (fold.received, -1))

    return plain_perturb_each(moments(blocks, mean), moments(blocks.square(), var), noise)


class _PerturbEach(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mean: Tensor, var: Tensor, noise: Tensor) -> Tensor:
        out, slope = _draws(mean, above_zero(var).sqrt_(), noise)
        ctx.received = mean.shape[1]
        ctx.save_for_backward(slope)
        return out

    @staticmethod
    @once_differentiable_if_asked
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (slope,) = ctx.saved_tensors
        by_mean, by_var = _moments_grad(grad, slope, ctx.received)
        return by_mean, by_var.mul_(0.5), None


class _DenseEach(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mean: Tensor, var: Tensor, noise: Tensor, fold: Fold
    ) -> Tensor:
        rows = with_ones(x, mean.shape[1])
        out, slope, _ = draw_each(rows, mean, var, noise, fold, biased=rows is not x)
        ctx.fold, ctx.fan_in = fold, x.shape[1]
        ctx.save_for_backward(rows, mean, var, slope)
        return out

    @staticmethod
    @once_differentiable_if_asked
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None, None]:
        rows, mean, var, slope = ctx.saved_tensors
        fan_in = ctx.fan_in if ctx.needs_input_grad[0] else None
        moments = rows, rows * rows, mean, var
        by_x, by_mean, by_var = each_grad(grad, slope, moments, ctx.fold, fan_in)
        return by_x, by_mean, by_var.mul_(0.5), None, None


def draw_each(
    rows: Tensor, mean: Tensor, var: Tensor, noise: Tensor, fold: Fold, biased: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """`plain_dense_each` without a graph, the slope of the draws, and the squares of the rows.

    Args:
        rows: What members are given, with a 1 for the bias if there is one.
        mean: Of the weights of all members.
        var: As the mean.
        noise: As `member_noise` gives it.
        fold: How samples lie.
        biased: Whether there is a bias: without one a row of zeros has no variance.
    """
    squared = rows * rows
    out, spread = _each(rows, mean, fold), _each(squared, var, fold)
    if not biased:
        spread.clamp_min_(smallest_positive(spread))
    return *_draws(out, spread.sqrt_(), noise), squared


def each_grad(
    grad: Tensor,
    slope: Tensor,
    moments: tuple[Tensor, Tensor, Tensor, Tensor],
    fold: Fold,
    fan_in: int | None,
) -> tuple[Tensor | None, Tensor, Tensor]:
    """The gradients by what members are given, by the means, and twice that by the variances.

    Args:
        grad: That by the draws.
        slope: Of the draws, as `draw_each` gives it.
        moments: The rows and their squares; means and variances of the weights.
        fold: How samples lie.
        fan_in: The number of inputs; None: no gradient by them is needed.
    """
    rows, squared, mean, var = moments
    g, h = _moments_grad(grad, slope, fold.received)
    g, h, by_x = g.flatten(1, 2), h.flatten(1, 2), None
    if fan_in is not None:
        x = rows.narrow(1, 0, fan_in)
        by_squares, by_rows = _back(h, var, fan_in, fold), _back(g, mean, fan_in, fold)
        by_x = by_squares.mul_(x).add_(by_rows)
    return by_x, _outer(g, rows, fold), _outer(h, squared, fold)


def _each(rows: Tensor, weights: Tensor, fold: Fold) -> Tensor:
    """The products of every member's rows with its own weights, (K, r, B, units)."""
    if fold.shared:
        out = (rows @ weights.t()).unflatten(1, (fold.members, -1))
        return out.movedim(1, 0).unsqueeze(1)
    blocks, each = (part.unflatten(0, (fold.members, -1)) for part in (rows, weights))
    return torch.bmm(blocks, each.mT).unflatten(1, (fold.received, -1))


def _back(grad: Tensor, weights: Tensor, fan_in: int, fold: Fold) -> Tensor:
    """The gradient by the rows, from that (K, N, units) by their products with the weights."""
    each = weights.unflatten(0, (fold.members, -1)).narrow(2, 0, fan_in)
    by_rows = torch.bmm(grad, each)
    return by_rows.sum(0) if fold.shared else by_rows.flatten(0, 1)


def _outer(grad: Tensor, rows: Tensor, fold: Fold) -> Tensor:
    """The gradient by the weights, from that (K, N, units) by their products with the rows."""
    if fold.shared:
        return grad.movedim(0, 1).flatten(1).t() @ rows
    return torch.bmm(grad.mT, rows.unflatten(0, (fold.members, -1))).flatten(0, 1)


def _draws(mean: Tensor, sd: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """`mean + sd · noise`, (K·S·B, ...), and the slope noise / sd.

    The slope has axes (K, S, B, ...), or (K, S / 2, B, ...) where samples branch in opposite pairs:
    then it is that of the first of each pair. The result is no view: whoever gets it may work on it
    in place.
    """
    received, paired = mean.shape[1], noise.ndim > mean.ndim
    samples = noise.shape[1] * (noise.shape[2] if paired else 1)
    if samples == received:
        each, slope_of = noise, noise
        means, sds = (
            part.unflatten(1, noise.shape[1 : noise.ndim - mean.ndim + 2]) for part in (mean, sd)
        )
    else:
        halves = paired and samples // received % 2 == 0
        noise = noise if halves or not paired else noise.flatten(1, 2)
        each = noise.unflatten(2 if halves else 1, (-1, received))
        means, sds = mean.unsqueeze(1), sd.unsqueeze(1)
        slope_of = each[:, 0] if halves else each
    slope = (slope_of / sds).reshape(mean.shape[0], -1, *mean.shape[2:])
    if each.ndim > means.ndim:
        means, sds = means.unsqueeze(1), sds.unsqueeze(1)
    out = mean.new_empty(mean.shape[0] * samples * mean.shape[2], *mean.shape[3:])
    torch.addcmul(means, sds, each, out=out.view(each.shape))
    return out, slope


def _moments_grad(grad: Tensor, slope: Tensor, received: int) -> tuple[Tensor, Tensor]:
    """The gradient by the mean and twice that by the variance, (K, r, B, ...)."""
    members, slopes, *rest = slope.shape
    grads = grad.reshape(members, -1, *rest)
    if grads.shape[1] == received:
        return grads, grads * slope
    by_mean = grads.unflatten(1, (-1, received)).sum(1)
    if grads.shape[1] > slopes:
        plus, minus = grads.chunk(2, dim=1)
        grads = plus - minus
    return by_mean, (grads * slope).unflatten(1, (-1, received)).sum(1)
