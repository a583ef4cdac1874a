"""Real-valued labels in the user's units, and nets whose outputs are of size 1."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from headstart.errors import HeadstartError
from headstart.likelihoods.kinds import NumberLabels
from headstart.network.inputs import to_tensor

S = TypeVar("S", bound="StandardizedLabels")
C = TypeVar("C", bound="ConstantNoise")


def positive_option(value: float | Sequence[float] | Tensor, name: str) -> Tensor:
    """An option that must be positive and finite, in float64.

    Args:
        value: one number or one per output.
        name: what it is called.

    Raises:
        HeadstartError: it is not.
    """
    # Exact for float64 models; cast to the outputs' dtype where it is used.
    given = torch.as_tensor(value, dtype=torch.float64)
    if not bool((given.isfinite() & (given > 0)).all()):
        raise HeadstartError(f"{name} must be positive and finite, not {value}.")
    return given


class StandardizedLabels(NumberLabels, ABC):
    """Labels `loc + scale · standardized`: outputs of the net speak of standardized labels.

    Args:
        loc: what is added to standardized labels, one number or one per label.
        scale: what they are multiplied by first, one number or one per label.
    """

    loc: Tensor
    scale: Tensor

    def __init__(
        self,
        loc: float | Sequence[float] | Tensor = 0.0,
        scale: float | Sequence[float] | Tensor = 1.0,
    ) -> None:
        super().__init__()
        # Exact for float64 models; cast to the outputs' dtype where they are used.
        self.register_buffer("loc", torch.as_tensor(loc, dtype=torch.float64))
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float64))

    def standardize_(self: S, y: Any) -> S:
        """Take location and scale from the labels.

        The noise keeps its fraction of their variance.

        Args:
            y: the labels, (N,) or (N, K): a tensor, an array, a list or a data frame.

        Returns:
            This likelihood.
        """
        columns = to_tensor(y, "y").to(torch.float64).reshape(len(y), -1)
        spread = columns.std(0, correction=0)
        scale = torch.where(spread > 0, spread, torch.ones_like(spread))
        self._rescale_noise_(scale / self.scale)
        self.loc, self.scale = columns.mean(0), scale
        return self

    def _rescale_noise_(self, factor: Tensor) -> None:
        """Multiply a noise in the units of y by this factor; a noise in others needs no change."""

    def _check_options(self, outputs: int, **options: Tensor) -> None:
        """Refuse options with neither one value nor one per output."""
        for name, value in (*options.items(), ("loc", self.loc), ("scale", self.scale)):
            if value.ndim and len(value) not in (1, outputs):
                raise HeadstartError(
                    f"{name} has {len(value)} values but the net has {outputs} outputs."
                )

    def _standard(self, y: Tensor) -> Tensor:
        return (y - self.loc.to(y)) / self.scale.to(y)

    def _in_units(self, standardized: Tensor) -> Tensor:
        return self.loc.to(standardized) + self.scale.to(standardized) * standardized


class SizedNoise(StandardizedLabels, ABC):
    """Standardized labels with a noise that predictions may have in another size than the bound.

    Args:
        loc: what is added to standardized labels, one number or one per label.
        scale: what they are multiplied by, one number or one per label.
        predictive_ratio: what the noise variance is multiplied by in predictions, one number or
            one per label.
    """

    predictive_ratio: Tensor

    def __init__(
        self,
        loc: float | Sequence[float] | Tensor = 0.0,
        scale: float | Sequence[float] | Tensor = 1.0,
        predictive_ratio: float | Sequence[float] | Tensor = 1.0,
    ) -> None:
        super().__init__(loc, scale)
        ratio = positive_option(predictive_ratio, "predictive_ratio")
        # Part of `config`, not of the state: files from before it was there can be read.
        self.register_buffer("predictive_ratio", ratio, persistent=False)

    def config(self) -> dict[str, Any]:
        ratio = self.predictive_ratio
        return {} if bool((ratio == 1).all()) else {"predictive_ratio": ratio.tolist()}

    def forget_predictive_noise_(self) -> None:
        """`predictive_ratio = 1`."""
        self.predictive_ratio = torch.ones_like(self.predictive_ratio)

    def scale_predictive_noise_(self, factor: float | Tensor) -> None:
        """`predictive_ratio` times the factor's square.

        Args:
            factor: a positive number, or one per label.
        """
        squared = positive_option(factor, "factor").to(self.predictive_ratio) ** 2
        self.predictive_ratio = self.predictive_ratio * squared

    @property
    def has_predictive_noise(self) -> bool:
        return bool((self.predictive_ratio != 1).any())

    def _check_options(self, outputs: int, **options: Tensor) -> None:
        super()._check_options(outputs, **options, predictive_ratio=self.predictive_ratio)


class ConstantNoise(SizedNoise, ABC):
    """Standardized labels with a noise of the same variance in every row."""

    def for_prediction(self: C) -> C:
        """A copy whose `noise_var` is that of predictions."""
        frozen = copy.deepcopy(self).requires_grad_(False)
        frozen._rescale_noise_(frozen.predictive_ratio.sqrt())
        frozen.forget_predictive_noise_()
        return frozen

    @property
    @abstractmethod
    def noise_var(self) -> Tensor:
        """The noise variance in units of y squared, () or (K,)."""

    def regression_targets(self, y: Tensor, center: bool = True) -> tuple[Tensor, Tensor]:
        """`t = (y − loc)/scale`, `v = noise_var/scale²`.

        Args:
            y: labels as `check` returns them.
            center: makes no difference.

        Returns:
            Targets (N, K) and noise variances.
        """
        v = (self.noise_var.detach() / self.scale.square()).to(y)
        return self._standard(y), v.reshape(1, -1).expand(len(y), -1)

    def variance(self, f: Tensor) -> Tensor:
        """`noise_var`.

        Args:
            f: outputs of the net, (..., B, K).
        """
        return self.noise_var.to(f).expand_as(f)
