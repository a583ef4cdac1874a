"""What the training rows hold in each column: range, tails, levels and holes, as plain JSON."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from headstart.errors import unknown
from headstart.reporting.text import readably
from headstart.tabular.columns import MAX_KEYED, MIN_LEVEL_ROWS, Matrix

GRID = 21
"""Quantiles that are kept of a column of numbers, the smallest and the largest value among them."""
TAIL_FRACTION, MIN_TAIL_ROWS = 0.1, 10
"""The outermost fraction of the values to which a tail is fitted, and the fewest values of one."""
MIN_SHAPE, MAX_SHAPE = 0.1, 0.5
"""The lightest and the heaviest tail: a lighter one makes much of values barely beyond the others,
a heavier one makes little of values a thousand times as large."""
MIN_TAIL_SCALE = 0.05
"""The smallest scale of a tail, in standard deviations of its column: equal values have none."""
OTHER_LEVEL = "(another)"
"""What stands for levels too rare to be told apart."""
NEVER_SEEN = 5.0
"""Nats by which a kind of value that no row had is rarer than one that a single row had."""


@dataclass(frozen=True)
class ParetoTail:
    """The probability of values beyond a threshold, a generalized Pareto law.

    `P(v > start + e) = fraction · (1 + shape · e / scale)^(−1/shape)`.

    Args:
        start: Where the tail begins.
        scale: The scale of what lies beyond.
        shape: Positive, the larger the heavier the tail.
        fraction: The fraction of values in the tail.
    """

    start: float
    scale: float
    shape: float
    fraction: float

    @classmethod
    def fit(cls, values: Matrix) -> ParetoTail:
        """The upper tail of some finite values, by probability-weighted moments.

        Example:
            >>> tail = ParetoTail.fit(-np.log(np.arange(0.5, 1000) / 1000))
            >>> round(tail.start, 2), round(tail.scale, 1), round(tail.shape, 1)
            (2.31, 0.9, 0.1)
        """
        count = min(len(values), max(MIN_TAIL_ROWS, int(TAIL_FRACTION * len(values))))
        top = np.sort(values)[-count:]
        excess = top - top[0]
        weights = 1 - (np.arange(1, count + 1) - 0.35) / count
        mean, weighted = float(excess.mean()), float((weights * excess).mean())
        gap = mean - 2 * weighted
        shape = float(np.clip(2 - mean / gap, MIN_SHAPE, MAX_SHAPE)) if gap > 0 else MIN_SHAPE
        floor = MIN_TAIL_SCALE * float(values.std()) or 1e-9 * max(1.0, abs(float(top[0])))
        return cls(float(top[0]), max(mean * (1 - shape), floor), shape, count / len(values))

    def surprise(self, values: Matrix) -> Matrix:
        """`−log P` of values as far out; 0 where the tail has not begun."""
        excess = np.maximum(values - self.start, 0) / self.scale
        growth = np.log1p(self.shape * excess) / self.shape
        return np.where(excess > 0, growth - math.log(self.fraction), 0.0)


def rarity(count: int, rows: int) -> float:
    """`−log` of the fraction of rows of a kind; of a kind never seen, more than of any that was."""
    return -math.log(count / rows) if count else math.log(rows + 1) + NEVER_SEEN


@dataclass(frozen=True)
class ColumnProfile(ABC):
    """What training rows hold in a column, by name."""

    kind: ClassVar[str]
    name: str
    rows: int

    @classmethod
    @abstractmethod
    def learn(cls, name: str, values: Matrix) -> ColumnProfile:
        """From what the column's `read` makes of training rows."""

    @classmethod
    @abstractmethod
    def from_json(cls, entry: Mapping[str, Any]) -> ColumnProfile:
        """Read what `to_json` wrote."""

    @abstractmethod
    def surprise(self, values: Matrix) -> Matrix:
        """`−log P` of values as unusual as each of these, by the training rows; 0 for usual ones.

        Args:
            values: What the column's `read` makes of its cells.
        """

    @abstractmethod
    def draws(self, count: int) -> Matrix:
        """So many values that stand for those of the training rows, each as probable."""

    @abstractmethod
    def bins(self, values: Matrix) -> Matrix:
        """How many values fall into each of the profile's bins; missing ones have their own."""

    @property
    @abstractmethod
    def known_bins(self) -> Matrix:
        """`bins` of the training rows."""

    @abstractmethod
    def show(self, value: Any) -> str:
        """A value for people."""

    @abstractmethod
    def difference(self, value: Any) -> str:
        """How a surprising value differs from those of the training rows, in a few words."""

    def to_json(self) -> dict[str, Any]:
        """What `profile_from_json` rebuilds it from."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class NumberProfile(ColumnProfile):
    """Quantiles, tails and holes of a column of numbers."""

    kind = "number"
    missing: int
    grid: tuple[float, ...]
    counts: tuple[int, ...]
    lower: ParetoTail
    upper: ParetoTail

    @classmethod
    def learn(cls, name: str, values: Matrix) -> NumberProfile:
        known = values[np.isfinite(values)]
        # A fold of the rows may hold none.
        known = known if len(known) else np.zeros(1)
        grid = tuple(np.quantile(known, np.linspace(0, 1, GRID)).tolist())
        holes = int((~np.isfinite(values)).sum())
        counts = tuple(_counts_between(grid, values).tolist())
        tails = ParetoTail.fit(-known), ParetoTail.fit(known)
        return cls(name, len(values), holes, grid, counts, *tails)

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> NumberProfile:
        grid = tuple(float(value) for value in entry["grid"])
        if len(grid) != GRID:
            raise ValueError(f"a profile has {GRID} quantiles, not {len(grid)}")
        tails = (ParetoTail(**entry[side]) for side in ("lower", "upper"))
        counts = tuple(int(count) for count in entry["counts"])
        return cls(
            str(entry["name"]), int(entry["rows"]), int(entry["missing"]), grid, counts, *tails
        )

    def surprise(self, values: Matrix) -> Matrix:
        hole = ~np.isfinite(values)
        known = np.where(hole, self.grid[GRID // 2], values)
        found = np.maximum(self.lower.surprise(-known), self.upper.surprise(known))
        return np.where(hole, rarity(self.missing, self.rows), found)

    def bins(self, values: Matrix) -> Matrix:
        holes = int((~np.isfinite(values)).sum())
        return np.array([*_counts_between(self.grid, values), holes])

    @property
    def known_bins(self) -> Matrix:
        return np.array([*self.counts, self.missing])

    def draws(self, count: int) -> Matrix:
        places = (np.arange(count) + 0.5) / count
        # The first ones stand for the missing cells.
        known = (places - self.missing / self.rows) / max(1 - self.missing / self.rows, 1e-9)
        # The nearest quantile: between two of them there may be no value.
        values = np.array(self.grid)[np.rint(known.clip(0, 1) * (GRID - 1)).astype(int)]
        return np.where(known < 0, np.nan, values)

    def difference(self, value: Any) -> str:
        if not math.isfinite(value):
            return f"{self.name} is missing"
        side = "above" if value > self.grid[GRID // 2] else "below"
        usual = f"{self.show(self.grid[1])} to {self.show(self.grid[-2])}"
        return f"{self.name} is {self.show(value)}, {side} the usual {usual}"

    def show(self, value: Any) -> str:
        return readably(value, 4)


@dataclass(frozen=True)
class DateProfile(NumberProfile):
    """The same of points in time, as days."""

    kind = "date"

    def show(self, value: Any) -> str:
        return str(np.datetime64(0, "D") + np.timedelta64(round(value), "D"))


@dataclass(frozen=True)
class LevelProfile(ColumnProfile):
    """How many rows have each level of a category; the other rows have one of the rarer levels."""

    kind = "category"
    counts: dict[str, int]

    @classmethod
    def learn(cls, name: str, values: Matrix) -> LevelProfile:
        counts = pd.Series(values).value_counts()
        frequent = counts[counts >= MIN_LEVEL_ROWS][:MAX_KEYED]
        levels = sorted((str(level), int(count)) for level, count in frequent.items())
        return cls(name, len(values), dict(levels))

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> LevelProfile:
        counts = {str(level): int(count) for level, count in entry["counts"].items()}
        return cls(str(entry["name"]), int(entry["rows"]), counts)

    @property
    def others(self) -> int:
        """How many rows had none of the levels."""
        return self.rows - sum(self.counts.values())

    def surprise(self, values: Matrix) -> Matrix:
        # A level that several rows had is no surprise, however rare.
        rest = rarity(self.others, self.rows)
        return np.array([0.0 if value in self.counts else rest for value in values], float)

    def bins(self, values: Matrix) -> Matrix:
        found = pd.Series(values).value_counts()
        listed = [int(found.get(level, 0)) for level in self.counts]
        return np.array([*listed, len(values) - sum(listed)])

    @property
    def known_bins(self) -> Matrix:
        return np.array([*self.counts.values(), self.others])

    def draws(self, count: int) -> Matrix:
        ends = np.cumsum([*self.counts.values(), self.others]) / self.rows
        places = np.searchsorted(ends, (np.arange(count) + 0.5) / count)
        return np.array([*self.counts, OTHER_LEVEL], object)[places]

    def show(self, value: Any) -> str:
        return str(value)

    def difference(self, value: Any) -> str:
        return f"{self.name} is {value!r}, which is rare or new"


def _counts_between(grid: tuple[float, ...], values: Matrix) -> Matrix:
    """How many finite values lie at or below each inner quantile, above the one before, and above.

    Equal quantiles, of a column of few values, count once.
    """
    edges = np.unique(grid[1:-1])
    places = np.searchsorted(edges, values[np.isfinite(values)])
    return np.bincount(places, minlength=len(edges) + 1)


PROFILES: dict[str, type[ColumnProfile]] = {
    profile.kind: profile for profile in (NumberProfile, DateProfile, LevelProfile)
}
"""By the kind of the column."""


def profile_from_json(entry: Mapping[str, Any]) -> ColumnProfile:
    """The profile that `to_json` wrote; anything else is refused."""
    kind = str(entry["kind"])
    if kind not in PROFILES:
        raise unknown("kind of profile", kind, PROFILES)
    return PROFILES[kind].from_json(entry)
