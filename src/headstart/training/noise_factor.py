"""The size of the noise of predictions: what rows say that the net has not seen."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace

from scipy import optimize
from torch import Tensor

from headstart.likelihoods.predictions import Predictive

PRIOR_SD = 0.25
"""The standard deviation of the logarithm of the factor before any row was seen."""
MAX_FACTOR = 3.0
"""The largest factor; the smallest is its inverse."""


def likeliest_noise_factor(held_out: Sequence[tuple[Predictive, Tensor]]) -> float:
    """What to multiply the standard deviation of the noise by, in predictions.

    The noise that is best for the evidence lower bound is not that of predictions: it counts the
    variance of the weights, which a prediction counts again, and it is too small where the net has
    fitted the noise of its training rows. The factor c maximizes

        Σ log p(y | c) − (log c)² / (2 · 0.25²)

    over rows that the net has not seen: with few of them it stays near 1 (benchmarks/table_noise.py
    compares this with other rules).

    Args:
        held_out: Predictive distributions and the labels of their rows.

    Example:
        >>> import torch
        >>> from headstart.likelihoods import Gaussian
        >>> pred = Predictive(torch.zeros(1, 1000, 1), Gaussian(1.0).requires_grad_(False))
        >>> y = 2 * torch.randn(1000, generator=torch.Generator().manual_seed(0))
        >>> round(likeliest_noise_factor([(pred, y)]), 1)
        2.0
    """

    def loss(log_factor: float) -> float:
        fit = sum(
            float(with_noise_scaled(pred, math.exp(log_factor)).log_prob(y).double().sum())
            for pred, y in held_out
        )
        return log_factor**2 / (2 * PRIOR_SD**2) - fit

    ends = (-math.log(MAX_FACTOR), math.log(MAX_FACTOR))
    return math.exp(float(optimize.minimize_scalar(loss, bounds=ends, method="bounded").x))


def with_noise_scaled(pred: Predictive, factor: float) -> Predictive:
    """A predictive distribution with a noise of another size.

    Args:
        pred: The predictive distribution; it stays as it is.
        factor: What the standard deviation of the noise is multiplied by.
    """
    likelihood = copy.deepcopy(pred.likelihood)
    likelihood.scale_predictive_noise_(factor)
    return replace(pred, likelihood=likelihood.for_prediction())
