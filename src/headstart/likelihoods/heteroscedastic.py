"""Real-valued labels whose noise depends on the input: heads for mean and log-variance."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headstart.distributed.rows import LOCAL_ROWS, AllRows
from headstart.errors import HeadstartError
from headstart.likelihoods.base import (
    check_columns,
    gaussian_log_density,
)
from headstart.likelihoods.quantiles import mixture_quantile
from headstart.likelihoods.standardized_labels import SizedNoise, positive_option
from headstart.likelihoods.targets import fourier_features

LOG_CHI2_MEAN = -(math.log(2) + 0.5772156649015329)
"""E log χ²₁ = ψ(½) + log 2 = −γ − log 2."""
LOG_CHI2_VAR = math.pi**2 / 2
"""Var log χ²₁ = ψ'(½)."""
LIMIT = 15.0
"""|log-variance| beyond which a head is cut off: e±15 in standardized units is no noise, or all."""


class Heteroscedastic(SizedNoise):
    """y ~ N(loc + scale · m, scale² · exp(s)), noise that depends on the input.

    The outputs are f = (m, s): K means, then K log-variances (of the scaled labels).
    I-BLM regresses in two rounds.
    First `m` on the labels with the noise `noise_var` as a guess, and `s` on its log.
    Then `s` on the log squared residuals r² of that fit:
    `log r² = s + log χ²₁`, so `t = log r² + γ + log 2`, `v = π²/2`.

    Args:
        noise_var: the guess of the noise variance, of the scaled labels.
        loc: what is added to the means, one number or one per label.
        scale: what they are multiplied by first, one number or one per label.
        log_var_range: where log-variances are cut off; `bound_` sets it.
        predictive_ratio: what the noise variances are multiplied by in predictions, one number or
            one per label. It is that of one posterior: training begins with 1 again.
        variance_ratio: what they are multiplied by everywhere; `for_prediction` sets it.

    Example:
        >>> Heteroscedastic().log_prob(torch.zeros(1, 2), torch.ones(1, 1))  # log N(1 | 0, 1)
        tensor([-1.4189])
    """

    name = "heteroscedastic"
    variance_ratio: Tensor

    def __init__(
        self,
        noise_var: float = 0.1,
        *,
        loc: float | Sequence[float] | Tensor = 0.0,
        scale: float | Sequence[float] | Tensor = 1.0,
        log_var_range: Sequence[float] = (-LIMIT, LIMIT),
        predictive_ratio: float | Sequence[float] | Tensor = 1.0,
        variance_ratio: float | Sequence[float] | Tensor = 1.0,
    ) -> None:
        super().__init__(loc, scale, predictive_ratio)
        self.noise_var = float(positive_option(noise_var, "noise_var"))
        low, high = log_var_range
        if not -LIMIT <= low <= high <= LIMIT:
            raise HeadstartError(
                f"log_var_range must rise and lie within ±{LIMIT:g}, not {tuple(log_var_range)}."
            )
        self.log_var_range = (float(low), float(high))
        ratio = positive_option(variance_ratio, "variance_ratio")
        self.register_buffer("variance_ratio", ratio, persistent=False)

    def config(self) -> dict[str, Any]:
        found = {"noise_var": self.noise_var, **super().config()}
        if self.log_var_range != (-LIMIT, LIMIT):
            found["log_var_range"] = list(self.log_var_range)
        if bool((self.variance_ratio != 1).any()):
            found["variance_ratio"] = self.variance_ratio.tolist()
        return found

    def for_prediction(self) -> Heteroscedastic:
        """A copy whose variances are those of predictions."""
        frozen = copy.deepcopy(self).requires_grad_(False)
        frozen.variance_ratio = frozen.variance_ratio * frozen.predictive_ratio
        frozen.forget_predictive_noise_()
        return frozen

    def bound_(self, f: Tensor) -> None:
        """From now on no row has less noise than the quietest of these, nor more than the loudest.

        A log-variance that is linear in far-away features would promise any noise there.

        Args:
            f: draws of the outputs at the training rows, (S, N, 2K).
        """
        s = f.chunk(2, -1)[1].clamp(-LIMIT, LIMIT).mean(0)
        self.log_var_range = (float(s.min()), float(s.max()))

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Labels in the one shape and dtype that the other methods take.

        Args:
            y: real numbers, (rows, K), or (rows,) where K = 1.
            outputs: the outputs of the net, 2K.

        Raises:
            HeadstartError: where they do not fit.
        """
        if outputs % 2:
            raise HeadstartError(
                "Heteroscedastic reads a mean and a log-variance per target, "
                f"so the net needs an even number of outputs, not {outputs}."
            )
        self._check_options(outputs // 2, variance_ratio=self.variance_ratio)
        return check_columns(y, outputs // 2, "Heteroscedastic")

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """log p(y | f) of each row, (..., B).

        Args:
            f: means and log-variances, (..., B, 2K).
            y: labels as `check` returns them.
        """
        return gaussian_log_density(y, self.mean(f), self.variance(f)).sum(-1)

    def curvature(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """For m `r e⁻ˢ` and `e⁻ˢ`, for s `½ (r² e⁻ˢ − 1)` and `½ r² e⁻ˢ`, with the residual r.

        Args:
            f: means and log-variances, (..., B, 2K).
            y: labels as `check` returns them.
        """
        m, s = f.chunk(2, -1)
        low, high = self.log_var_range
        inside = ((s > low) & (s < high)).to(f)
        precision = (-s.clamp(low, high)).exp() / self.variance_ratio.to(f)
        residual = self._standard(y) - m
        squares = residual.square() * precision
        slope = torch.cat([residual * precision, 0.5 * inside * (squares - 1)], -1)
        return slope, torch.cat([precision, 0.5 * inside * squares], -1)

    def regression_targets(self, y: Tensor, center: bool = True) -> tuple[Tensor, Tensor]:
        """Labels for the means, the logarithm of `noise_var` for the log-variances.

        Args:
            y: labels as `check` returns them.
            center: makes no difference.

        Returns:
            Targets (N, 2K) and noise variances.
        """
        t = self._standard(y)
        noise = torch.tensor(self.noise_var, dtype=t.dtype, device=t.device)
        guess = noise.log().expand_as(t)
        v = torch.cat([noise.expand_as(t), torch.full_like(t, LOG_CHI2_VAR)], 1)
        return torch.cat([t, guess], 1), v

    def refined_targets(self, y: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """Targets of the second round: log squared residuals of the first for the log-variances.

        Args:
            y: labels as `check` returns them.
            f: outputs of the mean network after the first round, (N, 2K).
        """
        t, v = self.regression_targets(y)
        count = y.shape[1]
        squares = (t[:, :count] - f[:, :count]).square().clamp_min(math.exp(-LIMIT))
        return torch.cat([t[:, :count], squares.log() - LOG_CHI2_MEAN], 1), v

    def label_features(
        self, y: Tensor, count: int, rows: AllRows = LOCAL_ROWS
    ) -> tuple[Tensor, Tensor]:
        """Random Fourier features of the labels.

        Args:
            y: labels as `check` returns them.
            count: how many.
            rows: means over all rows, of which `y` may be a shard.
        """
        t = self._standard(y)
        return fourier_features(t, torch.full_like(t[0], self.noise_var), count, rows)

    def mean(self, f: Tensor) -> Tensor:
        """`loc + scale · m`.

        Args:
            f: means and log-variances, (..., B, 2K).
        """
        return self._in_units(f.chunk(2, -1)[0])

    def variance(self, f: Tensor) -> Tensor:
        """`scale² · exp(s)` times `variance_ratio`, s within `log_var_range`.

        Args:
            f: means and log-variances, (..., B, 2K).
        """
        size = self.scale.to(f).square() * self.variance_ratio.to(f)
        return size * f.chunk(2, -1)[1].clamp(*self.log_var_range).exp()

    def sample(self, f: Tensor) -> Tensor:
        """Labels, (..., B, K).

        Args:
            f: means and log-variances, (..., B, 2K).
        """
        mean = self.mean(f)
        return mean + self.variance(f).sqrt() * torch.randn_like(mean)

    def quantile(self, f: Tensor, level: float) -> Tensor:
        """A quantile of the predictive mixture over draws.

        Args:
            f: draws of the outputs, (S, B, 2K).
            level: between 0 and 1.
        """
        return mixture_quantile(self.mean(f), self.variance(f).sqrt(), level)
