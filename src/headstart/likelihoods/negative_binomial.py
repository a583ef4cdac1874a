"""Counts that vary more than Poisson's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from scipy import special
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.likelihoods.kinds import CountedLabels
from headstart.likelihoods.poisson import JEFFREYS, check_counts
from headstart.likelihoods.targets import lognormal_match
from headstart.linalg.precision import in_double

MIN_DISPERSION, MAX_DISPERSION = 1e-6, 1e6
"""Below the first there is no telling the distribution from Poisson's."""


class NegativeBinomial(CountedLabels):
    """y ~ Poisson(exp(f) · g), g ~ Gamma with mean 1 and variance `dispersion`.

    The mean is `μ = exp f` and the variance `μ + dispersion · μ²`; without dispersion it is
    `hs.Poisson`.
    As a regression target, a count is Poisson's observation of the log-rate with the noise of
    log g on top: both are lognormal matches, of shapes y + ½ and 1/dispersion.

    Args:
        dispersion: positive, one number or one per output.
        learn_dispersion: whether it is learned with the weights.

    Example:
        At μ = 1 and dispersion 1 it is the number of heads before a tail:

        >>> lik = NegativeBinomial(dispersion=1.0, learn_dispersion=False)
        >>> lik.log_prob(torch.zeros(1, 1), torch.tensor([[2.0]])).exp()
        tensor([0.1250])
    """

    name = "negative_binomial"

    def __init__(
        self,
        dispersion: float | Sequence[float] | Tensor = 0.1,
        *,
        learn_dispersion: bool = True,
    ) -> None:
        super().__init__()
        size = torch.as_tensor(dispersion, dtype=torch.float64)
        if not bool(((size >= MIN_DISPERSION) & (size <= MAX_DISPERSION)).all()):
            raise HeadstartError(
                f"dispersion must lie between {MIN_DISPERSION:g} and {MAX_DISPERSION:g}, "
                f"not {dispersion}."
            )
        self.log_dispersion = nn.Parameter(size.log(), requires_grad=learn_dispersion)

    @property
    def dispersion(self) -> Tensor:
        """The variance of the rate's factor, () or (K,)."""
        return self._log_dispersion().exp()

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Labels in the one shape and dtype that the other methods take.

        Args:
            y: counts, (rows, K), or (rows,) where K = 1.
            outputs: K, the outputs of the net.

        Raises:
            HeadstartError: where they do not fit.
        """
        size = self.log_dispersion
        if size.ndim and len(size) not in (1, outputs):
            raise HeadstartError(
                f"dispersion has {len(size)} values but the net has {outputs} outputs."
            )
        return check_counts(y, outputs, "NegativeBinomial")

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """log p(y | f) of each row, (..., B).

        Args:
            f: logarithms of the means, (..., B, K).
            y: labels as `check` returns them.
        """
        # In double precision: the difference of large numbers.
        log_r, counts = -self._log_dispersion(), in_double(y)
        r, odds = log_r.exp(), in_double(f) - log_r
        constant = torch.lgamma(counts + r) - torch.lgamma(r) - torch.lgamma(counts + 1)
        return (constant - r * F.softplus(odds) - counts * F.softplus(-odds)).sum(-1).to(f)

    def curvature(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """`y − (y + r) p` and `(y + r) p (1 − p)`, with r = 1/dispersion and p = μ/(r + μ).

        Args:
            f: logarithms of the means, (..., B, K).
            y: labels as `check` returns them.
        """
        log_r = -self._log_dispersion().detach().to(f)
        total, odds = y + log_r.exp(), f - log_r
        p = odds.sigmoid()
        return y - total * p, total * p * odds.neg().sigmoid()

    def regression_targets(self, y: Tensor, center: bool = True) -> tuple[Tensor, Tensor]:
        """The lognormal match of the rate that a count tells of, less that of its factor.

        Args:
            y: labels as `check` returns them.
            center: makes no difference.

        Returns:
            Targets (N, K) and noise variances.
        """
        t, v = lognormal_match(y + JEFFREYS)
        log_r = -self._log_dispersion().detach().to(y)
        log_factor, noise = lognormal_match(log_r.exp())
        return t - (log_factor - log_r), v + noise

    def mean(self, f: Tensor) -> Tensor:
        """`μ = exp f`.

        Args:
            f: logarithms of the means, (..., B, K).
        """
        return f.exp()

    def variance(self, f: Tensor) -> Tensor:
        """`μ + dispersion · μ²`.

        Args:
            f: logarithms of the means, (..., B, K).
        """
        mean = f.exp()
        return mean + self.dispersion.to(f) * mean.square()

    def sample(self, f: Tensor) -> Tensor:
        """Counts, (..., B, K).

        Args:
            f: logarithms of the means, (..., B, K).
        """
        r = (1 / self.dispersion.detach()).to(f).expand_as(f)
        return torch.poisson(f.exp() * torch.distributions.Gamma(r, r).sample())

    def distribution(self, f: Tensor, level: float) -> tuple[Callable[[Tensor], Tensor], Tensor]:
        """P(Y ≤ k), a regularized incomplete Beta function, and counts where it reaches `level`.

        Args:
            f: draws of the logarithms of the means, (S, B, K).
            level: between 0 and 1.
        """
        r = (1 / self.dispersion.detach()).cpu()
        p = (r.log() - in_double(f).cpu()).sigmoid()
        # Cantelli's inequality, for the draw that varies most.
        mean, var = in_double(f).exp(), self.variance(in_double(f)).detach()
        reach = math.sqrt(level / (1 - level))
        high = (mean + reach * var.sqrt()).amax(0).ceil() + 1

        def cdf(count: Tensor) -> Tensor:
            each = special.betainc(r.numpy(), count.cpu().numpy() + 1, p.numpy())
            return torch.as_tensor(each).mean(0).to(count.device)

        return cdf, high

    def config(self) -> dict[str, Any]:
        return {"learn_dispersion": self.log_dispersion.requires_grad}

    def extra_repr(self) -> str:
        return f"dispersion={self.dispersion.tolist()}"

    def _log_dispersion(self) -> Tensor:
        return self.log_dispersion.clamp(math.log(MIN_DISPERSION), math.log(MAX_DISPERSION))
