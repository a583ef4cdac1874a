"""Real-valued labels of which those beyond a limit are only known to be beyond it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.likelihoods.base import (
    check_columns,
    gaussian_log_density,
    refuse_unless,
)
from headstart.likelihoods.quantiles import mixture_quantile
from headstart.likelihoods.standardized_labels import ConstantNoise, positive_option
from headstart.likelihoods.targets import working_response
from headstart.linalg.precision import in_double

TOLERANCE = 1e-6
"""How near to a limit, relative to it, a label is at the limit: it may have been rounded."""


class CensoredGaussian(ConstantNoise):
    """y = clamp(y*, lower, upper), y* ~ N(loc + scale · f, noise_var): the Tobit model.

    A label at a limit says that the latent y* lies there or beyond.
    I-BLM regresses in two rounds: first on the labels as they are, then on the working response of
    that fit, where a label at a limit says little if the fit is beyond it already.

    Args:
        lower: the lower limit in units of y; None: there is none.
        upper: the upper limit in units of y; None: there is none.
        noise_var: of the latent, in units of y squared, one number or one per output.
        learn_noise: whether it is learned with the weights.
        loc: what is added to the outputs, one number or one per output.
        scale: what they are multiplied by first, one number or one per output.
        predictive_ratio: what `noise_var` is multiplied by in predictions, as of `hs.Gaussian`.

    Example:
        >>> lik = CensoredGaussian(lower=0.0, noise_var=1.0, learn_noise=False)
        >>> lik.log_prob(torch.zeros(2, 1), torch.tensor([[0.0], [1.0]]))  # log ½, log N(1 | 0, 1)
        tensor([-0.6931, -1.4189])
    """

    name = "censored_gaussian"

    def __init__(
        self,
        lower: float | None = None,
        upper: float | None = None,
        noise_var: float | Sequence[float] | Tensor = 0.1,
        *,
        learn_noise: bool = True,
        loc: float | Sequence[float] | Tensor = 0.0,
        scale: float | Sequence[float] | Tensor = 1.0,
        predictive_ratio: float | Sequence[float] | Tensor = 1.0,
    ) -> None:
        super().__init__(loc, scale, predictive_ratio)
        limits = [limit for limit in (lower, upper) if limit is not None]
        if not limits or not all(map(math.isfinite, limits)) or sorted(set(limits)) != limits:
            raise HeadstartError(
                "CensoredGaussian needs a finite limit, lower or upper or both with lower < upper, "
                f"not lower={lower} and upper={upper}; hs.Gaussian has none."
            )
        self.lower, self.upper = lower, upper
        log_var = positive_option(noise_var, "noise_var").log()
        self.log_noise_var = nn.Parameter(log_var, requires_grad=learn_noise)

    @property
    def noise_var(self) -> Tensor:
        """The noise variance of the latent in units of y squared, () or (K,)."""
        return self.log_noise_var.exp()

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Labels in the one shape and dtype that the other methods take.

        Args:
            y: real numbers between the limits, (rows, K), or (rows,) where K = 1.
            outputs: K, the outputs of the net.

        Raises:
            HeadstartError: where they do not fit.
        """
        self._check_options(outputs, noise_var=self.log_noise_var)
        y = check_columns(y, outputs, "CensoredGaussian")
        if self.lower is not None:
            y = _at_limit(y, y - self.lower, self.lower, "below lower")
        if self.upper is not None:
            y = _at_limit(y, self.upper - y, self.upper, "above upper")
        return y

    def latent_mean(self, f: Tensor) -> Tensor:
        """E[y* | f] = `loc + scale · f`.

        Args:
            f: outputs of the net, (..., B, K).
        """
        return self._in_units(f)

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """log p(y | f) of each row, (..., B): a density between the limits, a probability at them.

        Args:
            f: outputs of the net, (..., B, K).
            y: labels as `check` returns them.
        """
        center, sd = self.latent_mean(f), self._sd(f)
        each = gaussian_log_density(y, center, sd.square())
        for at, beyond in self._beyond(center, sd, y):
            each = torch.where(at, torch.special.log_ndtr(beyond), each)
        return each.sum(-1)

    def curvature(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Those of a Gaussian; at a limit `±λ/σ` and `λ (λ + z)/σ²`, λ = φ(z)/Φ(z).

        z is how far the center is beyond the limit, in standard deviations.

        Args:
            f: outputs of the net, (..., B, K).
            y: labels as `check` returns them.
        """
        center, sd, scale = self.latent_mean(f), self._sd(f).detach(), self.scale.to(f)
        slope, curvature = (y - center) / sd, torch.ones_like(center)
        for at, z in self._beyond(center, sd, y):
            ratio = (-0.5 * z.square() - torch.special.log_ndtr(z)).exp() / math.sqrt(2 * math.pi)
            # The center moves away from a lower limit as it rises, and towards an upper one.
            toward = torch.where(at & (y == self.lower), -1.0, 1.0) if self.lower is not None else 1
            slope = torch.where(at, toward * ratio, slope)
            curvature = torch.where(at, (ratio * (ratio + z)).clamp(0, 1), curvature)
        return slope * scale / sd, curvature * (scale / sd).square()

    def refined_targets(self, y: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """The working response; of a label between the limits it is the label.

        Args:
            y: labels as `check` returns them.
            f: outputs of the mean network after the first round, (N, K).
        """
        return working_response(f, *self.curvature(f, y))

    def mean(self, f: Tensor) -> Tensor:
        """E[y | f] of the censored label; `latent_mean` is that of the latent.

        Args:
            f: outputs of the net, (..., B, K).
        """
        first, _ = self._moments(f)
        return self.latent_mean(f) + self._sd(f) * first

    def variance(self, f: Tensor) -> Tensor:
        """Var[y | f] of the censored label.

        Args:
            f: outputs of the net, (..., B, K).
        """
        first, second = self._moments(f)
        return self._sd(f).square() * (second - first.square()).clamp_min(0)

    def sample(self, f: Tensor) -> Tensor:
        """Labels, (..., B, K).

        Args:
            f: outputs of the net, (..., B, K).
        """
        return self._censor(self.latent_mean(f) + self._sd(f) * torch.randn_like(f))

    def quantile(self, f: Tensor, level: float) -> Tensor:
        """A quantile of the predictive mixture over draws: that of the latent, censored.

        Args:
            f: draws of the outputs, (S, B, K).
            level: between 0 and 1.
        """
        return self._censor(mixture_quantile(self.latent_mean(f), self._sd(f), level))

    def config(self) -> dict[str, Any]:
        learned = self.log_noise_var.requires_grad
        limits = {"lower": self.lower, "upper": self.upper}
        return {**limits, "learn_noise": learned, **super().config()}

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}, noise_var={self.noise_var.tolist()}"

    def _sd(self, f: Tensor) -> Tensor:
        return (0.5 * self.log_noise_var).exp().to(f)

    def _censor(self, y: Tensor) -> Tensor:
        return y.clamp(self.lower, self.upper)

    def _beyond(self, center: Tensor, sd: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
        """For each limit, which labels are at it, and how far beyond it the center is."""
        sides = ((self.lower, -1), (self.upper, 1))
        return [
            (y == limit, side * (center - limit) / sd) for limit, side in sides if limit is not None
        ]

    def _moments(self, f: Tensor) -> tuple[Tensor, Tensor]:
        """E u and E u² of `u = (y − latent_mean)/σ`, in double precision until they are done.

        With limits a and b of u: `a Φ(a) + b Φ(−b) + φ(a) − φ(b)` and
        `a² Φ(a) + b² Φ(−b) + Φ(b) − Φ(a) + a φ(a) − b φ(b)`.
        """
        center, sd = self.latent_mean(in_double(f)), self._sd(in_double(f))
        first, second = torch.zeros_like(center), torch.ones_like(center)
        for limit, side in ((self.lower, -1), (self.upper, 1)):
            if limit is not None:
                z = side * (limit - center) / sd
                tail, density = torch.special.ndtr(-z), (-0.5 * z.square()).exp()
                density = density / math.sqrt(2 * math.pi)
                first = first + side * (z * tail - density)
                second = second + (z.square() - 1) * tail - z * density
        return first.to(f), second.to(f)

    @torch.no_grad()
    def _rescale_noise_(self, factor: Tensor) -> None:
        self.log_noise_var.data = self.log_noise_var + 2 * factor.log()


def _at_limit(y: Tensor, distance: Tensor, limit: float, beyond: str) -> Tensor:
    """Labels near a limit at the limit; refuses labels beyond it."""
    near = TOLERANCE * max(1.0, abs(limit))
    refuse_unless(
        distance >= -near,
        lambda: (
            f"CensoredGaussian found labels {beyond}={limit}; "
            "labels that are censored stand at the limit."
        ),
    )
    return torch.where(distance.abs() <= near, limit, y)
