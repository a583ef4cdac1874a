"""Which rows are unlike the training data, and in which columns, at a stated rate of false alarms.

A row's score is the surprise of its most surprising part: the value of a column, the number of its
missing cells, or its leverage in a linear read-out of the net's last hidden features. Training rows
are scored by the others, so that a new row of the same kind passes the threshold at the rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor, nn

from headstart.batching import place_inputs
from headstart.initializers.walk import execution_order, layer_inputs
from headstart.network.members import separate
from headstart.tabular.columns import Column, Matrix
from headstart.tabular.profile import PROFILES, ColumnProfile, ParetoTail, profile_from_json

FALSE_ALARM_RATE = 0.01
"""The rate at which ordinary rows are called unlike the training data."""
MAX_PROFILE_ROWS = 20_000
"""Training rows beyond which profiles and threshold would be no more certain."""
FOLDS = 10
"""Parts of the training rows, each of which is scored by the others."""
RIDGE = 1e-3
"""Of the read-out, in mean variances of its features."""


@dataclass(frozen=True)
class FeatureLeverage:
    """The leverage `1/n + (φ − μ)ᵀ A⁻¹ (φ − μ)` of rows with features φ in a ridge regression.

    Args:
        center: The mean features μ of n training rows, (H,).
        whitening: W with `A⁻¹ = WᵀW`, (H, H).
        rows: n.
    """

    center: Matrix
    whitening: Matrix
    rows: int

    @classmethod
    def fit(cls, features: Matrix) -> FeatureLeverage:
        """From the features of training rows, (n, H)."""
        center = features.mean(0)
        gram = (features - center).T @ (features - center)
        size = gram.shape[0]
        ridge = RIDGE * max(np.trace(gram) / size, 1e-12)
        factor = np.linalg.cholesky(gram + ridge * np.eye(size))
        return cls(center, np.linalg.inv(factor), len(features))

    def log_leverage(self, features: Matrix) -> Matrix:
        """Of new rows, (N,)."""
        white = (features - self.center) @ self.whitening.T
        return np.log(1 / self.rows + np.square(white).sum(1))

    def left_out(self, features: Matrix) -> Matrix:
        """Of the training rows, each by the regression without it: `h / (1 − h)`."""
        h = np.minimum(np.exp(self.log_leverage(features)), 1 - 1e-12)
        return np.log(h / (1 - h))


def hidden_features(model: nn.Module, x: Tensor) -> Matrix:
    """What reaches the read-out of the net with mean weights (the first member's), (N, H)."""
    net = separate(model)[0]
    x = place_inputs(x, net)
    layer = list(execution_order(net, x[:2]).values())[-1]
    (found,) = layer_inputs(net, layer, x, "mean")
    return found.flatten(1).double().cpu().numpy()


@dataclass(frozen=True)
class Strangeness:
    """How unlike the training data some rows are.

    Args:
        flags: Whether each row is called unlike the training data, (N,).
        reasons: For each row that is, in which columns it differs, in words; else nothing.
        scores: The surprise of each row's most surprising part, (N,).
        by_column: How many rows are unlike the training data in each column.
    """

    flags: Matrix
    reasons: list[str]
    scores: Matrix
    by_column: dict[str, int]


@dataclass(frozen=True)
class Familiarity:
    """What rows of the training data look like.

    Args:
        profiles: What each column holds.
        holes: The tail of the number of missing cells in a row.
        leverage: The read-out of hidden features.
        unusual: The tail of its log-leverage.
        threshold: The surprise beyond which a row is called unlike the training data.
        rate: How often an ordinary row is: at most 1 %, or more where training rows are too few.
    """

    profiles: tuple[ColumnProfile, ...]
    holes: ParetoTail
    leverage: FeatureLeverage
    unusual: ParetoTail
    threshold: float
    rate: float

    @classmethod
    def fit(
        cls,
        columns: Sequence[Column],
        frame: pd.DataFrame,
        features: Matrix,
        *,
        rate: float = FALSE_ALARM_RATE,
    ) -> Familiarity:
        """Learn it from training rows, in any order but their own, and from their hidden features.

        Each of ten parts of the rows is scored by profiles of the others. Of n scores in order,
        the threshold is the one at place k = ⌈(n + 1)(1 − rate)⌉, or the largest where rows are
        too few: a new row lies beyond it with a probability of (n + 1 − k) / (n + 1).
        """
        leverage = FeatureLeverage.fit(features)
        parts = _Parts.read(columns, frame, leverage.left_out(features))
        count = len(frame)
        scores = np.zeros(count)
        for fold in np.array_split(np.arange(count), min(FOLDS, count)):
            others = np.setdiff1d(np.arange(count), fold)
            scores[fold] = parts.take(others).law().surprise(parts.take(fold)).max(1)
        place = min(math.ceil((count + 1) * (1 - rate)), count)
        law = parts.law()
        return cls(
            law.profiles,
            law.holes,
            leverage,
            law.unusual,
            float(np.sort(scores)[place - 1]),
            (count + 1 - place) / (count + 1),
        )

    def compare(
        self, columns: Sequence[Column], frame: pd.DataFrame, features: Matrix
    ) -> Strangeness:
        """How unlike the training data these rows are, and where."""
        parts = _Parts.read(columns, frame, self.leverage.log_leverage(features))
        surprise = _Law(self.profiles, self.holes, self.unusual).surprise(parts)
        beyond = surprise > self.threshold
        flags = np.asarray(beyond.any(1))
        reasons = [""] * len(frame)
        for row in np.flatnonzero(flags):
            reasons[row] = self._reason(parts, beyond[row], int(row))
        counts = {
            profile.name: int(beyond[:, place].sum())
            for place, profile in enumerate(self.profiles)
            if beyond[:, place].any()
        }
        return Strangeness(flags, reasons, surprise.max(1), counts)

    def _reason(self, parts: _Parts, beyond: Matrix, row: int) -> str:
        said = [
            profile.difference(values[row])
            for profile, values, unusual in zip(self.profiles, parts.values, beyond, strict=False)
            if unusual
        ]
        if not said and beyond[-2]:
            said = [f"{parts.holes[row]:.0f} cells are missing"]
        return "; ".join(said) or "an unusual combination of values"

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return {
            "profiles": [profile.to_json() for profile in self.profiles],
            "holes": vars(self.holes),
            "unusual": vars(self.unusual),
            "center": self.leverage.center.tolist(),
            # The rows of a triangle.
            "whitening": [
                row[: place + 1].tolist() for place, row in enumerate(self.leverage.whitening)
            ],
            "rows": self.leverage.rows,
            "threshold": self.threshold,
            "rate": self.rate,
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Familiarity:
        """Read what `to_json` wrote."""
        center = np.array(entry["center"], float)
        whitening = np.zeros((len(center), len(center)))
        for place, row in enumerate(entry["whitening"]):
            whitening[place, : place + 1] = row
        return cls(
            tuple(profile_from_json(profile) for profile in entry["profiles"]),
            ParetoTail(**entry["holes"]),
            FeatureLeverage(center, whitening, int(entry["rows"])),
            ParetoTail(**entry["unusual"]),
            float(entry["threshold"]),
            float(entry["rate"]),
        )


@dataclass(frozen=True)
class _Parts:
    """What is compared of some rows: values by column, the number of holes, the log-leverage."""

    columns: Sequence[Column]
    values: list[Matrix]
    holes: Matrix
    leverage: Matrix

    @classmethod
    def read(cls, columns: Sequence[Column], frame: pd.DataFrame, leverage: Matrix) -> _Parts:
        values = [column.read(frame[column.name]) for column in columns]
        holes = sum(frame[column.name].isna().to_numpy(float) for column in columns)
        return cls(columns, values, np.asarray(holes, float), leverage)

    def take(self, rows: Matrix) -> _Parts:
        values = [column[rows] for column in self.values]
        return _Parts(self.columns, values, self.holes[rows], self.leverage[rows])

    def law(self) -> _Law:
        profiles = tuple(
            PROFILES[column.kind].learn(column.name, values)
            for column, values in zip(self.columns, self.values, strict=True)
        )
        return _Law(profiles, ParetoTail.fit(self.holes), ParetoTail.fit(self.leverage))


@dataclass(frozen=True)
class _Law:
    """How probable the parts of a row are, by some training rows."""

    profiles: tuple[ColumnProfile, ...]
    holes: ParetoTail
    unusual: ParetoTail

    def surprise(self, parts: _Parts) -> Matrix:
        """`−log P` of each part of each row, (N, columns + 2)."""
        by_column = (
            profile.surprise(values)
            for profile, values in zip(self.profiles, parts.values, strict=True)
        )
        whole = (self.holes.surprise(parts.holes), self.unusual.surprise(parts.leverage))
        return np.column_stack([*by_column, *whole])
