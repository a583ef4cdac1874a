"""Labels as targets of Gaussian regressions: lognormal matches, random functions of the label."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headstart.distributed.rows import LOCAL_ROWS, AllRows

CONCENTRATION = 0.01
"""α of a class label's Dirichlet: Milios et al.'s and the paper's."""

LOGISTIC_VAR = math.pi**2 / 3
"""The variance of a standard logistic variable."""
MIN_CURVATURE = 1e-4
"""What a row counts for at least in a working response, which keeps it finite."""


def lognormal_match(shape: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of log g for g ~ Gamma(shape, 1), g matched by a lognormal.

    The lognormal with the same first two moments: `v = log(1/shape + 1)`, `t = log shape − v/2`.
    So counts and class labels become Gaussian regression targets.

    Args:
        shape: the shape of the Gamma variable, positive.

    Returns:
        t and v.

    Example:
        >>> t, v = lognormal_match(torch.tensor([1.01, 0.01]))
        >>> t, v
        (tensor([-0.3341, -6.9127]), tensor([0.6882, 4.6151]))
    """
    var = (1 / shape).log1p()
    return shape.log() - var / 2, var


def logit_match(y: Tensor) -> tuple[Tensor, Tensor]:
    """A logit of which a label 0 or 1 tells: Beta(y + α, 1 − y + α), two lognormal matches.

    Args:
        y: labels, floating-point.

    Returns:
        Targets `t₁ − t₀` and noise variances `v₁ + v₀`.
    """
    t1, v1 = lognormal_match(y + CONCENTRATION)
    t0, v0 = lognormal_match(1 - y + CONCENTRATION)
    return t1 - t0, v1 + v0


def working_response(f: Tensor, slope: Tensor, curvature: Tensor) -> tuple[Tensor, Tensor]:
    """The Gaussian observation with the same slope and curvature at f: `f + g/h`, variance `1/h`.

    Args:
        f: outputs of the net, (N, K).
        slope: g, the gradient of log p(y | f).
        curvature: h, its negative second derivative.

    Returns:
        Targets and noise variances.

    Example:
        >>> one = torch.ones(1, 1)
        >>> working_response(f=0 * one, slope=0.5 * one, curvature=0.25 * one)
        (tensor([[2.]]), tensor([[4.]]))
    """
    curvature = curvature.clamp_min(MIN_CURVATURE)
    return f + slope / curvature, 1 / curvature


def mean_of_labels(t: Tensor, v: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """One target for the several labels of a row: their mean, weighted by their precision.

    Args:
        t: targets of P labels of each row, (N · P, units).
        v: their noise variances, (N · P, units) or (N · P, 1).
        rows: N.

    Returns:
        Targets (N, units), and the noise of a single label of mean precision.

    Example:
        >>> t, v = torch.tensor([[1.0], [3.0], [5.0], [9.0]]), torch.tensor([[1.0]] * 3 + [[1e9]])
        >>> mean_of_labels(t, v, 2)[0].flatten()
        tensor([2., 5.])
    """
    t, precision = t.unflatten(0, (rows, -1)), 1 / v.unflatten(0, (rows, -1))
    return (precision * t).sum(1) / precision.sum(1), 1 / precision.mean(1)


def random_codes(t: Tensor, count: int, rows: AllRows = LOCAL_ROWS) -> tuple[Tensor, Tensor]:
    """Random Gaussian combinations of class targets, taken to be as noisy as they vary.

    The targets' own noise says how far a label is from a probability, not how well inputs can tell
    it: for two classes it is a quarter of their variance, and hidden weights that believe it
    overfit small, hard data.

    Args:
        t: class targets, (N, K).
        count: how many combinations.
        rows: means over all rows, of which `t` may be a shard.

    Returns:
        The combinations (N, count) and their noise variance (N, 1).
    """
    features = t @ torch.randn(t.shape[1], count, dtype=t.dtype, device=t.device)
    noise = rows.var(features).mean().clamp_min(torch.finfo(t.dtype).eps)
    return features, noise.expand(len(t), 1)


def fourier_features(
    z: Tensor, noise_var: Tensor, count: int, rows: AllRows = LOCAL_ROWS
) -> tuple[Tensor, Tensor]:
    """Random Fourier features `√2 cos(ωᵀz + b)` of standardized labels, ω ~ N(0, 1), b ~ U(0, 2π).

    They make distinct units from one label.

    Args:
        z: real-valued labels, (N, K).
        noise_var: the noise variance of each column, (K,) or ().
        count: how many features.
        rows: means over all rows, of which `z` may be a shard.

    Returns:
        The features (N, count) and their noise variance (N, 1).
    """
    z = z - rows.mean(z)
    smallest = torch.finfo(z.dtype).eps
    spread = rows.std(z).clamp_min(smallest)
    omega = torch.randn(z.shape[1], count, dtype=z.dtype, device=z.device)
    phase = 2 * math.pi * torch.rand(count, dtype=z.dtype, device=z.device)
    fraction = noise_var / spread.square()
    # A column that never varies would pass for noise alone.
    varying = fraction[spread > smallest]
    noise = (varying if len(varying) else fraction).mean()
    return math.sqrt(2) * torch.cos(z / spread @ omega + phase), noise.expand(len(z), 1)
