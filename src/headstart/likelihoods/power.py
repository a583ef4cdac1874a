"""Positive, skewed labels: a power of them has Gaussian noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headstart.distributed.rows import LOCAL_ROWS, AllRows
from headstart.errors import HeadstartError
from headstart.likelihoods.base import Likelihood, refuse_unless
from headstart.likelihoods.gaussian import Gaussian
from headstart.likelihoods.heteroscedastic import Heteroscedastic
from headstart.likelihoods.kinds import NumberLabels
from headstart.linalg.precision import in_double
from headstart.network.inputs import to_tensor

BASES: dict[str, type[Gaussian | Heteroscedastic]] = {
    "gaussian": Gaussian,
    "heteroscedastic": Heteroscedastic,
}
NODES, NODE_WEIGHTS = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(32))
"""Gauss-Hermite quadrature: sums over 32 nodes are expectations under N(0, 1)."""


class Power(NumberLabels):
    """t(y) ~ the base likelihood, `t(y) = (y^λ − 1)/λ`, or `log y` where λ = 0 (Box and Cox 1964).

    The density of y is that of t(y) times the Jacobian `t'(y) = y^(λ−1)`. Quantiles are those of t,
    mapped back; moments of y given f are sums over Gauss-Hermite nodes. No quantile is below 0.

    Args:
        power: λ, from 0 to 1.
        base: `gaussian`, or `heteroscedastic` for noise that depends on the input.
        options: The options of the base, by name.

    Example:
        At λ = 0 it is lognormal: its median is `exp f`.

        >>> lik = Power(0.0, options={"noise_var": 1.0})
        >>> lik.quantile(torch.ones(1, 2, 1), 0.5).detach().flatten()
        tensor([2.7183, 2.7183])
    """

    name = "power"
    lowest = 0.0

    def __init__(
        self, power: float, base: str = "gaussian", options: dict[str, Any] | None = None
    ) -> None:
        super().__init__()
        if not 0 <= power <= 1:
            raise HeadstartError(f"The power lies between 0 and 1, not at {power}.")
        if base not in BASES:
            raise HeadstartError(f"The base of Power is one of {', '.join(BASES)}, not {base!r}.")
        self.power = float(power)
        self.base = BASES[base](**(options or {}))

    def config(self) -> dict[str, Any]:
        return {"power": self.power, "base": self.base.name, "options": self.base.config()}

    def for_prediction(self) -> Likelihood:
        found = super().for_prediction()
        # The base may predict with a noise of its own.
        found.base = self.base.for_prediction()
        return found

    def forget_predictive_noise_(self) -> None:
        """Predict with the noise of the bound."""
        self.base.forget_predictive_noise_()

    def scale_predictive_noise_(self, factor: float | Tensor) -> None:
        """Multiply the standard deviation of the noise of t(y) in predictions.

        Args:
            factor: a positive number.
        """
        self.base.scale_predictive_noise_(factor)

    @property
    def has_predictive_noise(self) -> bool:
        return self.base.has_predictive_noise

    def standardize_(self, y: Any) -> Power:
        """Take location and scale from the transformed labels; the noise keeps its fraction.

        Args:
            y: the labels, (N,) or (N, K): a tensor, an array, a list or a data frame.

        Returns:
            This likelihood.
        """
        self.base.standardize_(self.transform(to_tensor(y, "y").to(torch.float64)))
        return self

    def transform(self, y: Tensor) -> Tensor:
        """t(y), element by element.

        Args:
            y: positive labels.
        """
        return y.log() if self.power == 0 else (y**self.power - 1) / self.power

    def inverse(self, t: Tensor) -> Tensor:
        """The y with t(y) = t; 0 where there is none.

        Args:
            t: transformed labels.
        """
        if self.power == 0:
            return t.exp()
        return (1 + self.power * t).clamp_min(0) ** (1 / self.power)

    def log_slope(self, y: Tensor) -> Tensor:
        """`log t'(y)`, element by element.

        Args:
            y: positive labels.
        """
        return (self.power - 1) * y.log()

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Labels in the one shape and dtype that the other methods take.

        Args:
            y: positive numbers, (rows, K), or (rows,) where K = 1.
            outputs: the outputs of the net.

        Raises:
            HeadstartError: where they do not fit.
        """
        y = self.base.check(y, outputs)
        refuse_unless(y > 0, lambda: "Power wants positive numbers as targets, and found others.")
        return y

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """log p(y | f) of each row, (..., B).

        Args:
            f: outputs of the net.
            y: labels as `check` returns them.
        """
        return self.base.log_prob(f, self.transform(y)) + self.log_slope(y).sum(-1)

    def regression_targets(self, y: Tensor, center: bool = True) -> tuple[Tensor, Tensor]:
        """Those of the base for t(y).

        Args:
            y: labels as `check` returns them.
            center: as of the base.
        """
        return self.base.regression_targets(self.transform(y), center)

    def refined_targets(self, y: Tensor, f: Tensor) -> tuple[Tensor, Tensor] | None:
        """Those of the base for t(y).

        Args:
            y: labels as `check` returns them.
            f: outputs of the mean network after the first round.
        """
        return self.base.refined_targets(self.transform(y), f)

    def label_features(
        self, y: Tensor, count: int, rows: AllRows = LOCAL_ROWS
    ) -> tuple[Tensor, Tensor]:
        """Those of the base for t(y).

        Args:
            y: labels as `check` returns them.
            count: how many.
            rows: means over all rows, of which `y` may be a shard.
        """
        return self.base.label_features(self.transform(y), count, rows)

    def fit_(self, f: Tensor, y: Tensor) -> None:
        """Set what the base learns to its best.

        Args:
            f: draws of the outputs, (S, N, K).
            y: labels as `check` returns them.
        """
        self.base.fit_(f, self.transform(y))

    def bound_(self, f: Tensor) -> None:
        """Bound the noise of the base.

        Args:
            f: draws of the outputs at the training rows.
        """
        self.base.bound_(f)

    def mean(self, f: Tensor) -> Tensor:
        """E[y | f], by quadrature.

        Args:
            f: outputs of the net.
        """
        return self._expect(f, lambda y: y)

    def variance(self, f: Tensor) -> Tensor:
        """Var[y | f], by quadrature.

        Args:
            f: outputs of the net.
        """
        mean = self.mean(f)
        return self._expect(f, lambda y: (y - mean).square())

    def _expect(self, f: Tensor, of: Any) -> Tensor:
        """E[of(y) | f] over the nodes."""
        center, sd = self.base.mean(f), self.base.variance(f).sqrt()
        total = torch.zeros_like(center)
        for node, weight in zip(NODES.tolist(), NODE_WEIGHTS.tolist(), strict=True):
            total += weight / math.sqrt(2 * math.pi) * of(self.inverse(center + node * sd))
        return total

    def sample(self, f: Tensor) -> Tensor:
        """Labels, (..., B, K).

        Args:
            f: outputs of the net.
        """
        drawn = self.inverse(self.base.sample(f))
        # A label has a density: 0, to which the inverse is cut off, has none.
        return drawn.clamp_min(torch.finfo(drawn.dtype).tiny)

    def quantile(self, f: Tensor, level: float) -> Tensor:
        """A quantile of the predictive mixture over draws: that of t, mapped back.

        Args:
            f: draws of the outputs, (S, B, K).
            level: between 0 and 1.
        """
        return self.inverse(self.base.quantile(f, level))


def likeliest_power(y: Tensor) -> float:
    """The λ of `Power` that makes labels most like a Gaussian, of 0, 0.05, … 1.

    It maximizes the profile likelihood `−n/2 log Var t(y) + (λ − 1) Σ log y`.

    Args:
        y: positive labels, (N,).

    Example:
        >>> skewed = torch.linspace(-2, 2, 99).exp()
        >>> likeliest_power(skewed), likeliest_power(skewed.log() + 3)
        (0.0, 0.75)
    """
    y = in_double(y)

    def profile(power: float) -> float:
        lik = Power(power)
        spread = lik.transform(y).var(correction=0)
        return float(-0.5 * len(y) * spread.log() + lik.log_slope(y).sum())

    return max((round(0.05 * k, 2) for k in range(21)), key=profile)
