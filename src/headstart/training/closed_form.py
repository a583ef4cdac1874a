"""The read-out of a net with Gaussian noise, solved exactly given the law of its features."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from headstart.likelihoods.base import NoiseModel
from headstart.linalg.gaussians import Primal
from headstart.linalg.read_out import CollapsedBound, Moments, leave_one_out, maximize
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
        moments: the expected statistics of all rows, targets and outputs in units of the outputs.
        kept: features of some rows, their targets in the place of offsets.
        rows: the rows that were read.
    """

    noise: NoiseModel
    moments: Moments
    kept: list[FeatureDraws]
    rows: int

    def negative_bound(self, layer: Bayesian, log_noise: Tensor) -> float:
        """The layer's expected NLL of labels plus its KL.

        Args:
            layer: the read-out; its posterior may be any Gaussian.
            log_noise: the logarithm of the noise variances.
        """
        # In double precision, whatever the net's.
        exact = copy.deepcopy(layer).double().cpu()
        q = exact.posterior
        variances = self.noise.variances(log_noise).expand(q.units)
        error = self.moments.expected_error(q.mean, q.diagonal(), q.factors())
        logs = (2 * math.pi * variances).log() + 2 * self.noise.scale.log()
        return float(0.5 * (self.moments.rows * logs + error / variances).sum() + exact.kl())


def gaussian_statistics(read_out: ReadOut, noise: NoiseModel, rows: int) -> GaussianStatistics:
    """One pass over the data.

    Args:
        read_out: the read-out and its data.
        noise: the noise model of its likelihood.
        rows: a bound on the rows that are read.
    """
    sums = MomentSums(read_out.groups, read_out.outputs)
    kept: list[FeatureDraws] = []
    rows_kept = numbers = 0
    for part in read_out.read(rows, read_out.draws(rows), first=KEPT_ROWS):
        t = targets(read_out, part)
        sums.add(part.x, t)
        if rows_kept < KEPT_ROWS and numbers < KEPT_NUMBERS:
            kept.append(FeatureDraws(part.x.cpu(), t.cpu(), part.y))
            rows_kept, numbers = rows_kept + t.shape[1], numbers + part.x.numel()
    return GaussianStatistics(noise, sums.total(read_out.num_data), kept, sums.rows)


def targets(read_out: ReadOut, part: FeatureDraws) -> Tensor:
    """What the read-out is to give, (S, N, K): what the net adds to it is not its to fit.

    Args:
        read_out: the read-out.
        part: features and labels.
    """
    t, _ = read_out.likelihood.regression_targets(part.y, False)
    return t.double() - part.offset.double()


@dataclass(frozen=True)
class GaussianSolution:
    """A read-out at its best.

    Args:
        gaussian: its weights.
        prior: their prior.
        log_noise: the logarithm of the noise variances that maximize the bound.
        log_predictive: those that predict best.
    """

    gaussian: Primal
    prior: Prior
    log_noise: Tensor
    log_predictive: Tensor


def solve_gaussian(
    statistics: GaussianStatistics,
    layer: Bayesian,
    learn_prior: bool,
    held_out: list[FeatureDraws] | None,
) -> GaussianSolution:
    """The posterior, noise and prior variance that maximize the bound; and the predictive noise.

    Args:
        statistics: what was read of the data.
        layer: the read-out.
        learn_prior: whether a prior with a single variance gets that which maximizes the bound.
        held_out: features of other rows, on which the predictive noise is chosen; None leaves one
            row out after another.
    """
    noise = statistics.noise
    best = best_hyperparameters([statistics.moments], noise, layer, learn_prior)
    variances = noise.variances(best.log_noise).expand(layer.posterior.units)
    gaussian = statistics.moments.condition(variances, best.mean, best.tril)
    log_predictive = _predictive_noise(statistics, gaussian, best.log_noise, held_out)
    return GaussianSolution(gaussian, best.prior, best.log_noise, log_predictive)


class Hyperparameters(NamedTuple):
    """A prior, written out too, and the noise at the maximum of a bound."""

    prior: Prior
    mean: Tensor
    """(U, D)."""
    tril: Tensor
    """(U, D, D)."""
    log_noise: Tensor
    """The logarithm of the noise variances."""
    bound: float
    """The bound, its mean over several read-outs."""


def best_hyperparameters(
    moments: Sequence[Moments], noise: NoiseModel, layer: Bayesian, learn_prior: bool
) -> Hyperparameters:
    """The noise and the prior that maximize the mean bound of some read-outs.

    Args:
        moments: the statistics of each.
        noise: the noise model of the likelihood, with the variances to start from.
        layer: the read-out, with the prior to start from.
        learn_prior: whether a prior with a single variance may change.
    """
    q, prior = layer.posterior, layer.prior
    law = prior.law(q.units, q.size)
    mean, tril = dense_law(law, moments[0].gram)
    if prior.with_variance(1.0) is not None and law.var is not None:
        start, bounds = float(law.var[0, 0]), [CollapsedBound(each) for each in moments]
    else:
        # In the coordinates in which the prior is N(0, 1).
        start, bounds = 1.0, [CollapsedBound(each.whitened(mean, tril)) for each in moments]
        learn_prior = False
    log_noise, log_prior = optimize(bounds, noise, start, learn_prior)
    if learn_prior:
        prior = prior.with_variance(float(log_prior.exp())) or prior
        mean, tril = dense_law(prior.law(q.units, q.size), moments[0].gram)
    variances = noise.variances(log_noise).expand(q.units)
    values = [bound.value(variances, log_prior.exp()).sum() for bound in bounds]
    return Hyperparameters(prior, mean, tril, log_noise, float(torch.stack(values).mean()))


def dense_law(law: UnitCovariance, like: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (U, D) and Cholesky factors (U, D, D) of a prior, in the dtype of `like`."""
    if law.scale_tril is not None:
        return law.mean.to(like), law.scale_tril.to(like)
    assert law.var is not None
    return law.mean.to(like), torch.diag_embed(law.var.to(like).sqrt())


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
    units = first.square.numel()
    # A variance of the labels themselves, in units of y.
    size = (first.square.flatten() / first.rows).clamp_min(1e-300)
    size = (size * noise.scale.square()).max().log()
    middle = torch.cat([size.expand(count), size.new_zeros(1)])
    low = torch.where(free, middle + math.log(SMALLEST), start)
    high = torch.where(free, middle + math.log(LARGEST), start)

    def value(at: Tensor) -> Tensor:
        variances, prior = noise.variances(at[:count]).expand(units), at[count].exp()
        return torch.stack([bound.value(variances, prior).sum() for bound in bounds]).mean()

    if not bool(free.any()):
        return start[:count], start[count]
    found = maximize(value, start, low, high)
    return found[:count], found[count]


def _predictive_noise(
    statistics: GaussianStatistics,
    gaussian: Primal,
    log_noise: Tensor,
    held_out: list[FeatureDraws] | None,
) -> Tensor:
    """The logarithm of the noise variances whose predictions of labels not seen are likeliest.

    The noise of the bound is `E_q (t − f)²`, which counts the variance of f; a prediction counts
    that again.
    """
    noise, units = statistics.noise, len(gaussian.mean)
    if not noise.learned:
        return log_noise
    variances = noise.variances(log_noise).expand(units)
    predictions, errors = [], []
    for part in statistics.kept if held_out is None else held_out:
        mean, var = predicted(part.x, gaussian)
        errors.append(((part.offset - mean).square() + var).mean(0))
        if held_out is None:
            mean, var = leave_one_out(part.x, part.offset, gaussian, variances)
        predictions.append((part.offset - mean, var))

    def value(at: Tensor) -> Tensor:
        total = at.new_zeros(())
        for residual, var in predictions:
            whole = var + noise.variances(at).expand(units)
            logs = -0.5 * (residual.square() / whole + whole.log())
            # The mixture over draws, of each output.
            total = total + logs.logsumexp(0).sum()
        return total

    # Other maxima may be far away: start from the best of a few.
    starts = [log_noise + math.log(ratio) for ratio in (1.0, 0.3, 0.1, 0.01)]
    start = max(starts, key=lambda at: float(value(at)))
    found = maximize(value, start, log_noise - 12, log_noise + 6)
    if held_out is not None:
        return found
    # Some rows are noisier than all: what they say is how predictions differ from the bound.
    error = torch.cat(errors).mean(0) * noise.scale.square()
    here = error.mean(0, keepdim=True) if len(log_noise) == 1 else error
    return found - here.log() + log_noise


def predicted(x: Tensor, gaussian: Primal) -> tuple[Tensor, Tensor]:
    """Mean and variance of the read-out for each draw of the features, (S, N, U).

    Args:
        x: features, (G, S, N, D).
        gaussian: the weights.
    """
    per_group = len(gaussian.mean) // len(x)
    tril, means, variances = gaussian.scale_tril(), [], []
    for unit, mean in enumerate(gaussian.mean):
        rows = x[unit // per_group]
        means.append(rows @ mean)
        variances.append((rows @ tril[unit]).square().sum(-1))
    return torch.stack(means, -1), torch.stack(variances, -1)
