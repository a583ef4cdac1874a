"""Which rows are unlike the training data, and in which columns, at a stated rate of false alarms.

A row may be unlike in three parts: the surprise of its most surprising column (a value, a level, a
missing cell, or too many of those), and its leverage in two linear read-outs, of its numbers as
they are and of the net's last hidden features. Training rows are scored by the others, so that a
new row of the same kind passes the thresholds at the rate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor, nn

from headstart.initializers.walk import execution_order, layer_inputs
from headstart.network.members import separate
from headstart.network.placement import place_inputs
from headstart.tabular.columns import Column, Matrix
from headstart.tabular.profile import PROFILES, ColumnProfile, ParetoTail, profile_from_json

FALSE_ALARM_RATE = 0.01
"""The rate at which ordinary rows are called unlike the training data."""
MAX_PROFILE_ROWS = 20_000
"""Training rows beyond which profiles and threshold would be no more certain."""
PROFILE_FOLDS = 10
"""Parts of the training rows, each of which is scored by the others."""
COLUMNS = "columns"
"""The name of the part that looks at columns one by one; the others are read-outs."""
MAX_READ_OUT = 100
"""Numbers of a row that a read-out takes at most."""
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

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        rows = enumerate(self.whitening)
        return {
            "center": self.center.tolist(),
            # The rows of a triangle.
            "whitening": [row[: place + 1].tolist() for place, row in rows],
            "rows": self.rows,
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> FeatureLeverage:
        """Read what `to_json` wrote."""
        center = np.array(entry["center"], float)
        whitening = np.zeros((len(center), len(center)))
        for place, row in enumerate(entry["whitening"]):
            whitening[place, : place + 1] = row
        return cls(center, whitening, int(entry["rows"]))


def features_of(
    model: nn.Module, columns: Sequence[Column], frame: pd.DataFrame, x: Tensor
) -> dict[str, Matrix]:
    """The features of both read-outs, of rows and of what the net takes of them."""
    numbers = [
        column.encode(frame[column.name])[:, 0] for column in columns if column.kind != "category"
    ]
    found = {"features": hidden_features(model, x)}
    if len(numbers) > 1:
        found = {"numbers": np.column_stack(numbers[:MAX_READ_OUT]), **found}
    return found


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
        by_column: How many rows are unlike the training data in each column.
    """

    flags: Matrix
    reasons: list[str]
    by_column: dict[str, int]


@dataclass(frozen=True)
class Familiarity:
    """What rows of the training data look like.

    Args:
        profiles: What each column holds.
        holes: The tail of the number of missing cells in a row.
        read_outs: Read-outs by the name of their features.
        thresholds: By part, the score beyond which a row is called unlike the training data.
        rate: How often an ordinary row is: at most 1 %, or more where training rows are too few.
    """

    profiles: tuple[ColumnProfile, ...]
    holes: ParetoTail
    read_outs: dict[str, FeatureLeverage]
    thresholds: dict[str, float]
    rate: float

    @property
    def rows(self) -> int:
        """How many training rows it was learned from."""
        return self.profiles[0].rows

    @classmethod
    def fit(
        cls,
        columns: Sequence[Column],
        frame: pd.DataFrame,
        features: Mapping[str, Matrix],
        *,
        rate: float = FALSE_ALARM_RATE,
    ) -> Familiarity:
        """Learn it from training rows, in any order but their own.

        Each of ten parts of the rows is scored by profiles of the others, and by read-outs without
        the row.

        Args:
            columns: The columns that are used.
            frame: The rows.
            features: By name, features of each row: (n, H).
            rate: The rate of false alarms.
        """
        read_outs = {name: FeatureLeverage.fit(each) for name, each in features.items()}
        cells = _RowCells.read(columns, frame)
        count = len(frame)
        surprise = np.zeros(count)
        for fold in np.array_split(np.arange(count), min(PROFILE_FOLDS, count)):
            others = np.setdiff1d(np.arange(count), fold)
            surprise[fold] = cells.take(others).law().surprise(cells.take(fold)).max(1)
        scores = {name: each.left_out(features[name]) for name, each in read_outs.items()}
        thresholds, found = choose_thresholds({COLUMNS: surprise, **scores}, rate)
        law = cells.law()
        return cls(law.profiles, law.holes, read_outs, thresholds, found)

    def compare(
        self, columns: Sequence[Column], frame: pd.DataFrame, features: Mapping[str, Matrix]
    ) -> Strangeness:
        """How unlike the training data these rows are, and where."""
        cells = _RowCells.read(columns, frame)
        surprise = _Law(self.profiles, self.holes).surprise(cells)
        beyond = surprise > self.thresholds[COLUMNS]
        flags = np.asarray(beyond.any(1))
        for name, read_out in self.read_outs.items():
            flags = flags | (read_out.log_leverage(features[name]) > self.thresholds[name])
        reasons = [""] * len(frame)
        for row in np.flatnonzero(flags):
            reasons[row] = self._reason(cells, beyond[row], int(row))
        counts = {
            profile.name: int(beyond[:, place].sum())
            for place, profile in enumerate(self.profiles)
            if beyond[:, place].any()
        }
        return Strangeness(flags, reasons, counts)

    def _reason(self, cells: _RowCells, beyond: Matrix, row: int) -> str:
        said = [
            profile.difference(values[row])
            for profile, values, unusual in zip(self.profiles, cells.values, beyond, strict=False)
            if unusual
        ]
        if not said and beyond[-1]:
            said = [f"{cells.holes[row]:.0f} cells are missing"]
        return "; ".join(said) or "an unusual combination of values"

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return {
            "profiles": [profile.to_json() for profile in self.profiles],
            "holes": vars(self.holes),
            "read_outs": {name: each.to_json() for name, each in self.read_outs.items()},
            # What is not used has no threshold.
            "thresholds": {k: v for k, v in self.thresholds.items() if math.isfinite(v)},
            "rate": self.rate,
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Familiarity:
        """Read what `to_json` wrote."""
        read_outs = {
            str(name): FeatureLeverage.from_json(each) for name, each in entry["read_outs"].items()
        }
        known = {str(name): float(value) for name, value in entry["thresholds"].items()}
        return cls(
            tuple(profile_from_json(profile) for profile in entry["profiles"]),
            ParetoTail(**entry["holes"]),
            read_outs,
            {name: known.get(name, math.inf) for name in (COLUMNS, *read_outs)},
            float(entry["rate"]),
        )


def choose_thresholds(scores: Mapping[str, Matrix], rate: float) -> tuple[dict[str, float], float]:
    """Thresholds of several scores that a new row passes, in any of them, with at most the rate.

    Each part is given slots in turn: with k of them its threshold is the k-th largest of its n
    scores, and a new row lies beyond it with a probability of k / (n + 1). A row that is among the
    largest of several parts counts once, so that with r such rows the probability is about
    r / (n + 1). The first part has one slot in any case, and then half of them.

    Args:
        scores: By part, the scores of the same n rows.
        rate: The largest probability.

    Returns:
        The threshold of each part, infinite for one without slots; and the probability.

    Example:
        >>> scores = np.arange(300.0)
        >>> choose_thresholds({"a": scores, "b": scores[::-1]}, 0.01)
        ({'a': 298.0, 'b': 299.0}, 0.00996...)
    """
    first, *others = scores
    count = len(scores[first])
    order = {name: np.argsort(-part, kind="stable") for name, part in scores.items()}
    slots = dict.fromkeys(scores, 0)
    turns = itertools.cycle([first, *(name for other in others for name in (other, first))])
    taken = np.zeros(count, bool)
    for name in itertools.islice(turns, count):
        row = order[name][slots[name]]
        reached = (taken.sum() + (not taken[row])) / (count + 1)
        if reached > rate and taken.any():
            break
        taken[row] = True
        slots[name] += 1
    chosen = {
        name: float(scores[name][order[name][used - 1]]) if used else math.inf
        for name, used in slots.items()
    }
    return chosen, float(taken.sum() / (count + 1))


@dataclass(frozen=True)
class _RowCells:
    """What is compared of some rows: values by column, and the number of holes."""

    columns: Sequence[Column]
    values: list[Matrix]
    holes: Matrix

    @classmethod
    def read(cls, columns: Sequence[Column], frame: pd.DataFrame) -> _RowCells:
        values = [column.read(frame[column.name]) for column in columns]
        holes = sum(frame[column.name].isna().to_numpy(float) for column in columns)
        return cls(columns, values, np.asarray(holes, float))

    def take(self, rows: Matrix) -> _RowCells:
        return _RowCells(self.columns, [column[rows] for column in self.values], self.holes[rows])

    def law(self) -> _Law:
        profiles = tuple(
            PROFILES[column.kind].learn(column.name, values)
            for column, values in zip(self.columns, self.values, strict=True)
        )
        return _Law(profiles, ParetoTail.fit(self.holes))


@dataclass(frozen=True)
class _Law:
    """How probable the cells of a row are, by some training rows."""

    profiles: tuple[ColumnProfile, ...]
    holes: ParetoTail

    def surprise(self, cells: _RowCells) -> Matrix:
        """`−log P` of each cell of each row, and of the number of its holes, (N, columns + 1)."""
        by_column = (
            profile.surprise(values)
            for profile, values in zip(self.profiles, cells.values, strict=True)
        )
        return np.column_stack([*by_column, self.holes.surprise(cells.holes)])
