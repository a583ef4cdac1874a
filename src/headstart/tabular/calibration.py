"""What validation rows tell: how wide intervals must be, and which rows are unlike training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from headstart.errors import HeadstartError
from headstart.predictive import Predictive
from headstart.tabular.target import Target

LEVELS = (0.5, 0.95)
"""The levels of the intervals that predictions come with."""
FAMILIAR_FRACTION = 0.99
"""Of the validation rows; a row with a larger epistemic part is called unlike the training data."""


@dataclass(frozen=True)
class Calibration:
    """How predictions are read after training.

    Args:
        factors: By level, the conformal factor on the standard deviation; without one the interval
            is the predictive distribution's own.
        threshold: The epistemic part above which a row is called unlike the training data.
    """

    factors: dict[float, float] = field(default_factory=dict)
    threshold: float = math.inf

    @classmethod
    def fit(
        cls, held_out: Sequence[tuple[Predictive, Tensor]], target: Target, *, conformal: bool
    ) -> Calibration:
        """Learn it from predictions of validation rows and from their labels.

        Args:
            held_out: The rows of each part, by a net that has not seen them.
            target: What is predicted.
            conformal: Whether they widen the intervals.
        """
        doubt = torch.cat([epistemic(pred, target) for pred, _ in held_out])
        threshold = float(torch.quantile(doubt, FAMILIAR_FRACTION))
        return cls(conformal_factors(held_out) if conformal else {}, threshold)

    def interval(self, pred: Predictive, level: float) -> tuple[Tensor, Tensor]:
        """The ends of the central interval, each (rows,): `mean ± factor · sd` where conformal."""
        if level in self.factors:
            half = self.factors[level] * pred.std[:, 0]
            return pred.mean[:, 0] - half, pred.mean[:, 0] + half
        low, high = pred.interval(level)
        return low[:, 0], high[:, 0]

    def coverage(self, pred: Predictive, y: Tensor, level: float) -> float:
        """The fraction of labels inside their intervals."""
        low, high = self.interval(pred, level)
        return float(((y >= low) & (y <= high)).float().mean())

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        factors = {str(level): factor for level, factor in self.factors.items()}
        return {"factors": factors, "threshold": self.threshold}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Calibration:
        """Read what `to_json` wrote."""
        factors = {float(level): float(factor) for level, factor in entry["factors"].items()}
        return cls(factors, float(entry["threshold"]))


def epistemic(pred: Predictive, target: Target) -> Tensor:
    """What the model does not know about each row: a standard deviation, or mutual information."""
    return pred.mutual_information if target.classes else pred.epistemic_std[:, 0]


def conformal_factors(held_out: Sequence[tuple[Predictive, Tensor]]) -> dict[float, float]:
    """By level, the factor on the standard deviation that covers these rows.

    Of n distances `|y − mean| / sd` in order, the factor is the one at place ⌈level · (n + 1)⌉.

    Args:
        held_out: Predictions and labels of the rows of each part.

    Example:
        >>> from headstart.likelihoods import Gaussian
        >>> pred = Predictive(torch.zeros(8, 99, 1), Gaussian(1.0))
        >>> round(conformal_factors([(pred, torch.arange(1.0, 100.0))])[0.95], 4)
        95.0
    """
    distance = torch.cat(
        [(y - pred.mean[:, 0]).abs() / pred.std[:, 0] for pred, y in held_out]
    ).detach()
    count, distance = len(distance), distance.sort().values
    places = {level: math.ceil(level * (count + 1)) for level in LEVELS}
    if places[LEVELS[-1]] > count:
        raise HeadstartError(
            "--conformal needs at least 19 validation rows for an interval of 95 %; "
            f"there are {count}."
        )
    return {level: float(distance[place - 1]) for level, place in places.items()}
