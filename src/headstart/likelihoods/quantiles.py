"""Quantiles of predictive mixtures: of real numbers by Newton's method, of counts by bisection."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from headstart.linalg.precision import in_double


class Standard(NamedTuple):
    """A distribution that is symmetric around 0, of which a mixture moves and scales copies."""

    cdf: Callable[[Tensor], Tensor]
    density: Callable[[Tensor], Tensor]
    reach: float
    """No quantile asked for is further from 0."""


NORMAL = Standard(
    torch.special.ndtr, lambda z: z.square().mul_(-0.5).exp_() / math.sqrt(2 * math.pi), 10.0
)


def mixture_quantile(
    centers: Tensor,
    sd: Tensor,
    level: float,
    standard: Standard = NORMAL,
    max_iterations: int = 60,
    weights: Tensor | None = None,
) -> Tensor:
    """The level-quantile of a mixture over the first axis, of Gaussians by default.

    Newton's method on its distribution function, from where one Gaussian with the mixture's moments
    has it.
    Where a step would leave the bracket, or shrinks it too slowly, the bracket is halved instead.

    Args:
        centers: the centers of its parts, (S, ...).
        sd: their scales, broadcastable to them: standard deviations of Gaussians.
        level: between 0 and 1.
        standard: what the parts are copies of.
        max_iterations: a bound on the steps.
        weights: of the parts, in the shape of the centers, with sum 1; by default all alike.
    """

    def average(values: Tensor) -> Tensor:
        return values.mean(0) if weights is None else (weights * values).sum(0)

    # In double precision: a narrow part of a wide mixture is steep.
    given, centers, sd = centers, in_double(centers), in_double(sd)
    low, high = (centers - standard.reach * sd).amin(0), (centers + standard.reach * sd).amax(0)
    spread = (centers.var(0, correction=0) + sd.square().mean(0)).sqrt()
    eps = torch.finfo(centers.dtype).eps
    near = torch.special.ndtri(torch.tensor(level, dtype=torch.float64, device=centers.device))
    at, last = (centers.mean(0) + near * spread).clamp(low, high), high - low
    found = torch.zeros_like(at, dtype=torch.bool)
    for _ in range(max_iterations):
        z = (at - centers) / sd
        short = level - average(standard.cdf(z))
        low, high = torch.where(short > 0, at, low), torch.where(short > 0, high, at)
        step = short / average(standard.density(z) / sd)
        inside = (at + step >= low) & (at + step <= high) & (step.abs() < last / 2)
        step = torch.where(inside, step, (low + high) / 2 - at)
        at, last = torch.where(found, at, at + step), step.abs()
        # What is left is of the order of the step's square.
        found |= last <= 0.1 * math.sqrt(eps) * sd.amin(0) + eps * at.abs()
        if bool(found.all()):
            break
    return at.to(given)


def count_quantile(cdf: Callable[[Tensor], Tensor], high: Tensor, level: float | Tensor) -> Tensor:
    """The smallest count whose cumulative probability reaches `level`, by bisection.

    Args:
        cdf: the probability that a count is at most k, in float64.
        high: a count that reaches it, in float64.
        level: between 0 and 1, one for all counts or one for each.
    """
    low = torch.full_like(high, -1)
    # As many halves as float64 can count.
    for _ in range(64):
        if not bool((high - low > 1).any()):
            break
        middle = ((low + high) / 2).floor()
        below = cdf(middle) < level
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return high


def count_interval(
    cdf: Callable[[Tensor], Tensor], high: Tensor, level: float
) -> tuple[Tensor, Tensor]:
    """The central interval of a count, less what its upper end need not hold.

    The lower end is the quantile l at `(1 − level)/2`. Whole numbers seldom leave exactly that
    much below it, and at 0 nothing at all, so that the quantile at `(1 + level)/2` would hold too
    much. The upper end is the smallest count u with

        P(Y ≤ u) ≥ max(level + P(Y < l), 1 − P(Y ≤ l)).

    The first term is the level asked for; the second is the upper end where the lower one is about
    to become l + 1, without which the interval of a lower level could end above that of a higher
    one. Where single counts have next to no probability both ends are the central ones.

    Args:
        cdf: the probability that a count is at most k, in float64.
        high: a count whose probability reaches (1 + level)/2, in float64.
        level: the least probability of the interval, between 0 and 1.

    Example:
        Of 0, 1, 2, … with probabilities ½, ¼, ⅛, … 15/16 lie in [0, 3], and 31/32 in [0, 4], which
        ends at the quantile at .95:

        >>> cdf = lambda k: 1 - 0.5 ** (k + 1)
        >>> count_interval(cdf, torch.tensor([9.0]), 0.9)
        (tensor([0.]), tensor([3.]))
    """
    low = count_quantile(cdf, high, (1 - level) / 2)
    below = torch.where(low > 0, cdf((low - 1).clamp_min(0)), 0.0)
    return low, count_quantile(cdf, high, torch.maximum(level + below, 1 - cdf(low)))
