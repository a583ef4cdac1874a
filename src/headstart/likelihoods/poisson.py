"""Counts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from headstart.likelihoods.base import check_columns, refuse_unless
from headstart.likelihoods.kinds import CountedLabels
from headstart.likelihoods.targets import lognormal_match
from headstart.linalg.precision import in_double

JEFFREYS = 0.5
"""The shape of the Gamma prior of a rate, which keeps the target of a zero count finite."""
MAX_RATE = 2.0**50
"""Beyond which quantiles are those of this rate: float64 counts no further one by one."""


def check_counts(y: Tensor, outputs: int, like: str) -> Tensor:
    """Counts as (B, outputs); those of a single output may come as (B,).

    Args:
        y: the labels as the user gave them.
        outputs: the outputs of the net.
        like: the likelihood's name in sentences.

    Raises:
        HeadstartError: where they do not fit.
    """
    y = check_columns(y, outputs, like)
    refuse_unless(
        (y >= 0) & (y == y.round()),
        lambda: (
            f"{like} wants counts 0, 1, 2, … as targets, and found negative or fractional numbers."
        ),
    )
    return y


class Poisson(CountedLabels):
    """y ~ Poisson(exp f), independent outputs.

    As a regression target, a count y says that the rate is Gamma(y + ½, 1), matched by a lognormal:
    `t = log(y + ½) − v/2` is a Gaussian observation of the log-rate with variance
    `v = log(1/(y+½) + 1)`.

    Example:
        >>> Poisson().log_prob(torch.zeros(1, 1), torch.tensor([[2.0]]))  # log(e⁻¹/2)
        tensor([-1.6931])
    """

    name = "poisson"

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Labels in the one shape and dtype that the other methods take.

        Args:
            y: counts, (rows, K), or (rows,) where K = 1.
            outputs: K, the outputs of the net.

        Raises:
            HeadstartError: where they do not fit.
        """
        return check_counts(y, outputs, "Poisson")

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """log p(y | f) of each row, (..., B).

        Args:
            f: log-rates, (..., B, K).
            y: labels as `check` returns them.
        """
        # In double precision: the difference of large numbers, where counts are.
        counts, rates = in_double(y), in_double(f)
        return (counts * rates - rates.exp() - torch.lgamma(counts + 1)).sum(-1).to(f)

    def curvature(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """`y − rate` and `rate`.

        Args:
            f: log-rates, (..., B, K).
            y: labels as `check` returns them.
        """
        rate = f.exp()
        return y - rate, rate

    def regression_targets(self, y: Tensor, center: bool = True) -> tuple[Tensor, Tensor]:
        """The lognormal match of the rate that a count tells of.

        Args:
            y: labels as `check` returns them.
            center: makes no difference.

        Returns:
            Targets (N, K) and noise variances.
        """
        return lognormal_match(y + JEFFREYS)

    def mean(self, f: Tensor) -> Tensor:
        """The rate.

        Args:
            f: log-rates, (..., B, K).
        """
        return f.exp()

    def variance(self, f: Tensor) -> Tensor:
        """The rate.

        Args:
            f: log-rates, (..., B, K).
        """
        return f.exp()

    def sample(self, f: Tensor) -> Tensor:
        """Counts, (..., B, K).

        Args:
            f: log-rates, (..., B, K).
        """
        return torch.poisson(f.exp())

    def distribution(self, f: Tensor, level: float) -> tuple[Callable[[Tensor], Tensor], Tensor]:
        """P(Y ≤ k), a regularized incomplete Gamma function, and counts where it reaches `level`.

        Args:
            f: draws of the log-rates, (S, B, K).
            level: between 0 and 1.
        """
        rate = in_double(f).exp().clamp_max(MAX_RATE)
        high = (rate.amax(0) + 10 * rate.amax(0).sqrt() + 20).ceil()

        def cdf(count: Tensor) -> Tensor:
            return torch.special.gammaincc(count + 1, rate).mean(0)

        return cdf, high
