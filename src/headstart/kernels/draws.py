"""Draws `mean + sd · noise` of samples folded along axis 0, and gradients back through them.

Noise may have its samples on axes of their own (`headstart.kernels.noise.folded`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from headstart.kernels import private as torch_private


def draw_samples(
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


def noise_slope(mean: Tensor, sd: Tensor, noise: Tensor, samples: int) -> Tensor:
    """The slope noise / sd of draws.

    It is (N, ...) for one sample, else that of the samples whose noise is not the negative of
    another's.
    """
    means, sds, each = _beside_noise(mean, sd, noise, samples)
    if samples > 1:
        return (first_noise(each, means.ndim + 1) / sds).reshape(-1, *mean.shape)
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


def first_noise(noise: Tensor, ndim: int) -> Tensor:
    """The noise that the others are minus of; without an axis for that, all of it."""
    return noise if noise.ndim == ndim else noise[0]


def spread_grad(grads: Tensor, first: Tensor, in_place: bool = False) -> tuple[Tensor, Tensor]:
    """The gradients by mean and sd in `mean + sd · noise`, from those by its result.

    The samples are on one axis. With `in_place` the gradients given are overwritten.
    """
    by_mean = grads.sum(0)
    if grads.shape[0] == first.shape[0]:
        return by_mean, torch.linalg.vecdot(grads, first, dim=0)
    plus, minus = grads.chunk(2)
    return by_mean, (plus.sub_(minus) if in_place else plus - minus).mul_(first).sum(0)


def moments_grad(grad: Tensor, slope: Tensor, in_place: bool = False) -> tuple[Tensor, Tensor]:
    """The gradient by the mean and twice that by the variance.

    The slope is what `noise_slope` returned. With `in_place` the gradient given is overwritten.
    """
    if slope.ndim == grad.ndim:
        return grad, grad * slope
    return spread_grad(grad.reshape(-1, *slope.shape[1:]), slope, in_place)


def with_ones(x: Tensor, size: int) -> Tensor:
    """The rows that a matrix (units, size) multiplies: x, and a 1 for its bias if it has one."""
    return x if size == x.shape[1] else torch.constant_pad_nd(x, (0, 1), 1.0)


def leading_columns(matrix: Tensor, many: int) -> Tensor:
    """The first columns of it."""
    return matrix if matrix.shape[1] == many else matrix.narrow(1, 0, many)


def squares(rows: Tensor, in_place: bool) -> Tensor:
    return rows.mul_(rows) if in_place else rows * rows
