"""What a likelihood owns: everything about the labels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headstart import metrics
from headstart.distributed.collectives import ONE, Ranks
from headstart.errors import HeadstartError

CONCENTRATION = 0.01
"""α of a class label's Dirichlet: Milios et al.'s and the paper's."""


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

    def refined_targets(self, y: Tensor, f: Tensor) -> tuple[Tensor, Tensor] | None:
        """Targets of a second round that look at the outputs f (N, K) of the first; None where one round is enough."""
        return None

    @abstractmethod
    def label_features(self, y: Tensor, count: int, ranks: Ranks = ONE) -> tuple[Tensor, Tensor]:
        """`count` random functions of the label, (N, count), and their noise variances, for hidden units.

        What is standardised is so over the rows of all ranks.
        """

    def fit_(self, f: Tensor, y: Tensor) -> None:
        """Set the parameters that are learned with the weights to their best for draws f (S, N, K) of the outputs, if there are any."""

    # Predictions: the conditional moments of y given f; predictive moments follow by the laws of total mean and variance.
    @abstractmethod
    def mean(self, f: Tensor) -> Tensor:
        """E[y | f], in the user's units; class probabilities for classification."""

    @abstractmethod
    def variance(self, f: Tensor) -> Tensor:
        """Var[y | f], in the user's units squared."""

    @abstractmethod
    def sample(self, f: Tensor) -> Tensor:
        """A label for each row, drawn from p(y | f), in the shape `log_prob` takes."""

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
    def config(self) -> dict[str, Any]:
        """The options that rebuild this likelihood, its tensors apart: `LIKELIHOODS[name](**config)`."""
        return {}

    def log_predictive(self, f: Tensor, y: Tensor) -> Tensor:
        """`log mean_s p(y | f_s)` of each row: the predictive density, not the expected log-likelihood."""
        return self.log_prob(f, y).logsumexp(0) - math.log(len(f))

    def log_scores(self, f: Tensor, y: Tensor) -> dict[str, float]:
        """`mnll = −log E_q p` and `expected_nll = −E_q log p`, averaged over rows; the second is never smaller."""
        each = self.log_prob(f, y)
        mnll = -(each.logsumexp(0) - math.log(len(f))).mean()
        return {"mnll": float(mnll), "expected_nll": float(-each.mean())}


def refuse_unless(sound: Tensor, sentence: Callable[[], str]) -> None:
    """Refuse labels whose values are not sound; a compiled graph cannot look at values, and trusts them."""
    if not torch.compiler.is_compiling() and not bool(sound.all()):
        raise HeadstartError(sentence())


def check_columns(y: Tensor, outputs: int, like: str) -> Tensor:
    """Real-valued labels as (B, outputs); a single output may come as (B,)."""
    if not (
        y.is_floating_point() or y.dtype in (torch.int64, torch.int32, torch.uint8, torch.bool)
    ):
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


def random_codes(t: Tensor, count: int, ranks: Ranks = ONE) -> tuple[Tensor, Tensor]:
    """Random Gaussian combinations of class targets t (N, K), taken to be as noisy as they vary.

    The targets' own noise says how far a label is from a probability, not how well inputs can tell it: for two classes it is a
    quarter of their variance, and hidden weights that believe it overfit small, hard data.
    """
    features = t @ torch.randn(t.shape[1], count, dtype=t.dtype, device=t.device)
    return features, ranks.var(features).mean().clamp_min(torch.finfo(t.dtype).eps).expand(
        len(t), 1
    )


def standard_features(
    z: Tensor, noise_var: Tensor, count: int, ranks: Ranks = ONE
) -> tuple[Tensor, Tensor]:
    """`√2 cos(ωᵀz + b)`, ω ~ N(0, 1), b ~ U(0, 2π), of z (N, K) standardised: distinct units from one label; and their noise."""
    z = z - ranks.mean(z)
    least = torch.finfo(z.dtype).eps
    spread = ranks.std(z).clamp_min(least)
    omega = torch.randn(z.shape[1], count, dtype=z.dtype, device=z.device)
    phase = 2 * math.pi * torch.rand(count, dtype=z.dtype, device=z.device)
    share = noise_var / spread.square()
    varying = share[spread > least]  # a column that never varies would pass for noise alone
    noise = (varying if len(varying) else share).mean()
    return math.sqrt(2) * torch.cos(z / spread @ omega + phase), noise.expand(len(z), 1)


def gaussian_log_density(y: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """log N(y | mean, var), element by element."""
    return -0.5 * ((y - mean).square() / var + var.log() + math.log(2 * math.pi))


def mixture_quantile(centre: Tensor, sd: Tensor, level: float, most: int = 60) -> Tensor:
    """The level-quantile of an equal mixture of Gaussians over the first axis.

    Newton's method on its distribution function, from where one Gaussian with the mixture's moments has it; where a step would
    leave the bracket, or shrinks it too slowly, the bracket is halved instead.
    """
    kind, centre, sd = (
        centre.dtype,
        centre.double(),
        sd.double(),
    )  # a narrow part of a wide mixture is steep
    low, high = (centre - 10 * sd).amin(0), (centre + 10 * sd).amax(0)
    spread = (centre.var(0, correction=0) + sd.square().mean(0)).sqrt()
    eps = torch.finfo(centre.dtype).eps
    near = torch.special.ndtri(torch.tensor(level, dtype=torch.float64, device=centre.device))
    at, last = (centre.mean(0) + near * spread).clamp(low, high), high - low
    found = torch.zeros_like(at, dtype=torch.bool)
    for _ in range(most):
        z = (at - centre) / sd
        short = level - torch.special.ndtr(z).mean(0)
        low, high = torch.where(short > 0, at, low), torch.where(short > 0, high, at)
        step = math.sqrt(2 * math.pi) * short / (z.square_().mul_(-0.5).exp_() / sd).mean(0)
        sound = (at + step >= low) & (at + step <= high) & (step.abs() < last / 2)
        step = torch.where(sound, step, (low + high) / 2 - at)
        at, last = torch.where(found, at, at + step), step.abs()
        found |= (
            last <= 0.1 * math.sqrt(eps) * sd.amin(0) + eps * at.abs()
        )  # what is left is of the order of its square
        if bool(found.all()):
            break
    return at.to(kind)


@torch.no_grad()
def real_scores(likelihood: Likelihood, f: Tensor, y: Tensor) -> dict[str, float]:
    """The metrics of real-valued labels or counts."""
    inside = metrics.coverage(likelihood.quantile(f, 0.025), likelihood.quantile(f, 0.975), y)
    rmse = metrics.rmse(likelihood.mean(f).mean(0), y)
    return {"rmse": float(rmse), **likelihood.log_scores(f, y), "coverage_95": float(inside)}


@torch.no_grad()
def class_scores(likelihood: Likelihood, f: Tensor, y: Tensor) -> dict[str, float]:
    """The metrics of class labels."""
    each = likelihood.probs(f)
    probs = each.mean(0)
    return {
        "error": float(metrics.error(probs, y)),
        **likelihood.log_scores(f, y),
        "ece": float(metrics.ece(probs, y)),
        "brier": float(metrics.brier(probs, y)),
        "entropy": float(metrics.entropy(probs).mean()),
        "mutual_information": float(metrics.mutual_information(each).mean()),
    }
