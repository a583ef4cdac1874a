"""The regressions of a hidden layer: rows, targets and certainty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from headstart.distributed.rows import LOCAL_ROWS, AllRows, WeightedRows
from headstart.distributed.sharding import FullShard, Shard
from headstart.initializers.certainty import effective_rows
from headstart.initializers.settings import IBLMSettings
from headstart.likelihoods import Likelihood
from headstart.likelihoods.targets import mean_of_labels
from headstart.linalg.affine import design, groups
from headstart.linalg.blm import Statistics, target_moment
from headstart.linalg.gaussians import UnitGaussian
from headstart.linalg.precision import exact_device, in_double
from headstart.network.layer import Bayesian

FEW_EXAMPLES = 64
"""Examples that are looked at before all are."""
MIN_VARIATION = 1e-6
"""How much of a mean square must be variance, for a difference of squares to tell it."""
MATRIX_BUDGET = 2**26
"""Numbers in the stack of precision matrices solved at once."""


def weighted_by_label(rows: AllRows, likelihood: Likelihood, y: Tensor) -> AllRows:
    """Rows that count as their labels do: those without one say nothing of targets and noise.

    Args:
        rows: the rows of the regression.
        likelihood: the likelihood of the labels.
        y: the labels, as `likelihood.check` returns them.
    """
    weights = likelihood.label_weights(y)
    if weights is None:
        return rows
    # A shard may be empty.
    return WeightedRows(rows, weights.reshape(len(y), weights.numel() // max(1, len(y))))


def unit_targets(
    likelihood: Likelihood,
    y: Tensor,
    units: Tensor,
    settings: IBLMSettings,
    own_class: bool,
    rows: AllRows = LOCAL_ROWS,
    positions: int = 1,
) -> tuple[Tensor, Tensor]:
    """Targets and noise variances of these units, in float64.

    Args:
        likelihood: what turns labels into targets.
        y: the labels, as `likelihood.check` returns them.
        units: the numbers of the units.
        settings: what the targets are, and whether they are centered and standardized.
        own_class: whether a unit regresses on its own output instead of a random one.
        rows: means over all rows, of which `y` may be a shard.
        positions: where a row has so many labels, each position of the layer gets its own.

    Returns:
        Targets (N, units), noise variances (N, units) or (N, 1).
    """
    if settings.targets == "random_features" and not own_class:
        t, v = likelihood.label_features(y, len(units), rows)
    else:
        t, v = likelihood.regression_targets(y, False)
        which = units if own_class else torch.randint(t.shape[1], units.shape)
        t, v = t[:, which], v[:, which] if v.shape[1] > 1 else v
    t, v = in_double(t), in_double(v)
    if not own_class and len(t) not in (len(y), len(y) * positions):
        t, v = mean_of_labels(t, v, len(y))
    if settings.noise_var is not None:
        # Given for a row that counts for one: those without a label still say nothing.
        v = rows.noise_of(torch.full_like(v[:, :1], settings.noise_var))
    if settings.center:
        t = t - rows.mean(t)
    if settings.standardize:
        var = variance(t, rows).clamp_min(1e-12)
        t, v = t / var.sqrt(), v / (var if v.shape[1] > 1 else var.mean())
    return t, v


def solve_units(
    layer: Bayesian,
    designs: Tensor,
    t: Tensor,
    v: Tensor,
    units: Tensor,
    fractions: Tensor,
    settings: IBLMSettings,
    num_data: int,
    rows: AllRows = LOCAL_ROWS,
) -> list[UnitGaussian]:
    """One Bayesian linear model per unit, the units of each group on the rows of that group.

    Args:
        layer: the layer.
        designs: the rows of each group, at each position of an example, (G, N, P, D).
        t: targets, (N, units), or of each position (N · P, units).
        v: their noise variances, of each unit or of all.
        units: the numbers of the units.
        fractions: the fraction of a projection of the inputs in each unit's targets.
        settings: what the evidence counts for.
        num_data: the rows of the data set.
        rows: sums over all rows, of which `designs` may hold a shard.
    """
    positions, size = designs.shape[2:]
    if len(t) == designs.shape[1]:
        t, v = t.repeat_interleave(positions, 0), v.repeat_interleave(positions, 0)
    total = rows.total(len(t))
    if settings.evidence_rows is not None:
        noise_var = rows.overall_mean(v)
        count = effective_rows(settings.evidence_rows, num_data, size, noise_var)
        v = v * (rows.evidence(len(t)) / count)
    group_of = units // (layer.posterior.units // groups(layer.op))
    solved = []
    for g in group_of.unique().tolist():
        x = designs[g].flatten(0, 1)
        # The units of a group are next to each other.
        members = (group_of == g).nonzero().squeeze(1)
        mine = slice(int(members[0]), int(members[-1]) + 1)
        noise = v[:, mine] if v.shape[1] > 1 else v
        projection = draw_projection(x, fractions[mine])
        found = statistics_of_mixed(t[:, mine], x, noise, fractions[mine], projection, rows)
        if found is not None:
            solved.append(layer.prior.condition(found, units[members]))
            continue
        targets = mix_with_inputs(t[:, mine], x, fractions[mine], projection, rows)
        shared = noise.shape[1] == 1
        at_once = len(members) if shared else max(1, MATRIX_BUDGET // min(size, total) ** 2)
        for start in range(0, len(members), at_once):
            chunk, statistics = slice(start, start + at_once), Statistics(rows)
            statistics.add(x, targets[:, chunk], noise if shared else noise[:, chunk])
            solved.append(layer.prior.condition(statistics, units[members[chunk]]))
    return solved


def draw_input_fractions(count: int, max_fraction: float) -> Tensor:
    """The fraction of the inputs in the targets of each unit of a layer.

    From 0 to `max_fraction`, evenly in variance, in random order.

    Args:
        count: the units of the layer.
        max_fraction: the largest fraction of a target's standard deviation.
    """
    if not max_fraction:
        return torch.zeros(count)
    return max_fraction * ((torch.randperm(count) + 0.5) / count).sqrt().double()


def draw_projection(x: Tensor, fractions: Tensor) -> Tensor | None:
    """A random projection (D, units) of the inputs for each unit; None where no unit has any.

    Args:
        x: the inputs, (N, D).
        fractions: the fraction of the projection in each unit's targets.
    """
    if not fractions.any():
        return None
    # Any projection will do, a rounded one too.
    return torch.randn(x.shape[1], len(fractions), dtype=torch.float32, device=x.device)


def mix_with_inputs(
    t: Tensor, x: Tensor, fractions: Tensor, projection: Tensor | None, rows: AllRows = LOCAL_ROWS
) -> Tensor:
    """`√(1−f²) · t + f · z`, z a standardized random projection of the inputs.

    Args:
        t: the targets, (N, units).
        x: the inputs, (N, D).
        fractions: f of each unit.
        projection: of each unit (`draw_projection`).
        rows: means over all rows, of which `x` may be a shard.
    """
    if projection is None:
        return t
    z = (x - rows.mean(x)) @ projection.to(x)
    fractions = fractions.to(t)
    sd = in_double(variance(z, rows)).sqrt().clamp_min(1e-12)
    return (1 - fractions**2).sqrt() * t + z * (fractions / sd)


def statistics_of_mixed(
    t: Tensor,
    x: Tensor,
    noise_var: Tensor,
    fractions: Tensor,
    projection: Tensor | None,
    rows: AllRows = LOCAL_ROWS,
) -> Statistics | None:
    """The statistics of the targets of `mix_with_inputs`, which are not written out.

    Where the noise is the same for all rows, what the inputs have to do with a projection of
    theirs is in the Gram matrix: `XᵀZ = N C R`, `var z = rᵀ C r`, with C their covariance.

    Args:
        t: the targets before, (N, units).
        x: the inputs, (N, D).
        noise_var: the noise variances, (N, 1) or (N, units).
        fractions: f of each unit.
        projection: of each unit (`draw_projection`).
        rows: sums over all rows, of which `x` may be a shard.

    Returns:
        None where rows are fewer than weights, their noise differs, or the covariance is too
        small beside the squared mean to be told by a difference.
    """
    total, noise = rows.total(len(x)), rows.mean(noise_var)
    if projection is None or len(noise) > 1 or total < x.shape[1]:
        return None
    if rows.total(int((noise_var - noise).abs().max() > 1e-12 * noise) if len(x) else 0):
        return None
    fractions, random = fractions.to(t), projection.to(x)
    statistics, center = Statistics(rows), rows.mean(x)
    # The targets stand in the moment alone: they need not be scaled row by row.
    statistics.add(x, t.new_zeros(len(x), 1), noise.expand(len(x), 1))
    covariance = statistics.gram()[0] * (noise / total) - torch.outer(center, center)
    slopes = covariance @ random
    var = (random * slopes).sum(0)
    if not bool((var > MIN_VARIATION * (center @ random).square()).all()):
        return None
    labels = rows.sum(target_moment(t, x)) * (1 - fractions**2).sqrt().unsqueeze(1)
    inputs = (slopes * (total * fractions / var.sqrt())).T
    statistics.add_moment((labels + inputs) / noise)
    return statistics


def variance(t: Tensor, rows: AllRows = LOCAL_ROWS) -> Tensor:
    """`t.var(0, correction=0)`, several times faster.

    Args:
        t: (N, ...).
        rows: means over all rows, of which `t` may be a shard.
    """
    return rows.mean((t - rows.mean(t)).square_())


class Extent(NamedTuple):
    """How much of the data a layer's regression uses."""

    rows: int
    """Rows of the data."""
    positions: int
    """Positions of each row that the layer's weights are applied to."""
    measured: int
    """Rows on which its pre-activations are measured afterwards."""


def take_patches(
    layer: Bayesian, inputs: Sequence[Tensor], count: int, of: Shard | None = None
) -> Tensor:
    """The rows of a regression, (G, N, count, D).

    Of each example `count` positions, evenly spaced from a random one on. A layer that is called
    several times has about as many of each call, or of some calls, evenly spaced too.

    Args:
        layer: the layer.
        inputs: what reaches it at each of its calls.
        count: the positions of each example; all, where there are no more.
        of: which rows of a batch the inputs are of; all by default.
    """
    if count >= count_positions(layer, inputs):
        return _joined_calls([rows_with_bias(layer, call) for call in inputs])
    calls = len(inputs)
    if count < calls:
        first = int(torch.randint(calls, ()))
        inputs = [inputs[(first + number * calls // count) % calls] for number in range(count)]
    each = -(-count // len(inputs))
    return _joined_calls([_patches_of_call(layer, call, each, of) for call in inputs])


def _joined_calls(calls: list[Tensor]) -> Tensor:
    """The positions of all calls, (G, N, P, D); a single call is not copied."""
    return calls[0] if len(calls) == 1 else torch.cat(calls, dim=2)


def count_positions(layer: Bayesian, inputs: Sequence[Tensor]) -> int:
    """The positions of an example that the layer's weights are applied to, in all calls.

    Args:
        layer: the layer.
        inputs: what reaches it at each of its calls.
    """
    return sum(design(layer.op, call[:1]).shape[2] for call in inputs)


def _patches_of_call(layer: Bayesian, inputs: Tensor, count: int, of: Shard | None) -> Tensor:
    total = count_positions(layer, [inputs])
    if count >= total:
        return rows_with_bias(layer, inputs)
    examples = FullShard(len(inputs)) if of is None else of
    start = examples.of(torch.randint(total, (examples.total, 1), device=inputs.device))
    spaced = torch.arange(count, device=inputs.device) * total // count
    return rows_with_bias(layer, inputs, (start + spaced) % total)


def are_constant(designs: Tensor, rows: AllRows = LOCAL_ROWS) -> bool:
    """Whether the rows of a regression are the same for every example, up to rounding.

    Args:
        designs: the rows, (G, N, P, D).
        rows: means over all rows, of which `designs` may hold a shard.
    """
    examples = designs.movedim(1, 0).flatten(1)
    # Most often a few of them show that they differ.
    return _are_alike(examples[:FEW_EXAMPLES], 1e-6, rows) and _are_alike(examples, 1e-13, rows)


def _are_alike(examples: Tensor, tolerance: float, rows: AllRows) -> bool:
    """Whether the variance of every column is within the tolerance, relative to their size."""
    size = rows.mean(examples.square()).max()
    return bool(variance(examples, rows).max() <= tolerance * size)


def rows_with_bias(layer: Bayesian, inputs: Tensor, at: Tensor | None = None) -> Tensor:
    """The rows of a layer's linear model in float64, (G, N, P, D), a 1 for the bias last.

    Args:
        layer: the layer.
        inputs: what reaches it.
        at: the positions wanted of each example, (N, few); None for all.
    """
    rows = design(layer.op, inputs, at)
    if not layer.has_bias:
        return in_double(rows)
    shape = (*rows.shape[:-1], rows.shape[-1] + 1)
    extended = torch.empty(shape, dtype=torch.float64, device=exact_device(rows.device))
    extended[..., :-1], extended[..., -1] = rows, 1.0
    return extended
