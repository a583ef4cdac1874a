"""The read-out of a net with any likelihood, by natural-gradient steps on its bound."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from headstart.errors import HeadstartError
from headstart.linalg.conjugate import Climb, Observations, WeightPrior
from headstart.linalg.gaussians import Primal
from headstart.linalg.precision import in_double
from headstart.network.layer import Bayesian
from headstart.posteriors import Posterior
from headstart.priors import Prior
from headstart.training.closed_form import dense_law
from headstart.training.read_out import FeatureDraws, ReadOut

FEATURE_BUDGET = 2**25
"""Numbers in the features that are kept."""
WORK_BUDGET = 2**35
"""Multiplications of one evaluation of the bound."""
CURVATURE_ROWS = 16_384
"""Rows of which second derivatives are computed, or eight for each weight of a unit."""
MAX_KEPT_DRAWS = 2**14
"""Rows times draws that are kept; with more rows there is one draw of each."""
NOISE_BUDGET, MAX_NOISE, MIN_NOISE = 2**19, 32, 2
"""Numbers in the noise of the outputs; draws of it for each draw of the features."""
TOLERANCE, TOLERANCE_PER_ROW = 1e-3, 1e-4
"""A gain in nats below which a step is the last, and what each row of the data adds to it."""
MIN_ROWS_PER_WEIGHT = 2
"""Rows for each weight of a unit, below which a part of the data says too little."""


class FitAndCheck(NamedTuple):
    """What was read of the data."""

    fit: Observations
    """The rows that the read-out is solved on."""
    check: Observations
    """Other rows, where those are only a part of the data; else the same."""
    rows: int
    """How many rows the first are."""


def observe(read_out: ReadOut, rows: int, once: bool = False) -> FitAndCheck:
    """Features and labels of one pass over the data, in bounded memory.

    Args:
        read_out: the read-out and its data.
        rows: a bound on the rows that are used.
        once: whether the layers below do not vary, so that one draw of a row says all.

    Raises:
        HeadstartError: where memory and time allow too few rows for so many weights.
    """
    size, units = read_out.layer.posterior.size, read_out.outputs
    # Memory is that of all members; each may take its time.
    limit = min(FEATURE_BUDGET // (size * read_out.groups), WORK_BUDGET // (size**2 * units))
    used = min(rows, limit)
    if used < min(rows, MIN_ROWS_PER_WEIGHT * size):
        raise HeadstartError(
            f"Layer {read_out.name!r} has {units} units of {size} weights, so that only {used} "
            "rows could be used to solve it; let a narrower layer come before it."
        )
    draws = max(1, min(read_out.draws(used), limit // used, MAX_KEPT_DRAWS // used))
    draws = 1 if once else draws
    parts: list[list[FeatureDraws]] = [[], []]
    done = 0
    for part in read_out.read(min(2 * used, read_out.num_data), draws):
        # A climb needs all rows at every step: each rank has read its shard, and keeps them all.
        parts[done >= used].append(part.gathered())
        done += part.shard.total
    fit = _draws_as_rows(read_out, parts[0])
    check = _draws_as_rows(read_out, parts[1]) if parts[1] else fit
    return FitAndCheck(fit, check, sum(len(part.y) for part in parts[0]))


def _draws_as_rows(read_out: ReadOut, parts: list[FeatureDraws]) -> Observations:
    """Draws as rows, with their labels and noise, of members the sum of their log-likelihoods."""
    dtype, lik = read_out.layer.posterior.mean.dtype, read_out.likelihood
    members, outputs = read_out.members, read_out.outputs
    x = torch.cat([part.x.flatten(1, 2).to(dtype) for part in parts], 1)
    offset = torch.cat([part.offset.flatten(0, 1).to(x) for part in parts])
    y = torch.cat([torch.cat([part.y] * len(part.offset)) for part in parts]).to(x.device)
    one = offset[:, :outputs]
    count = max(MIN_NOISE, min(MAX_NOISE, NOISE_BUDGET // one.numel()))

    def as_draws(f: Tensor) -> Tensor:
        """(T, R, U) to (members · T, R, K)."""
        return f.unflatten(-1, (members, outputs)).movedim(-2, 0).flatten(0, 1)

    def as_units(f: Tensor) -> Tensor:
        """And back."""
        return f.unflatten(0, (members, -1)).movedim(0, -2).flatten(-2)

    def log_prob(f: Tensor) -> Tensor:
        return lik.log_prob(as_draws(f), y).unflatten(0, (members, -1)).sum(0)

    def curvature(f: Tensor) -> tuple[Tensor, Tensor]:
        slope, second = lik.curvature(as_draws(f), y)
        return as_units(slope), as_units(second)

    # The same noise for each member: those that are equal stay so.
    noise = stratified(count, one).repeat(1, 1, members)
    weight = read_out.num_data / len(offset)
    return Observations(x, offset, weight, noise, log_prob, curvature)


def stratified(count: int, like: Tensor) -> Tensor:
    """Standard normal numbers, one from each of `count` equally likely parts of the line.

    Args:
        count: how many for each element of `like`.
        like: of the shape, dtype and device wanted.

    Returns:
        Numbers (count, ...), the parts in an order of its own for each element.
    """
    order = in_double(torch.rand(count, *like.shape, device=like.device).argsort(0))
    at = (order + torch.rand_like(order)) / count
    return torch.special.ndtri(at.clamp(1e-12, 1 - 1e-12)).to(like)


def negative_bound(observations: Observations, layer: Bayesian) -> float:
    """The layer's expected NLL of labels plus its KL, the mean over members.

    The posterior may be any Gaussian.

    Args:
        observations: features and labels.
        layer: the read-out.
    """
    x = observations.x
    layer = copy.deepcopy(layer).to(x.device)
    q, doubled = layer.posterior, copy.deepcopy(layer).double()
    drawn = observations.noise
    noise = q.correlate(drawn.flatten(0, 1), 2, -1).reshape(drawn.shape)
    tril = _tril(q)
    f = replace(observations, noise=noise).outputs(q.mean.detach(), tril)
    return float(doubled.kl()) - observations.expected_log_prob(f.to(x)) / layer.members


def _tril(q: Posterior) -> Tensor:
    """Factors of each unit's covariance, (U, D, R), whatever the family."""
    diagonal, factors = q.diagonal(), q.factors()
    parts = [] if factors is None else [factors.permute(1, 2, 0)]
    if diagonal is not None:
        parts.append(torch.diag_embed(diagonal.sqrt()))
    return torch.cat(parts, -1).detach()


@dataclass(frozen=True)
class SteppedSolution:
    """A read-out after natural-gradient steps.

    Args:
        gaussian: its weights.
        prior: their prior.
        steps: how many steps there were.
    """

    gaussian: Primal
    prior: Prior
    steps: int


def step_up(
    observations: Observations, layer: Bayesian, learn_prior: bool, num_data: int
) -> SteppedSolution:
    """Natural-gradient steps from the layer's present posterior.

    Args:
        observations: features and labels.
        layer: the read-out; it stays as it is.
        learn_prior: whether a prior with a single variance follows the posterior.
        num_data: the rows of the data set.
    """
    q, prior = layer.posterior, layer.prior
    like = in_double(q.mean.detach())
    precision = torch.diag_embed(1 / in_double(q.variance().detach()))
    start = Primal(precision, torch.einsum("uij,uj->ui", precision, like))
    movable = learn_prior and prior.with_variance(1.0) is not None
    rows = max(CURVATURE_ROWS, 8 * q.size)
    law = _weight_prior(prior, q)
    tolerance = layer.members * (TOLERANCE + TOLERANCE_PER_ROW * num_data)
    climb = Climb(observations, movable, rows, tolerance, joint=q.units > layer.members)
    found, weight_prior, steps = climb.run(start, law)
    if movable:
        prior = prior.with_variance(1 / float(weight_prior.precision[0, 0, 0])) or prior
    return SteppedSolution(found, prior, steps)


def _weight_prior(prior: Prior, q: Posterior) -> WeightPrior:
    mean, tril = dense_law(prior.law(q.units, q.size), in_double(q.mean.detach()))
    return WeightPrior(mean, torch.cholesky_inverse(tril))
