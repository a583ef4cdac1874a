"""Real-valued labels whose noise depends on the input: the net has a head for the mean and one for the log-variance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headstart.distributed.collectives import ONE, Ranks
from headstart.errors import HeadstartError
from headstart.likelihoods.base import (
    Likelihood,
    check_columns,
    gaussian_log_density,
    mixture_quantile,
    real_scores,
    standard_features,
)

LOG_CHI2_MEAN = -(math.log(2) + 0.5772156649015329)
"""E log χ²₁ = ψ(½) + log 2 = −γ − log 2."""
LOG_CHI2_VAR = math.pi**2 / 2
"""Var log χ²₁ = ψ'(½)."""
LIMIT = 15.0
"""|log-variance| beyond which a head is cut off: e±15 in standardised units is no noise, or nothing but."""


class Heteroscedastic(Likelihood):
    """y ~ N(loc + scale · m, scale² · exp(s)) with f = (m, s): K means, then K log-variances (of the scaled labels).

    I-BLM regresses in two rounds. First `m` on the labels with the noise `noise_var` as a guess, and `s` on its log. Then `s`
    on the log squared residuals r² of that fit: `log r² = s + log χ²₁`, so `t = log r² + γ + log 2`, `v = π²/2`.

    Example:
        >>> Heteroscedastic().log_prob(torch.zeros(1, 2), torch.ones(1, 1))  # log N(1 | 0, 1)
        tensor([-1.4189])
    """

    name = "heteroscedastic"
    loc: Tensor
    scale: Tensor

    def __init__(
        self,
        noise_var: float = 0.1,
        *,
        loc: float | Sequence[float] | Tensor = 0.0,
        scale: float | Sequence[float] | Tensor = 1.0,
    ) -> None:
        super().__init__()
        if not (math.isfinite(noise_var) and noise_var > 0):
            raise HeadstartError(f"noise_var must be positive and finite, not {noise_var}.")
        self.noise_var = float(noise_var)
        self.register_buffer("loc", torch.as_tensor(loc, dtype=torch.float64))
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float64))

    def standardize_(self, y: Tensor) -> Heteroscedastic:
        """Take location and scale from the labels, (N,) or (N, K); `noise_var` is a share of their variance then."""
        columns = torch.as_tensor(y, dtype=torch.float64).reshape(len(y), -1)
        spread = columns.std(0, correction=0)
        self.loc, self.scale = (
            columns.mean(0),
            torch.where(spread > 0, spread, torch.ones_like(spread)),
        )
        return self

    def config(self) -> dict[str, Any]:
        return {"noise_var": self.noise_var}

    def check(self, y: Tensor, outputs: int) -> Tensor:
        if outputs % 2:
            raise HeadstartError(
                f"Heteroscedastic reads a mean and a log-variance per target, so the net needs an even number of outputs, not {outputs}."
            )
        return check_columns(y, outputs // 2, "Heteroscedastic")

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        return gaussian_log_density(y, self.mean(f), self.variance(f)).sum(-1)

    def regression_targets(self, y: Tensor, centre: bool = True) -> tuple[Tensor, Tensor]:
        t = self._standard(y)
        noise = torch.tensor(self.noise_var, dtype=t.dtype, device=t.device)
        guess = noise.log().expand_as(t)
        return torch.cat([t, guess], 1), torch.cat(
            [noise.expand_as(t), torch.full_like(t, LOG_CHI2_VAR)], 1
        )

    def refined_targets(self, y: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        t, v = self.regression_targets(y)
        count = y.shape[1]
        squares = (t[:, :count] - f[:, :count]).square().clamp_min(math.exp(-LIMIT))
        return torch.cat([t[:, :count], squares.log() - LOG_CHI2_MEAN], 1), v

    def label_features(self, y: Tensor, count: int, ranks: Ranks = ONE) -> tuple[Tensor, Tensor]:
        t = self._standard(y)
        return standard_features(t, torch.full_like(t[0], self.noise_var), count, ranks)

    def mean(self, f: Tensor) -> Tensor:
        return self.loc.to(f) + self.scale.to(f) * f.chunk(2, -1)[0]

    def variance(self, f: Tensor) -> Tensor:
        return self.scale.to(f).square() * f.chunk(2, -1)[1].clamp(-LIMIT, LIMIT).exp()

    def sample(self, f: Tensor) -> Tensor:
        mean = self.mean(f)
        return mean + self.variance(f).sqrt() * torch.randn_like(mean)

    def quantile(self, f: Tensor, level: float) -> Tensor:
        return mixture_quantile(self.mean(f), self.variance(f).sqrt(), level)

    def evaluate(self, f: Tensor, y: Tensor) -> dict[str, float]:
        return real_scores(self, f, self.check(y, f.shape[-1]))

    def _standard(self, y: Tensor) -> Tensor:
        return (y - self.loc.to(y)) / self.scale.to(y)
