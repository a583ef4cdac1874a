"""The noise of predictions, which is not that of the bound.

The noise that maximizes the bound is `E_q (t − f)²`: it counts the variance of f, and a prediction
counts that again.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headstart.linalg.gaussians import Primal
from headstart.linalg.read_out import leave_one_out, maximize
from headstart.training.closed_form import GaussianStatistics
from headstart.training.degrees_of_freedom import fraction_spent
from headstart.training.read_out import FeatureDraws, ReadOut

MIN_FRACTION_LEFT = 0.02
"""The smallest fraction of the degrees of freedom that counts as left."""


def predictive_noise(
    read_out: ReadOut,
    statistics: GaussianStatistics,
    gaussian: Primal,
    log_noise: Tensor,
    held_out: list[FeatureDraws] | None,
) -> Tensor:
    """The logarithm of the noise variances that predict best.

    With held-out rows they are the likeliest for these. Without them, `v = (t − E f)² / (1 − h)`,
    the error of the mean prediction over the fraction of the degrees of freedom that the whole net
    has left (`fraction_spent`). Where only the read-out is random, or that fraction is not known,
    they are the likeliest for rows that the read-out leaves out one by one.

    Args:
        read_out: the read-out, solved already.
        statistics: what was read of the data.
        gaussian: the weights of the read-out.
        log_noise: the logarithm of the noise variances of the bound.
        held_out: features of other rows, with targets in the place of offsets.
    """
    noise = statistics.noise
    if not noise.learned:
        return log_noise
    if held_out is not None:
        return _likeliest(statistics, gaussian, log_noise, held_out, leave_out=False)
    outputs = read_out.outputs
    spent = fraction_spent(read_out, noise.variances(log_noise, outputs))
    if spent is None:
        found = _likeliest(statistics, gaussian, log_noise, statistics.kept, leave_out=True)
        expected, _ = _errors(statistics, gaussian)
    else:
        expected, error = _errors(statistics, gaussian)
        found = (error / (1 - spent).clamp_min(MIN_FRACTION_LEFT)).log()
        found = found if len(log_noise) > 1 else found.exp().mean(0, keepdim=True).log()
    # Some rows are noisier than all: what they say is how predictions differ from the bound.
    here = expected.mean(0, keepdim=True) if len(log_noise) == 1 else expected
    return found - here.log() + log_noise


def _errors(statistics: GaussianStatistics, gaussian: Primal) -> tuple[Tensor, Tensor]:
    """`E (t − f)²` and `(t − E f)²` of the kept rows, in units of y squared, (K,) each.

    Of a mixture f is a draw of any member. What a finite number of draws adds to the second is
    taken off.
    """
    noise, expected, errors = statistics.noise, [], []
    for part in statistics.kept:
        every = part.offset, *predicted(part.x, gaussian)
        t, mean, var = (each.unflatten(-1, (-1, len(noise.scale))) for each in every)
        expected.append(((t - mean).square() + var).mean((0, 2)))
        # Members have random numbers in common.
        residual = (t - mean).mean(2)
        draws = len(residual)
        by_chance = residual.var(0) / draws if draws > 1 else 0.0
        errors.append(residual.mean(0).square() - by_chance)
    size = noise.scale.square()
    return torch.cat(expected).mean(0) * size, torch.cat(errors).mean(0).clamp_min(1e-30) * size


def _likeliest(
    statistics: GaussianStatistics,
    gaussian: Primal,
    log_noise: Tensor,
    parts: list[FeatureDraws],
    leave_out: bool,
) -> Tensor:
    """The noise for which labels are likeliest, of these rows or once each is left out.

    Predictions of a mixture mix the draws of all its members.
    """
    noise, units = statistics.noise, len(gaussian.mean)
    members, variances = units // len(noise.scale), noise.variances(log_noise, units)
    predictions = []
    for part in parts:
        if leave_out:
            mean, var = leave_one_out(part.x, part.offset, gaussian, variances)
        else:
            mean, var = predicted(part.x, gaussian)
        predictions.append((part.offset - mean, var))

    def value(at: Tensor) -> Tensor:
        total = at.new_zeros(())
        for residual, var in predictions:
            whole = var + noise.variances(at, units)
            logs = -0.5 * (residual.square() / whole + whole.log())
            # The mixture over draws and members, of each output.
            each = logs.unflatten(-1, (members, -1)).logsumexp((0, 2))
            total = total + each.sum()
        return total

    # Other maxima may be far away: start from the best of a few.
    starts = [log_noise + math.log(ratio) for ratio in (1.0, 0.3, 0.1, 0.01)]
    start = max(starts, key=lambda at: float(value(at)))
    return maximize(value, start, log_noise - 12, log_noise + 6)


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
