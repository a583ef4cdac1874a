"""What validation rows tell: how wide intervals must be, and which rows are unlike training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

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
        factors: By level, a factor on the standard deviation that covers held-out rows, in runs
            of versions before cross-conformal intervals; without one the interval is the
            predictive distribution's own.
        threshold: The epistemic part above which a row is called unlike the training data.
    """

    factors: dict[float, float] = field(default_factory=dict)
    threshold: float = math.inf

    @classmethod
    def fit(cls, held_out: Sequence[Predictive], target: Target) -> Calibration:
        """Learn it from predictions of validation rows.

        Args:
            held_out: The rows of each part, by a net that has not seen them.
            target: What is predicted.
        """
        doubt = torch.cat([epistemic(pred, target) for pred in held_out])
        return cls({}, float(torch.quantile(doubt, FAMILIAR_FRACTION)))

    def interval(self, pred: Predictive, level: float) -> tuple[Tensor, Tensor]:
        """The ends of the interval, each (rows,): `mean ± factor · sd` where conformal."""
        if level in self.factors:
            half = self.factors[level] * pred.std[:, 0]
            return pred.mean[:, 0] - half, pred.mean[:, 0] + half
        low, high = pred.interval(level)
        return low[:, 0], high[:, 0]

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
