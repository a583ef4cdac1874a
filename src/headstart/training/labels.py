"""What the labels of a table are: which likelihoods they may have, and how a net learns them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from headstart.errors import HeadstartError, unknown
from headstart.likelihoods import (
    Categorical,
    Gaussian,
    Heteroscedastic,
    Likelihood,
    NegativeBinomial,
    Poisson,
    Power,
    StudentT,
)
from headstart.likelihoods.power import likeliest_power

NOISE_FRACTION = 0.1
"""The fraction of a target's variance that is taken for noise at first."""


@dataclass(frozen=True)
class LabelScale:
    """Labels as a net and its trees learn them.

    Args:
        y: The labels, in single precision or as classes.
        loss: What the trees minimize.
        log_slope: For each row the logarithm of how fast `y` moves with the user's label: what
            turns a density of the one into a density of the other.
    """

    y: Tensor
    loss: str
    log_slope: Tensor


class Labels(ABC):
    """All labels of a table, and what a net may be told of them.

    Args:
        y: The label of each row, in the user's units.
    """

    def __init__(self, y: Tensor) -> None:
        self.y = y

    @property
    @abstractmethod
    def noises(self) -> tuple[str, ...]:
        """The noise models to choose from, the plainest first."""

    @property
    def common_noises(self) -> tuple[str, ...]:
        """Those that are worth a try without much effort."""
        return self.noises

    @property
    def noise_has_size(self) -> bool:
        """Whether the noise has a size of its own, as that of classes and counts has not."""
        return False

    def scale_name(self, noise: str) -> str:
        """What the scale of a noise model is called: models on one scale can share trees.

        Args:
            noise: One of `noises`.
        """
        return "labels"

    @abstractmethod
    def scale(self, noise: str, rows: Tensor | None = None) -> LabelScale:
        """The labels on the scale on which this noise model is learned.

        Args:
            noise: One of `noises`.
            rows: Indices of the training rows, which alone tell that scale; None: all rows.
        """

    @abstractmethod
    def likelihood(self, noise: str) -> tuple[Likelihood, int]:
        """A new likelihood of the labels on that scale, and the number of outputs it reads.

        Args:
            noise: One of `noises`.
        """

    def in_units(
        self, noise: str, likelihood: Likelihood, rows: Tensor | None = None
    ) -> Likelihood:
        """The likelihood of the labels as the user gave them.

        Args:
            noise: One of `noises`.
            likelihood: The likelihood on the scale of the net, after training.
            rows: As in `scale`.
        """
        return likelihood

    def admits(self, y: Tensor) -> bool:
        """Whether other labels are of the same kind.

        Args:
            y: The other labels.
        """
        return True

    def check_noise(self, noise: str) -> None:
        """Refuse a noise model that these labels cannot have.

        Args:
            noise: Its name.
        """
        if noise not in self.noises:
            raise unknown("noise", noise, self.noises)


@final
class ClassLabels(Labels):
    """Classes 0 to K − 1.

    Args:
        y: The class of each row.
        count: K.
    """

    def __init__(self, y: Tensor, count: int) -> None:
        super().__init__(y)
        self.count = count

    @property
    def noises(self) -> tuple[str, ...]:
        return ("categorical",)

    def scale(self, noise: str, rows: Tensor | None = None) -> LabelScale:
        return LabelScale(self.y, "log_loss", torch.zeros(len(self.y)))

    def likelihood(self, noise: str) -> tuple[Likelihood, int]:
        return Categorical(self.count), self.count


@final
class CountLabels(Labels):
    """Counts 0, 1, 2, …: their intervals never reach below 0.

    Args:
        y: The count of each row.
    """

    NOISES = ("negative-binomial", "poisson")

    def __init__(self, y: Tensor) -> None:
        if y.ndim > 1:
            raise HeadstartError(f"Counts are learned one target at a time; y has {y.shape[1]}.")
        super().__init__(y)

    @property
    def noises(self) -> tuple[str, ...]:
        return self.NOISES

    def scale(self, noise: str, rows: Tensor | None = None) -> LabelScale:
        return LabelScale(self.y.float(), "poisson", torch.zeros(len(self.y)))

    def admits(self, y: Tensor) -> bool:
        return bool(((y >= 0) & (y == y.round())).all())

    def likelihood(self, noise: str) -> tuple[Likelihood, int]:
        return (NegativeBinomial() if noise == "negative-binomial" else Poisson()), 1


QUANTITY_NOISES: dict[str, tuple[Any, int]] = {
    "constant": (Gaussian, 1),
    "varying": (Heteroscedastic, 2),
    "student-t": (StudentT, 1),
}
"""The likelihood of each noise model, and how many outputs it reads of each target."""


POWER_NOISES = {"power": "constant", "power-varying": "varying"}
"""Noise models of a power of the labels, and what they are on that scale."""
MIN_SKEWNESS = 1.0
"""The skewness of positive labels from which on powers of them are tried."""


@final
class QuantityLabels(Labels):
    """Real numbers, one column or several; a net learns them with mean 0 and variance 1.

    Of positive labels that are skewed a power may be learned in their place, with the Jacobian in
    every likelihood (`hs.Power`).

    Args:
        y: The numbers, (rows,) or (rows, targets), in double precision: in single precision
            1e8 ± 1 would lose its digits.
    """

    def __init__(self, y: Tensor) -> None:
        super().__init__(y)
        self.is_positive = self.targets == 1 and bool((y > 0).all())

    @property
    def noises(self) -> tuple[str, ...]:
        return (*QUANTITY_NOISES, *(POWER_NOISES if self.is_positive else ()))

    @property
    def common_noises(self) -> tuple[str, ...]:
        if self.targets > 1:
            return ("constant",)
        return ("constant", "varying", *(POWER_NOISES if self._is_skewed() else ()))

    @property
    def noise_has_size(self) -> bool:
        return True

    def _is_skewed(self) -> bool:
        standard = _standardized(self.y, self.y)
        return self.is_positive and float(standard.pow(3).mean()) >= MIN_SKEWNESS

    def _known(self, rows: Tensor | None) -> Tensor:
        return self.y if rows is None else self.y[rows]

    @property
    def targets(self) -> int:
        """How many numbers each row has."""
        return 1 if self.y.ndim == 1 else self.y.shape[1]

    def scale_name(self, noise: str) -> str:
        return "power" if noise in POWER_NOISES else "labels"

    def scale(self, noise: str, rows: Tensor | None = None) -> LabelScale:
        y, known = self.y, self._known(rows)
        slope = torch.zeros(len(y), dtype=torch.float64)
        if noise in POWER_NOISES:
            power = Power(likeliest_power(known.flatten()))
            slope = power.log_slope(y).reshape(len(y))
            y, known = power.transform(y), power.transform(known)
        slope = slope - float(Gaussian().standardize_(known).scale.log().sum())
        return LabelScale(_standardized(y, known).float(), "squared_error", slope)

    def likelihood(self, noise: str) -> tuple[Likelihood, int]:
        noise = POWER_NOISES.get(noise, noise)
        make, outputs = QUANTITY_NOISES[noise]
        first = NOISE_FRACTION if noise == "varying" else [NOISE_FRACTION] * self.targets
        return make(noise_var=first), outputs * self.targets

    def in_units(
        self, noise: str, likelihood: Likelihood, rows: Tensor | None = None
    ) -> Likelihood:
        known = self._known(rows)
        if noise in POWER_NOISES:
            whole = Power(likeliest_power(known.flatten()), likelihood.name)
            whole.base = likelihood  # type: ignore[assignment]
            return whole.standardize_(known)
        # Only now: single precision would blur y = 1e7 ± 1.
        likelihood.standardize_(known)  # type: ignore[operator]
        return likelihood


def _standardized(y: Tensor, known: Tensor) -> Tensor:
    """Labels less the mean of known ones, over their standard deviation."""
    return Gaussian().standardize_(known).regression_targets(y)[0]


MIN_COUNT_VALUES = 10
"""Distinct values that numbers have at least where they are taken for counts."""
LOW_COUNT = 10
"""Counts reach down to such numbers: a twentieth of the rows is no larger."""


def number_labels(y: Tensor, noise: str | None = None) -> Labels:
    """Numbers as counts, where the noise model or the numbers themselves say so, or as a quantity.

    Whole numbers from 0 on are taken for counts if a twentieth of them is at most 10: ages and
    prices are not, visits are.

    Args:
        y: The numbers, (rows,) or (rows, targets), in double precision.
        noise: The noise model, if it is settled.

    Example:
        >>> type(number_labels(torch.arange(40.0).double())).__name__
        'CountLabels'
        >>> type(number_labels(torch.arange(40.0).double() + 0.5)).__name__
        'QuantityLabels'
    """
    counted = look_like_counts(y) if noise is None else noise in CountLabels.NOISES
    return CountLabels(y) if counted else QuantityLabels(y)


def look_like_counts(y: Tensor) -> bool:
    """Whether numbers are counts by their looks.

    Args:
        y: The numbers.
    """
    if y.ndim > 1 or not bool(((y >= 0) & (y == y.round())).all()):
        return False
    low = y.sort().values[len(y) // 20]
    return float(low) <= LOW_COUNT and len(y.unique()) >= MIN_COUNT_VALUES
