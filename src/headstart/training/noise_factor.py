"""The size of the noise of predictions: what rows say that the net has not seen."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from scipy import optimize
from torch import Tensor

from headstart.likelihoods.predictions import Predictive

PRIOR_SD = 0.25
"""The standard deviation of the logarithm of a factor before any row was seen."""
MAX_FACTOR = 3.0
"""The largest factor; the smallest is its inverse."""
SWEEPS = 2
"""How often the factor of each target is found, the others given, where there are several."""


class HeldOut(NamedTuple):
    """Rows that a net has not seen, as it predicts them.

    Args:
        predicted: Their predictive distribution.
        y: Their labels, (rows,) or (rows, targets).
        counts: What each row counts; None: one each.
    """

    predicted: Predictive
    y: Tensor
    counts: Tensor | None = None

    def log_prob(self, factor: Tensor) -> float:
        """The log-likelihood of the rows with a noise of another size.

        Args:
            factor: What the standard deviation of the noise is multiplied by.
        """
        each = with_noise_scaled(self.predicted, factor).log_prob(self.y).double()
        if self.counts is not None:
            seen = self.counts > 0
            each = each[seen] * self.counts[seen]
        return float(each.sum())


def likeliest_noise_factor(held_out: Sequence[HeldOut]) -> Tensor:
    """What to multiply the standard deviation of the noise by, in predictions.

    The noise that is best for the evidence lower bound is not that of predictions: it counts the
    variance of the weights, which a prediction counts again, and it is too small where the net has
    fitted the noise of its training rows. The factor c maximizes

        Σ wᵢ log p(yᵢ | c) − Σₖ (log cₖ)² / (2 · 0.25²)

    over rows that the net has not seen, a factor for each target between 1/3 and 3: with few rows
    it stays near 1 (benchmarks/table_noise.py compares this with other rules).

    Args:
        held_out: Rows, as nets that have not seen them predict them.

    Returns:
        The factor, () or (targets,); 1 where the rows have no finite likelihood.

    Example:
        >>> from headstart.likelihoods import Gaussian
        >>> pred = Predictive(torch.zeros(1, 1000, 1), Gaussian(1.0).requires_grad_(False))
        >>> y = 2 * torch.randn(1000, generator=torch.Generator().manual_seed(0))
        >>> round(float(likeliest_noise_factor([HeldOut(pred, y)])), 1)
        2.0
    """
    targets = held_out[0].y.shape[1:].numel()
    found = torch.zeros(targets, dtype=torch.float64)

    def loss(log_factor: float, target: int) -> float:
        logs = found.clone()
        logs[target] = log_factor
        fit = sum(part.log_prob(_as_factor(logs)) for part in held_out)
        return log_factor**2 / (2 * PRIOR_SD**2) - fit

    if not math.isfinite(loss(0.0, 0)):
        return _as_factor(found)
    ends = (-math.log(MAX_FACTOR), math.log(MAX_FACTOR))
    for _ in range(SWEEPS if targets > 1 else 1):
        for target in range(targets):
            best = optimize.minimize_scalar(loss, bounds=ends, args=(target,), method="bounded")
            found[target] = float(best.x)
    return _as_factor(found)


def _as_factor(logs: Tensor) -> Tensor:
    return logs.exp().reshape(logs.shape if len(logs) > 1 else ())


def with_noise_scaled(pred: Predictive, factor: float | Tensor) -> Predictive:
    """A predictive distribution with a noise of another size.

    Args:
        pred: The predictive distribution; it stays as it is.
        factor: What the standard deviation of the noise is multiplied by, one number or one for
            each target.
    """
    likelihood = copy.deepcopy(pred.likelihood)
    likelihood.scale_predictive_noise_(factor)
    return replace(pred, likelihood=likelihood.for_prediction())
