"""The read-out of a net with Gaussian noise, solved exactly given the law of its features."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from headstart.likelihoods.noise import NoiseModel
from headstart.linalg.gaussians import Primal
from headstart.linalg.precision import in_double
from headstart.linalg.read_out import CollapsedBound, Moments, maximize
from headstart.network.layer import Bayesian
from headstart.posteriors import UnitCovariance
from headstart.priors import Prior
from headstart.training.read_out import FeatureDraws, MomentSums, ReadOut

KEPT_ROWS = 512
"""Rows whose features are kept, to choose the noise of predictions."""
KEPT_NUMBERS = 2**24
"""Numbers in the features that are kept."""
SMALLEST, LARGEST = 1e-10, 1e10
"""Bounds of a prior variance, and of a noise variance beside the mean square of the targets."""


@dataclass(frozen=True)
class GaussianStatistics:
    """What a pass over the data leaves of a read-out with Gaussian noise.

    Args:
        noise: the noise model of the likelihood.
        moments: the expected statistics of all rows, targets and outputs in units of the outputs;
            the units are those of one member after another.
        kept: features of some rows, their targets in the place of offsets.
        rows: the rows that were read.
    """

    noise: NoiseModel
    moments: Moments
    kept: list[FeatureDraws]
    rows: int

    def negative_bound(self, layer: Bayesian, log_noise: Tensor) -> float:
        """The layer's expected NLL of labels plus its KL, the mean over members.

        Args:
            layer: the read-out; its posterior may be any Gaussian.
            log_noise: the logarithm of the noise variances.
        """
        # In double precision, whatever the net's.
        doubled = copy.deepcopy(layer).cpu().double()
        q = doubled.posterior
        variances = self.noise.variances(log_noise, q.units)
        error = self.moments.expected_error(q.mean, q.diagonal(), q.factors())
        logs = (2 * math.pi * variances).log() + 2 * self.noise.scale.log().repeat(doubled.members)
        nll = 0.5 * (self.moments.rows * logs + error / variances).sum() / doubled.members
        return float(nll + doubled.kl())


def gaussian_statistics(read_out: ReadOut, noise: NoiseModel, rows: int) -> GaussianStatistics:
    """One pass over the data.

    Args:
        read_out: the read-out and its data.
        noise: the noise model of its likelihood.
        rows: a bound on the rows that are read, of all ranks together.
    """
    sums = MomentSums(read_out.groups)
    kept: list[FeatureDraws] = []
    rows_kept = numbers = done = 0
    for part in read_out.read(rows, read_out.draws(rows), first=KEPT_ROWS):
        sums.add(part.x, targets(read_out, part))
        if rows_kept < KEPT_ROWS and numbers < KEPT_NUMBERS:
            kept.append(with_targets(read_out, part))
            rows_kept += part.shard.total
            numbers += kept[-1].x.numel()
        done += part.shard.total
    moments = sums.total(read_out.num_data, read_out.group.rows)
    return GaussianStatistics(noise, moments, kept, done)


def with_targets(read_out: ReadOut, part: FeatureDraws) -> FeatureDraws:
    """The rows of all ranks in memory, what the read-out is to give in the place of offsets.

    Args:
        read_out: the read-out.
        part: features and labels.
    """
    every = part.gathered()
    return every._replace(x=every.x.cpu(), offset=targets(read_out, every).cpu())


def targets(read_out: ReadOut, part: FeatureDraws) -> Tensor:
    """What the read-out is to give, (S, N, U): what the net adds to it is not its to fit.

    Args:
        read_out: the read-out.
        part: features and labels.
    """
    t, _ = read_out.likelihood.regression_targets(part.y, False)
    return in_double(t).repeat(1, read_out.members) - in_double(part.offset)


@dataclass(frozen=True)
class GaussianSolution:
    """A read-out at its best.

    Args:
        gaussian: its weights.
        prior: their prior.
        log_noise: the logarithm of the noise variances that maximize the bound.
    """

    gaussian: Primal
    prior: Prior
    log_noise: Tensor


def solve_gaussian(
    statistics: GaussianStatistics, layer: Bayesian, learn_prior: bool
) -> GaussianSolution:
    """The posterior, noise and prior variance that maximize the bound.

    Args:
        statistics: what was read of the data.
        layer: the read-out.
        learn_prior: whether a prior with a single variance gets that which maximizes the bound.
    """
    best = best_hyperparameters([statistics.moments], statistics.noise, [layer], learn_prior)
    gaussian, prior = solve_at(best, statistics.moments, statistics.noise, layer)
    return GaussianSolution(gaussian, prior, best.log_noise)


class Hyperparameters(NamedTuple):
    """The noise and the prior variance at the maximum of a bound."""

    prior_var: float | None
    """None: priors stay as they are."""
    log_noise: Tensor
    """The logarithm of the noise variances."""
    bound: float
    """The bound, its mean over several read-outs."""


def best_hyperparameters(
    moments: Sequence[Moments], noise: NoiseModel, layers: Sequence[Bayesian], learn_prior: bool
) -> Hyperparameters:
    """The noise and the prior variance that maximize the mean bound of some read-outs.

    Noise and prior are what they share: given both, the bound of each is maximized by itself. So
    the mean of their collapsed bounds is a function of these few numbers alone. The members of a
    mixture are read-outs too, the units of one after another in the statistics.

    Args:
        moments: the statistics of each.
        noise: the noise model of the likelihood, with the variances to start from.
        layers: the read-outs, with the priors to start from.
        learn_prior: whether a prior with a single variance may change.
    """
    q, prior = layers[0].posterior, layers[0].prior
    law = prior.law(q.units, q.size)
    if prior.with_variance(1.0) is not None and law.var is not None:
        start, bounds = float(law.var[0, 0]), [CollapsedBound(each) for each in moments]
    else:
        # In the coordinates in which the prior is N(0, 1).
        laws = [dense_law(layer.prior.law(q.units, q.size), moments[0].gram) for layer in layers]
        whitened = [each.whitened(*law) for each, law in zip(moments, laws, strict=True)]
        start, bounds, learn_prior = 1.0, [CollapsedBound(each) for each in whitened], False
    log_noise, log_prior = optimize(bounds, noise, start, learn_prior)
    bound = float(_mean_bound(bounds, noise, log_noise, log_prior))
    return Hyperparameters(float(log_prior.exp()) if learn_prior else None, log_noise, bound)


def solve_at(
    best: Hyperparameters, moments: Moments, noise: NoiseModel, layer: Bayesian
) -> tuple[Primal, Prior]:
    """The weights of a read-out given noise and prior variance, and its prior.

    Args:
        best: noise and prior variance.
        moments: the statistics of the read-out.
        noise: the noise model of the likelihood.
        layer: the read-out, with the prior that it has.
    """
    q, prior = layer.posterior, layer.prior
    if best.prior_var is not None:
        prior = prior.with_variance(best.prior_var) or prior
    mean, tril = dense_law(prior.law(q.units, q.size), moments.gram)
    variances = noise.variances(best.log_noise, q.units)
    return moments.condition(variances, mean, tril), prior


def dense_law(law: UnitCovariance, like: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (U, D) and Cholesky factors (U, D, D) of a prior, in the dtype of `like`."""
    if law.scale_tril is not None:
        return law.mean.to(like), law.scale_tril.to(like)
    assert law.var is not None
    return law.mean.to(like), torch.diag_embed(law.var.to(like).sqrt())


def _mean_bound(
    bounds: Sequence[CollapsedBound], noise: NoiseModel, log_noise: Tensor, log_prior: Tensor
) -> Tensor:
    """The mean over read-outs, and over the members of each."""
    units = bounds[0].moments.square.numel()
    members, variances = units // len(noise.scale), noise.variances(log_noise, units)
    values = [bound.value(variances, log_prior.exp()).sum() / members for bound in bounds]
    return torch.stack(values).mean()


def optimize(
    bounds: Sequence[CollapsedBound], noise: NoiseModel, prior_var: float, learn_prior: bool
) -> tuple[Tensor, Tensor]:
    """The logarithms of the noise and prior variances that maximize the mean of some bounds.

    Args:
        bounds: the bounds, of read-outs with the same units.
        noise: the noise model, with the variances to start from.
        prior_var: the prior variance to start from.
        learn_prior: whether it moves.
    """
    count, first = len(noise.log_var), bounds[0].moments
    start = torch.cat([noise.log_var, noise.log_var.new_tensor([math.log(prior_var)])])
    free = torch.tensor([noise.learned] * count + [learn_prior])
    # A variance of the labels themselves, in units of y.
    size = (first.square.reshape(-1, len(noise.scale)) / first.rows).clamp_min(1e-300)
    size = (size * noise.scale.square()).max().log()
    middle = torch.cat([size.expand(count), size.new_zeros(1)])
    low = torch.where(free, middle + math.log(SMALLEST), start)
    high = torch.where(free, middle + math.log(LARGEST), start)

    def value(at: Tensor) -> Tensor:
        return _mean_bound(bounds, noise, at[:count], at[count])

    if not bool(free.any()):
        return start[:count], start[count]
    found = maximize(value, start, low, high)
    return found[:count], found[count]
