"""The regressions of a hidden layer: which rows, which targets, how sure, and the scale of what comes out."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headstart.distributed.collectives import ONE, Ranks
from headstart.distributed.sharding import Share, Whole
from headstart.initializers.settings import Settings
from headstart.likelihoods import Likelihood
from headstart.linalg.affine import channel_axis, design, groups
from headstart.linalg.blm import Statistics
from headstart.linalg.gaussians import UnitGaussian
from headstart.network.layer import Bayesian
from headstart.network.samplers import local_moments

SCARCE, MOSTLY_NOISE = 8000, 0.5
"""Fewer rows than this are few for targets of which more than this share is noise: codes of classes, not a real label's features."""
MATRIX_BUDGET = 2**26
"""Numbers in the stack of precision matrices solved at once."""


def unit_targets(
    likelihood: Likelihood,
    y: Tensor,
    units: Tensor,
    settings: Settings,
    own_class: bool,
    ranks: Ranks = ONE,
) -> tuple[Tensor, Tensor]:
    """Targets and noise of these units, (N, units) and (N, units) or (N, 1), in float64."""
    if settings.targets == "random_features" and not own_class:
        t, v = likelihood.label_features(y, len(units), ranks)
    else:
        t, v = likelihood.regression_targets(y, centre=False)
        which = units if own_class else torch.randint(t.shape[1], units.shape)
        t, v = t[:, which], v[:, which] if v.shape[1] > 1 else v
    t, v = t.double(), v.double()
    if settings.noise_var is not None:
        v = torch.full_like(v[:, :1], settings.noise_var)
    if settings.centre:
        t = t - ranks.mean(t)
    if settings.standardize:
        var = variance(t, ranks).clamp_min(1e-12)
        t, v = t / var.sqrt(), v / (var if v.shape[1] > 1 else var.mean())
    return t, v


def solve_units(
    layer: Bayesian,
    rows: Tensor,
    t: Tensor,
    v: Tensor,
    units: Tensor,
    share: Tensor,
    settings: Settings,
    num_data: int,
    ranks: Ranks = ONE,
) -> list[UnitGaussian]:
    """One Bayesian linear model per unit, the units of each group on their own rows (G, N, P, D)."""
    positions, size = rows.shape[2:]
    t, v = t.repeat_interleave(positions, 0), v.repeat_interleave(positions, 0)
    total = ranks.total(len(t))
    if settings.evidence_rows is not None:
        v = v * (total / evidence_of(settings.evidence_rows, num_data, size, ranks.average(v)))
    group_of = units // (layer.posterior.units // groups(layer.op))
    parts = []
    for g in group_of.unique().tolist():
        x = rows[g].flatten(0, 1)
        members = (group_of == g).nonzero().squeeze(1)  # next to each other
        mine = slice(int(members[0]), int(members[-1]) + 1)
        noise = v[:, mine] if v.shape[1] > 1 else v
        targets = mix(t[:, mine], x, share[mine], ranks)
        at_once = (
            max(1, MATRIX_BUDGET // min(size, total) ** 2) if noise.shape[1] > 1 else len(members)
        )
        for start in range(0, len(members), at_once):
            chunk, statistics = slice(start, start + at_once), Statistics(ranks)
            statistics.add(x, targets[:, chunk], noise[:, chunk] if noise.shape[1] > 1 else noise)
            parts.append(layer.prior.condition(statistics, units[members[chunk]]))
    return parts


def evidence_of(most: int, num_data: int, size: int, noise_var: float) -> float:
    """How many rows the evidence of a unit with `size` weights counts for.

    `most` for a unit of a hundred weights, less for a wider one, never more than there are; and where rows are few and
    targets mostly noise, a share of them: there the net must start unsure, or it overfits before the KL can tell it so.
    """
    return enough(num_data, noise_var) * min(num_data, most * math.sqrt(100 / size))


def enough(num_data: int, noise_var: float) -> float:
    """1 where there are enough rows for targets with so much noise, less where they are scarce."""
    return min(1.0, num_data / SCARCE) if noise_var > MOSTLY_NOISE else 1.0


def draw_shares(count: int, most: float) -> Tensor:
    """The share of the inputs in the targets of each unit of a layer: from 0 to `most`, evenly in variance, in random order."""
    return (
        most * ((torch.randperm(count) + 0.5) / count).sqrt().double()
        if most
        else torch.zeros(count)
    )


def mix(t: Tensor, x: Tensor, share: Tensor, ranks: Ranks = ONE) -> Tensor:
    """`√(1−share²) · t + share · z`, z a standardised random projection of the rows."""
    if not share.any():
        return t
    rows = (x - ranks.mean(x)).float()  # any projection will do, a rounded one too
    z = rows @ torch.randn(x.shape[1], t.shape[1], dtype=rows.dtype, device=x.device)
    share = share.to(t)
    return (1 - share**2).sqrt() * t + z * (
        share / variance(z, ranks).double().sqrt().clamp_min(1e-12)
    )


def variance(t: Tensor, ranks: Ranks = ONE) -> Tensor:
    """`t.var(0, correction=0)`, several times faster."""
    return ranks.mean((t - ranks.mean(t)).square_())


def take_patches(layer: Bayesian, inputs: Tensor, count: int, of: Share | None = None) -> Tensor:
    """The rows of a regression, (G, N, count, D): of each example `count` positions, evenly spaced from a random one on."""
    total = design(layer.op, inputs[:1]).shape[2]
    if count >= total:
        return rows_with_bias(layer, inputs)
    examples = Whole(len(inputs)) if of is None else of
    start = examples.of(torch.randint(total, (examples.total, 1), device=inputs.device))
    return rows_with_bias(
        layer, inputs, (start + torch.arange(count, device=inputs.device) * total // count) % total
    )


def rows_with_bias(layer: Bayesian, inputs: Tensor, at: Tensor | None = None) -> Tensor:
    rows = design(layer.op, inputs, at)
    if not layer.has_bias:
        return rows.double()
    extended = torch.ones(
        *rows.shape[:-1], rows.shape[-1] + 1, dtype=torch.float64, device=rows.device
    )
    extended[..., :-1] = rows
    return extended


def quieting(signal: Tensor, noise: Tensor, most: float) -> float:
    """The factor, at most 1, by which to multiply the units' noise, so that its share of their variance is `most` in the mean.

    Example:
        >>> round(quieting(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0]), 0.2), 6)  # a quarter of the noise: 0.25/1.25
        0.25
    """
    speaks = (
        signal > 1e-9 * noise
    )  # a unit that says nothing, of constant inputs, is all noise however little there is
    signal, noise = signal[speaks], noise[speaks]
    low, high = 0.0, 1.0
    if most >= 1 or not len(signal) or float((noise / (signal + noise)).mean()) <= most:
        return high
    for _ in range(50):
        less = (low + high) / 2
        quiet = float((less * noise / (signal + less * noise)).mean()) <= most
        low, high = (less, high) if quiet else (low, less)
    return low


def normalising(
    layer: Bayesian, inputs: Tensor, bias_spread: float, most_noise: float, ranks: Ranks = ONE
) -> tuple[Tensor, Tensor, float]:
    """The scale and bias shift that give each unit's sampled pre-activation variance 1 and a random mean over these inputs.

    And what to multiply the weights' variance by, so that at most the share `most_noise` of the layer's is noise.
    """
    mean, var = local_moments(layer.op, layer.posterior, inputs)
    axis = channel_axis(layer.op)
    mean, var = (part.movedim(axis, -1).flatten(0, -2).double() for part in (mean, var))
    signal, noise = variance(mean, ranks), ranks.mean(var)
    less = quieting(signal, noise, most_noise)
    total = signal + less * noise
    scale = total.clamp_min(1e-12).rsqrt()
    shift = torch.zeros_like(layer.posterior.mean, dtype=torch.float64)
    if layer.has_bias:
        shift[:, -1] = bias_spread * torch.randn_like(scale) - scale * ranks.mean(mean)
    return scale.unsqueeze(1), shift, less
