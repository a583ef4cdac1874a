"""The scale of what comes out of a layer whose units were regressed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from headstart.distributed.rows import LOCAL_ROWS, AllRows
from headstart.linalg.affine import channel_axis
from headstart.linalg.precision import in_double
from headstart.network.layer import Bayesian
from headstart.network.samplers import local_moments

NUMBERS_AT_ONCE = 2**18
"""How many numbers are converted to float64 at once: they stay in the cache."""


def noise_factor(signal: Tensor, noise: Tensor, max_fraction: float) -> float:
    """The factor, at most 1, on the units' noise that bounds its fraction of their variance.

    Args:
        signal: the variance of each unit's mean over rows.
        noise: the variance of each unit that comes from its weights.
        max_fraction: the largest fraction `noise / (signal + noise)`, in the mean over units.

    Example:
        >>> noise, signal = torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0])
        >>> round(noise_factor(signal, noise, 0.2), 6)  # a quarter of the noise: 0.25/1.25
        0.25
    """
    # A unit without signal, of constant inputs, is all noise however little there is.
    speaks = signal > 1e-9 * noise
    signal, noise = signal[speaks], noise[speaks]
    low, high = 0.0, 1.0
    if max_fraction >= 1 or not len(signal):
        return high
    if float((noise / (signal + noise)).mean()) <= max_fraction:
        return high
    for _ in range(50):
        factor = (low + high) / 2
        quiet = float((factor * noise / (signal + factor * noise)).mean()) <= max_fraction
        low, high = (factor, high) if quiet else (low, factor)
    return low


def normalizing(
    layer: Bayesian,
    inputs: Sequence[Tensor],
    bias_spread: float,
    max_noise: float,
    rows: AllRows = LOCAL_ROWS,
) -> tuple[Tensor, Tensor, float]:
    """What gives each unit's sampled pre-activation variance 1 and a random mean over these inputs.

    Args:
        layer: the layer.
        inputs: what reaches it at each of its calls.
        bias_spread: the standard deviation of the random means.
        max_noise: the largest fraction of the layer's variance that the weights' noise may be.
        rows: means over all rows, of which `inputs` may be a shard.

    Returns:
        The scale (U, 1) and the shift (U, D) of the weights, and the factor on their variance.
    """
    moments = [local_moments(layer.op, layer.posterior, call) for call in inputs]
    axis = channel_axis(layer.op)
    means, variances = (
        [part.movedim(axis, -1).flatten(0, -2) for part in parts]
        for parts in zip(*moments, strict=True)
    )
    count = rows.total(sum(map(len, means)))
    center = rows.sum(_summed(means, lambda part: part)) / count
    signal = rows.sum(_summed(means, lambda part: (part - center).square_())) / count
    noise = rows.sum(_summed(variances, lambda part: part)) / count
    factor = noise_factor(signal, noise, max_noise)
    scale = (signal + factor * noise).clamp_min(1e-12).rsqrt()
    shift = torch.zeros_like(in_double(layer.posterior.mean))
    if layer.has_bias:
        shift[:, -1] = bias_spread * torch.randn_like(scale) - scale * center
    return scale.unsqueeze(1), shift, factor


def _summed(parts: Sequence[Tensor], of: Callable[[Tensor], Tensor]) -> Tensor:
    """The sum over the rows of all parts, (N, U), of a function of theirs, in float64."""
    rows = max(1, NUMBERS_AT_ONCE // parts[0].shape[1])
    sums = [of(in_double(chunk)).sum(0) for part in parts for chunk in part.split(rows)]
    return torch.stack(sums).sum(0)
