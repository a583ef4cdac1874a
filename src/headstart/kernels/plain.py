"""The plain expressions of what a step computes; the fused kernels equal them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.kernels.noise import folded


class IsotropicKL(NamedTuple):
    """The KL of layers, and their means and variances."""

    kl: Tensor
    means: Sequence[Tensor]
    variances: Sequence[Tensor]


def plain_perturb(mean: Tensor, var: Tensor, noise: Tensor, samples: int) -> Tensor:
    """`mean + sqrt(var) · noise` for each of S samples.

    Args:
        mean: Of N rows.
        var: Of N rows.
        noise: Of S·N rows, as the result.
        samples: S.
    """
    each = folded(noise, mean.ndim).unflatten(0, (samples, -1))
    return (mean + above_zero(var).sqrt() * each).flatten(0, 1)


def plain_dense(x: Tensor, mean: Tensor, var: Tensor, noise: Tensor, samples: int) -> Tensor:
    """`perturb(F.linear(x, μ, b), F.linear(x², σ², σ_b²), noise)`.

    Args:
        x: (N, fan_in).
        mean: (units, fan_in), or (units, fan_in + 1) with the bias last.
        var: As the mean.
        noise: (S·N, units), as the result.
        samples: S.
    """
    return plain_perturb(_linear(x, mean), _linear(x.square(), var), noise, samples)


def plain_dense_by_weights(
    x: Tensor, mean: Tensor, var: Tensor, noise: Tensor, samples: int
) -> Tensor:
    """`F.linear(x_s, W_s, b_s)` for each sample, by weights `mean + sqrt(var) · noise`.

    Args:
        x: The rows of all samples, (S·N, fan_in).
        mean: (units, fan_in), or (units, fan_in + 1) with the bias last.
        var: As the mean.
        noise: (S, units, size).
        samples: S.
    """
    draws = mean + var.sqrt() * folded(noise, 3)
    return torch.vmap(_linear)(x.unflatten(0, (samples, -1)), draws).flatten(0, 1)


def plain_isotropic_kl(
    means: Sequence[Tensor], logvars: Sequence[Tensor], prior_var: float
) -> IsotropicKL:
    """KL(N(mean, exp logvar) ‖ N(0, p)), summed over weights and layers, and what to draw with.

    It is `½ Σ [(mean² + exp(logvar)) / p − 1 − logvar + log p]`.

    Args:
        means: Of the weights of each layer.
        logvars: As the means.
        prior_var: p.

    Returns:
        The KL, and `mean` and `exp(logvar)` of each layer.
    """
    mean, logvar = flattened(means), flattened(logvars)
    kl = 0.5 * ((mean.square() + logvar.exp()) / prior_var - 1 - logvar + math.log(prior_var)).sum()
    return IsotropicKL(kl, list(means), [positive(each) for each in logvars])


def positive(logvar: Tensor) -> Tensor:
    """`exp(logvar)`, larger than zero even where it underflows: every output has a variance."""
    return above_zero(logvar.exp())


def above_zero(var: Tensor) -> Tensor:
    """A row of zeros has no variance, and sqrt'(0) is inf."""
    return var.clamp_min(smallest_positive(var))


def smallest_positive(like: Tensor) -> float:
    """The smallest number above zero."""
    kind = torch.finfo(like.dtype)
    return kind.tiny * kind.eps


def flattened(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _linear(x: Tensor, matrix: Tensor) -> Tensor:
    size = x.shape[1]
    return F.linear(x, matrix[:, :size], matrix[:, size] if matrix.shape[1] > size else None)
