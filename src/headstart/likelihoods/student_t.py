"""Real-valued labels with heavy tails."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from scipy import special
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.likelihoods.base import check_columns
from headstart.likelihoods.quantiles import Standard, mixture_quantile
from headstart.likelihoods.standardized_labels import ConstantNoise, positive_option

MAX_DF = 1e4
"""Degrees of freedom beyond which there is no telling the distribution from a Gaussian."""


class StudentT(ConstantNoise):
    """y ~ loc + scale · f + σ · t(df), independent outputs: Gaussian noise with outliers.

    The variance of the noise is `noise_var = σ² df/(df − 2)`, so that `df → ∞` is `hs.Gaussian`.
    A Student-t is a Gaussian whose precision is Gamma distributed.
    I-BLM regresses in two rounds: first with the variance `noise_var`, then each row with the
    variance `σ² (df + r²/σ²)/(df + 1)` that its residual r suggests, so that outliers count little.

    Args:
        noise_var: the variance of the noise in units of y squared, one number or one per output.
        df: the degrees of freedom, more than 2 so that there is a variance.
        learn_noise: whether the size of the noise is learned with the weights.
        learn_df: whether the degrees of freedom are.
        loc: what is added to the outputs, one number or one per output.
        scale: what they are multiplied by first, one number or one per output.
        predictive_ratio: what `noise_var` is multiplied by in predictions, as of `hs.Gaussian`.

    Example:
        >>> lik = StudentT(noise_var=2.0, df=4.0).requires_grad_(False)  # σ = 1
        >>> lik.log_prob(torch.zeros(1, 1), torch.zeros(1, 1)).exp()
        tensor([0.3750])
    """

    name = "student_t"

    def __init__(
        self,
        noise_var: float | Sequence[float] | Tensor = 0.1,
        df: float | Sequence[float] | Tensor = 4.0,
        *,
        learn_noise: bool = True,
        learn_df: bool = True,
        loc: float | Sequence[float] | Tensor = 0.0,
        scale: float | Sequence[float] | Tensor = 1.0,
        predictive_ratio: float | Sequence[float] | Tensor = 1.0,
    ) -> None:
        super().__init__(loc, scale, predictive_ratio)
        var, freedom = (
            positive_option(noise_var, "noise_var"),
            torch.as_tensor(df, dtype=torch.float64),
        )
        if not bool(((freedom > 2) & (freedom <= MAX_DF)).all()):
            raise HeadstartError(f"df must lie above 2 and up to {MAX_DF:g}, not {df}.")
        spread = (var * (freedom - 2) / freedom).log()
        self.log_spread = nn.Parameter(spread, requires_grad=learn_noise)
        self.log_excess = nn.Parameter((freedom - 2).log(), requires_grad=learn_df)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom, () or (K,)."""
        return 2 + self.log_excess.exp().clamp_max(MAX_DF - 2)

    @property
    def noise_var(self) -> Tensor:
        """The noise variance in units of y squared, () or (K,)."""
        df = self.df
        return self.log_spread.exp() * df / (df - 2)

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Labels in the one shape and dtype that the other methods take.

        Args:
            y: real numbers, (rows, K), or (rows,) where K = 1.
            outputs: K, the outputs of the net.

        Raises:
            HeadstartError: where they do not fit.
        """
        self._check_options(outputs, df=self.log_excess, noise_var=self.log_spread)
        return check_columns(y, outputs, "StudentT")

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """log p(y | f) of each row, (..., B).

        Args:
            f: outputs of the net, (..., B, K).
            y: labels as `check` returns them.
        """
        # In double precision: the difference of two large logarithms.
        df, spread = self.df, self.log_spread
        constant = torch.lgamma((df + 1) / 2) - torch.lgamma(df / 2)
        constant = constant - 0.5 * ((math.pi * df).log() + spread)
        tail = ((y - self.mean(f)).square() / (spread.exp() * df).to(f)).log1p()
        return (constant.to(f) - ((df + 1) / 2).to(f) * tail).sum(-1)

    def curvature(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """`(df+1) r/(df σ² + r²)` and `(df+1)(df σ² − r²)/(df σ² + r²)²`, below 0 for outliers.

        Args:
            f: outputs of the net, (..., B, K).
            y: labels as `check` returns them.
        """
        df, scale, residual = self.df.to(f), self.scale.to(f), y - self.mean(f)
        wide, squares = df * self.log_spread.exp().to(f), residual.square()
        slope = scale * (df + 1) * residual / (wide + squares)
        return slope, scale.square() * (df + 1) * (wide - squares) / (wide + squares).square()

    def refined_targets(self, y: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """The same targets, with the variance of each that its residual in the first round gives.

        Args:
            y: labels as `check` returns them.
            f: outputs of the mean network after the first round, (N, K).
        """
        df, spread = self.df.detach().to(y), self.log_spread.detach().exp().to(y)
        squares = (y - self.mean(f).to(y)).square()
        v = (spread * df + squares) / (df + 1) / self.scale.square().to(y)
        return self._standard(y), v

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
        noise = torch.distributions.StudentT(self.df.detach().to(f).expand_as(f)).sample()
        return self.mean(f) + self._sigma(f) * noise

    def quantile(self, f: Tensor, level: float) -> Tensor:
        """A quantile of the predictive mixture over draws.

        Args:
            f: draws of the outputs, (S, B, K).
            level: between 0 and 1.
        """
        df = self.df.detach().cpu()
        constant = (torch.lgamma((df + 1) / 2) - torch.lgamma(df / 2)).exp()
        constant = constant / (math.pi * df).sqrt()

        def cdf(z: Tensor) -> Tensor:
            return torch.as_tensor(special.stdtr(df.numpy(), z.cpu().numpy()), device=z.device)

        def density(z: Tensor) -> Tensor:
            freedom = df.to(z.device)
            return constant.to(z) * (1 + z.square() / freedom) ** (-(freedom + 1) / 2)

        reach = abs(float(special.stdtrit(float(df.min()), level))) + 10
        standard = Standard(cdf, density, reach)
        return mixture_quantile(self.mean(f), self._sigma(f), level, standard)

    def config(self) -> dict[str, Any]:
        return {
            "learn_noise": self.log_spread.requires_grad,
            "learn_df": self.log_excess.requires_grad,
            **super().config(),
        }

    def extra_repr(self) -> str:
        return f"noise_var={self.noise_var.tolist()}, df={self.df.tolist()}"

    def _sigma(self, f: Tensor) -> Tensor:
        return (0.5 * self.log_spread.detach()).exp().to(f)

    @torch.no_grad()
    def _rescale_noise_(self, factor: Tensor) -> None:
        self.log_spread.data = self.log_spread + 2 * factor.log()
