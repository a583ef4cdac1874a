"""Counts."""

from __future__ import annotations

import torch
from torch import Tensor

from headstart.distributed.collectives import ONE, Ranks
from headstart.likelihoods.base import (
    Likelihood,
    check_columns,
    lognormal_match,
    real_scores,
    refuse_unless,
    standard_features,
)

JEFFREYS = 0.5
"""The shape of the Gamma prior of a rate, which keeps the target of a zero count finite."""
LARGEST_RATE = 2.0**50
"""Beyond which quantiles are those of this rate: float64 counts no further one by one."""


class Poisson(Likelihood):
    """y ~ Poisson(exp f), independent outputs.

    As a regression target, a count y says that the rate is Gamma(y + ½, 1), matched by a lognormal: `v = log(1/(y+½) + 1)`,
    `t = log(y + ½) − v/2` is a Gaussian observation of the log-rate.

    Example:
        >>> Poisson().log_prob(torch.zeros(1, 1), torch.tensor([[2.0]]))  # log(e⁻¹/2)
        tensor([-1.6931])
    """

    name = "poisson"

    def check(self, y: Tensor, outputs: int) -> Tensor:
        y = check_columns(y, outputs, "Poisson")
        sentence = (
            "Poisson wants counts 0, 1, 2, … as targets, and found negative or fractional numbers."
        )
        refuse_unless((y >= 0) & (y == y.round()), lambda: sentence)
        return y

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        return (y * f - f.exp() - torch.lgamma(y + 1)).sum(-1)

    def regression_targets(self, y: Tensor, centre: bool = True) -> tuple[Tensor, Tensor]:
        return lognormal_match(y + JEFFREYS)

    def label_features(self, y: Tensor, count: int, ranks: Ranks = ONE) -> tuple[Tensor, Tensor]:
        """Random Fourier features of the log-rate's target."""
        t, v = self.regression_targets(y)
        return standard_features(t, ranks.mean(v), count, ranks)

    def mean(self, f: Tensor) -> Tensor:
        return f.exp()

    def variance(self, f: Tensor) -> Tensor:
        return f.exp()

    def sample(self, f: Tensor) -> Tensor:
        return torch.poisson(f.exp())

    def quantile(self, f: Tensor, level: float) -> Tensor:
        """The smallest count whose cumulative probability reaches `level`: P(Y ≤ k) is a regularised incomplete Gamma."""
        rate = f.double().exp().clamp_max(LARGEST_RATE)
        low, high = (
            torch.full_like(rate[0], -1),
            (rate.amax(0) + 10 * rate.amax(0).sqrt() + 20).ceil(),
        )
        for _ in range(64):  # halves of what float64 can count
            if not bool((high - low > 1).any()):
                break
            middle = ((low + high) / 2).floor()
            below = torch.special.gammaincc(middle + 1, rate).mean(0) < level
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return high.to(f.dtype)

    def evaluate(self, f: Tensor, y: Tensor) -> dict[str, float]:
        return real_scores(self, f, self.check(y, f.shape[-1]))
