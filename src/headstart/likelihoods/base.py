"""What a likelihood owns: everything about the labels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError


class Likelihood(nn.Module, ABC):
    """p(y | f): from the net's outputs f (..., B, K) to losses, Bayesian-linear-model targets, predictions and metrics."""

    name: str

    # The labels.
    @abstractmethod
    def check(self, y: Tensor, outputs: int) -> Tensor:
        """`y` in the one shape and dtype the other methods take, or a sentence about what is wrong with it."""

    @abstractmethod
    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """log p(y | f) of each row, (..., B), summed over outputs."""

    # The Bayesian linear models of I-BLM.
    @abstractmethod
    def regression_targets(self, y: Tensor, centre: bool = True) -> tuple[Tensor, Tensor]:
        """Targets t (N, K) and noise variances v (N, K) or (N, 1) for the last layer, one column per output."""

    @abstractmethod
    def label_features(self, y: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """`count` random functions of the label, (N, count), and their noise variances, for hidden units."""

    # Predictions: the conditional moments of y given f; predictive moments follow by the laws of total mean and variance.
    @abstractmethod
    def mean(self, f: Tensor) -> Tensor:
        """E[y | f], in the user's units; class probabilities for classification."""

    @abstractmethod
    def variance(self, f: Tensor) -> Tensor:
        """Var[y | f], in the user's units squared."""

    @abstractmethod
    def evaluate(self, f: Tensor, y: Tensor) -> dict[str, float]:
        """The metrics of draws f (S, B, K) against labels y, by name."""

    def quantile(self, f: Tensor, level: float) -> Tensor:
        """The level-quantile of the predictive mixture over the draws f (S, B, K)."""
        raise HeadstartError(
            f"{type(self).__name__} labels have no order, so no interval; look at probs and entropy instead."
        )

    def probs(self, f: Tensor) -> Tensor:
        """Class probabilities given f."""
        raise HeadstartError(
            f"{type(self).__name__} has no classes, so no class probabilities; look at mean and std instead."
        )

    # What is common to all.
    def log_predictive(self, f: Tensor, y: Tensor) -> Tensor:
        """`log mean_s p(y | f_s)` of each row: the predictive density, not the expected log-likelihood."""
        return self.log_prob(f, y).logsumexp(0) - math.log(len(f))

    @torch.no_grad()
    def log_scores(self, f: Tensor, y: Tensor) -> dict[str, float]:
        """`mnll = −log E_q p` and `expected_nll = −E_q log p`, averaged over rows; the second is never smaller."""
        each = self.log_prob(f, y)
        mnll = -(each.logsumexp(0) - math.log(len(f))).mean()
        return {"mnll": float(mnll), "expected_nll": float(-each.mean())}


def check_columns(y: Tensor, outputs: int, like: str) -> Tensor:
    """Real-valued labels as (B, outputs); a single output may come as (B,)."""
    if not (y.is_floating_point() or y.dtype in (torch.int64, torch.int32, torch.uint8, torch.bool)):
        raise HeadstartError(f"{like} takes real numbers as targets, not {y.dtype}.")
    if y.ndim == 1 and outputs == 1:
        y = y.unsqueeze(1)
    if y.ndim != 2 or y.shape[1] != outputs:
        wanted = f"(rows, {outputs})" + (" or (rows,)" if outputs == 1 else "")
        raise HeadstartError(
            f"The net has {outputs} outputs, so {like} wants targets of shape {wanted}, not {tuple(y.shape)}."
        )
    return y if y.is_floating_point() else y.to(torch.get_default_dtype())


def lognormal_match(shape: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of log g for g ~ Gamma(shape, 1), by the lognormal with the same first two moments.

    `v = log(1/shape + 1)`, `t = log shape − v/2`: how counts and class labels become Gaussian regression targets.

    Example:
        >>> t, v = lognormal_match(torch.tensor([1.01, 0.01]))
        >>> t, v
        (tensor([-0.3341, -6.9127]), tensor([0.6882, 4.6151]))
    """
    var = (1 / shape).log1p()
    return shape.log() - var / 2, var


def bisect_quantile(cdf: object, low: Tensor, high: Tensor, level: float, iterations: int = 60) -> Tensor:
    """Where a monotone `cdf` reaches `level`, element by element, between `low` and `high`."""
    for _ in range(iterations):
        middle = (low + high) / 2
        below = cdf(middle) < level  # type: ignore[operator]
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2
