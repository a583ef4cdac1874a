"""Real-valued labels with Gaussian noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

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


class Gaussian(Likelihood):
    """y ~ N(loc + scale · f, noise_var), independent outputs; noise_var, predictions and metrics are in the units of y.

    `noise_var` is one number or one per output, learned with the weights unless `learn_noise=False`. `standardize_(y)` sets
    `loc` and `scale` from the labels so that the net works with outputs of size 1.

    Example:
        >>> lik = Gaussian(noise_var=0.5, learn_noise=False)
        >>> lik.log_prob(torch.zeros(1, 1), torch.ones(1, 1))  # log N(1 | 0, 0.5)
        tensor([-1.5724])
    """

    name = "gaussian"
    loc: Tensor
    scale: Tensor

    def __init__(
        self,
        noise_var: float | Sequence[float] | Tensor = 0.1,
        *,
        learn_noise: bool = True,
        loc: float | Sequence[float] | Tensor = 0.0,
        scale: float | Sequence[float] | Tensor = 1.0,
    ) -> None:
        super().__init__()
        var = torch.as_tensor(
            noise_var, dtype=torch.float64
        )  # exact for float64 models; cast to f's dtype where it is used
        if not bool((torch.isfinite(var) & (var > 0)).all()):
            raise HeadstartError(f"noise_var must be positive and finite, not {noise_var}.")
        self.log_noise_var = nn.Parameter(var.log(), requires_grad=learn_noise)
        self.register_buffer("loc", torch.as_tensor(loc, dtype=var.dtype))
        self.register_buffer("scale", torch.as_tensor(scale, dtype=var.dtype))

    @property
    def noise_var(self) -> Tensor:
        """The noise variance in units of y squared, () or (K,)."""
        return self.log_noise_var.exp()

    def _cast(self, f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.noise_var.to(f), self.loc.to(f), self.scale.to(f)

    def standardize_(self, y: Tensor) -> Gaussian:
        """Take location and scale from the labels (N,) or (N, K), and the noise along, so that it keeps its share of the variance."""
        columns = torch.as_tensor(y, dtype=self.loc.dtype).reshape(len(y), -1)
        scale = columns.std(0, correction=0)
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        with torch.no_grad():
            self.log_noise_var.data = self.log_noise_var + 2 * (scale / self.scale).log()
        self.loc, self.scale = columns.mean(0), scale
        return self

    def check(self, y: Tensor, outputs: int) -> Tensor:
        for name, value in (
            ("noise_var", self.log_noise_var),
            ("loc", self.loc),
            ("scale", self.scale),
        ):
            if value.ndim and len(value) not in (1, outputs):
                raise HeadstartError(
                    f"{name} has {len(value)} values but the net has {outputs} outputs."
                )
        return check_columns(y, outputs, "Gaussian")

    @torch.no_grad()
    def fit_(self, f: Tensor, y: Tensor) -> None:
        """`noise_var = E_q (y − f)²`, where the expected likelihood is greatest, if the noise is learned."""
        if self.log_noise_var.requires_grad:
            squares = (y - self.mean(f)).square().mean((0, 1)).to(self.log_noise_var)
            var = (
                squares
                if self.log_noise_var.ndim and len(self.log_noise_var) > 1
                else squares.mean()
            )
            self.log_noise_var.copy_(var.clamp_min(torch.finfo(var.dtype).tiny).log())

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        return gaussian_log_density(y, self.mean(f), self.noise_var.to(f)).sum(-1)

    def regression_targets(self, y: Tensor, centre: bool = True) -> tuple[Tensor, Tensor]:
        """`t = (y − loc)/scale`, `v = noise_var/scale²`."""
        noise_var, loc, scale = self._cast(y)
        v = (noise_var / scale.square()).detach()
        return (y - loc) / scale, v.reshape(1, -1).expand(len(y), -1)

    def label_features(self, y: Tensor, count: int, ranks: Ranks = ONE) -> tuple[Tensor, Tensor]:
        return standard_features(y, self.noise_var.detach().to(y), count, ranks)

    def mean(self, f: Tensor) -> Tensor:
        _, loc, scale = self._cast(f)
        return loc + scale * f

    def variance(self, f: Tensor) -> Tensor:
        return self.noise_var.to(f).expand_as(f)

    def sample(self, f: Tensor) -> Tensor:
        return self.mean(f) + self.noise_var.to(f).sqrt() * torch.randn_like(f)

    def quantile(self, f: Tensor, level: float) -> Tensor:
        return mixture_quantile(self.mean(f), self.noise_var.to(f).sqrt(), level)

    def evaluate(self, f: Tensor, y: Tensor) -> dict[str, float]:
        return real_scores(self, f, self.check(y, f.shape[-1]))

    def config(self) -> dict[str, Any]:
        return {"learn_noise": self.log_noise_var.requires_grad}

    def extra_repr(self) -> str:
        return (
            f"noise_var={self.noise_var.tolist()}, learn_noise={self.log_noise_var.requires_grad}"
        )
