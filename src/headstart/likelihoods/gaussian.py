"""Real-valued labels with Gaussian noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headstart.likelihoods.base import (
    check_columns,
    gaussian_log_density,
)
from headstart.likelihoods.noise import NoiseModel
from headstart.likelihoods.quantiles import mixture_quantile
from headstart.likelihoods.standardized_labels import ConstantNoise, positive_option
from headstart.linalg.precision import in_double


class Gaussian(ConstantNoise):
    """y ~ N(loc + scale · f, noise_var), independent outputs.

    `noise_var`, predictions and metrics are in the units of y.
    `standardize_(y)` sets `loc` and `scale` from the labels, so that the net works with outputs of
    size 1.

    Args:
        noise_var: one number or one per output.
        learn_noise: whether it is learned with the weights.
        loc: what is added to the outputs, one number or one per output.
        scale: what they are multiplied by first, one number or one per output.
        predictive_ratio: what `noise_var` is multiplied by in predictions, one number or one per
            output. The noise that is best for the evidence lower bound counts the variance of the
            weights, which a prediction counts again; `hs.refine_` finds the ratio, of tables
            held-out rows do. It is that of one posterior: training begins with 1 again.

    Example:
        >>> lik = Gaussian(noise_var=0.5, learn_noise=False)
        >>> lik.log_prob(torch.zeros(1, 1), torch.ones(1, 1))  # log N(1 | 0, 0.5)
        tensor([-1.5724])
    """

    name = "gaussian"

    def __init__(
        self,
        noise_var: float | Sequence[float] | Tensor = 0.1,
        *,
        learn_noise: bool = True,
        loc: float | Sequence[float] | Tensor = 0.0,
        scale: float | Sequence[float] | Tensor = 1.0,
        predictive_ratio: float | Sequence[float] | Tensor = 1.0,
    ) -> None:
        super().__init__(loc, scale, predictive_ratio)
        log_var = positive_option(noise_var, "noise_var").log()
        self.log_noise_var = nn.Parameter(log_var, requires_grad=learn_noise)

    @property
    def noise_var(self) -> Tensor:
        """The noise variance in units of y squared, () or (K,)."""
        return self.log_noise_var.exp()

    def _cast(self, f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.noise_var.to(f), self.loc.to(f), self.scale.to(f)

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Labels in the one shape and dtype that the other methods take.

        Args:
            y: real numbers, (rows, K), or (rows,) where K = 1.
            outputs: K, the outputs of the net.

        Raises:
            HeadstartError: where they do not fit.
        """
        self._check_options(outputs, noise_var=self.log_noise_var)
        return check_columns(y, outputs, "Gaussian")

    @torch.no_grad()
    def fit_(self, f: Tensor, y: Tensor) -> None:
        """`noise_var = E_q (y − f)²`, the most likely noise, if the noise is learned.

        Args:
            f: draws of the outputs, (S, N, K).
            y: labels as `check` returns them.
        """
        if self.log_noise_var.requires_grad:
            squares = (y - self.mean(f)).square().mean((0, 1)).to(self.log_noise_var)
            each = self.log_noise_var.ndim and len(self.log_noise_var) > 1
            var = squares if each else squares.mean()
            self.log_noise_var.copy_(var.clamp_min(torch.finfo(var.dtype).tiny).log())
            self.forget_predictive_noise_()

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """log p(y | f) of each row, (..., B).

        Args:
            f: outputs of the net, (..., B, K).
            y: labels as `check` returns them.
        """
        return gaussian_log_density(y, self.mean(f), self.noise_var.to(f)).sum(-1)

    def curvature(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """`scale (y − loc − scale f)/noise_var` and `scale²/noise_var`.

        Args:
            f: outputs of the net, (..., B, K).
            y: labels as `check` returns them.
        """
        noise_var, _, scale = self._cast(f)
        precision = scale / noise_var
        return precision * (y - self.mean(f)), (precision * scale).expand_as(f)

    def noise_model(self, outputs: int) -> NoiseModel:
        """One variance for all outputs, or one for each.

        Args:
            outputs: K, the outputs of the net.
        """
        log_var = in_double(self.log_noise_var.detach()).cpu().reshape(-1).clone()
        scale = in_double(self.scale).cpu().expand(outputs)
        return NoiseModel(log_var, scale, self.log_noise_var.requires_grad)

    @torch.no_grad()
    def set_noise_(self, log_var: Tensor, log_predictive: Tensor) -> None:
        """Take these noise variances, and `predictive_ratio` from them.

        Args:
            log_var: the logarithm of the variances of the bound, as `noise_model` has them.
            log_predictive: those of predictions.
        """
        self.log_noise_var.copy_(log_var.reshape(self.log_noise_var.shape))
        ratio = (log_predictive - log_var).exp()
        self.predictive_ratio = ratio.reshape(self.log_noise_var.shape).to(self.loc)

    def mean(self, f: Tensor) -> Tensor:
        """`loc + scale · f`.

        Args:
            f: outputs of the net, (..., B, K).
        """
        return self._in_units(f)

    def sample(self, f: Tensor) -> Tensor:
        """Labels, (..., B, K).

        Args:
            f: outputs of the net, (..., B, K).
        """
        return self.mean(f) + self.noise_var.to(f).sqrt() * torch.randn_like(f)

    def quantile(self, f: Tensor, level: float) -> Tensor:
        """A quantile of the predictive mixture over draws.

        Args:
            f: draws of the outputs, (S, B, K).
            level: between 0 and 1.
        """
        return mixture_quantile(self.mean(f), self.noise_var.to(f).sqrt(), level)

    def config(self) -> dict[str, Any]:
        return {"learn_noise": self.log_noise_var.requires_grad, **super().config()}

    def extra_repr(self) -> str:
        return (
            f"noise_var={self.noise_var.tolist()}, learn_noise={self.log_noise_var.requires_grad}"
        )

    @torch.no_grad()
    def _rescale_noise_(self, factor: Tensor) -> None:
        self.log_noise_var.data = self.log_noise_var + 2 * factor.log()
