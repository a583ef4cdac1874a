"""One column of a table as numbers: what training rows tell about it, kept as plain JSON."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from headstart.errors import HeadstartError, unknown
from headstart.tabular.cells import (
    DATE_FORMS,
    MISSING_LEVEL,
    labels_of,
    to_days,
    to_numbers,
)

MAX_LEVELS = 50
"""Levels of a category that get a feature of their own; the others have one in common."""
MIN_LEVEL_ROWS = 2
MAX_KEYED = 5000
"""Levels that are told apart by what the target is in their rows, where they are too many."""
MIN_NUMERIC_FRACTION = 0.95
"""A column with at least this fraction of numbers is one of numbers; the rest counts as missing."""
LOG_BEYOND = 5.0
"""Numbers are log-compressed beyond so many scales from the center: outliers must not dominate."""
Matrix = np.ndarray


@dataclass(frozen=True)
class Column(ABC):
    """A column of the table, by name."""

    kind: ClassVar[str]
    name: str

    @property
    @abstractmethod
    def features(self) -> tuple[str, ...]:
        """The names of the numbers it becomes."""

    @abstractmethod
    def encode(self, values: pd.Series) -> Matrix:
        """(rows, features) numbers."""

    @abstractmethod
    def read(self, values: pd.Series) -> Matrix:
        """The cells as their kind has them: numbers with NaN where there is none, or labels."""

    @abstractmethod
    def cells(self, values: Matrix) -> pd.Series:
        """Cells that `read` makes these values of."""

    @abstractmethod
    def describe(self) -> str:
        """What it is taken for, in a few words."""

    def unseen(self, values: pd.Series) -> int:
        """How many values are of a kind that training has not seen."""
        return 0

    @property
    def has_keys(self) -> bool:
        """Whether its levels are so many that each has a number, besides the features."""
        return False

    def keys(self, values: pd.Series) -> Matrix:
        """The number of each level, −1 for one without: (rows, 1), or (rows, 0) without keys."""
        return np.empty((len(values), 0), np.int32)

    def is_sound(self) -> bool:
        """Whether the fields, which may come from a file, are of their types and ranges."""
        return isinstance(self.name, str)

    def to_json(self) -> dict[str, Any]:
        """What `column_from_json` rebuilds it from."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class NumberColumn(Column):
    """`(value − center) / scale`, log-compressed beyond ±5.

    A missing value becomes 0, the center; where training rows had any, a feature says so.
    """

    kind = "number"
    center: float
    scale: float
    missing: bool

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name, f"{self.name} is missing") if self.missing else (self.name,)

    def encode(self, values: pd.Series) -> Matrix:
        numbers = self.read(values)
        scaled = log_compress((numbers - self.center) / self.scale)
        hole = ~np.isfinite(scaled)
        scaled[hole] = 0.0
        return np.column_stack([scaled, hole]) if self.missing else scaled[:, None]

    def read(self, values: pd.Series) -> Matrix:
        return to_numbers(values)

    def cells(self, values: Matrix) -> pd.Series:
        return pd.Series(values, dtype=float)

    def describe(self) -> str:
        return "number" + (", some missing" if self.missing else "")

    def unseen(self, values: pd.Series) -> int:
        holes = ~np.isfinite(self.read(values))
        return int((holes & values.notna().to_numpy() if self.missing else holes).sum())

    def is_sound(self) -> bool:
        finite = all(
            isinstance(value, (int, float)) and math.isfinite(value)
            for value in (self.center, self.scale)
        )
        return super().is_sound() and isinstance(self.missing, bool) and finite and self.scale > 0


@dataclass(frozen=True)
class DateColumn(NumberColumn):
    """A point in time, as days; what is not written as in the training rows counts as missing.

    The order of day and month is learned once, and never guessed again.
    """

    kind = "date"
    form: str

    def read(self, values: pd.Series) -> Matrix:
        return to_days(values, self.form)

    def cells(self, values: Matrix) -> pd.Series:
        form = "%Y-%m-%dT%H:%M:%S" if self.form == DATE_FORMS[0] else self.form
        moments = pd.to_datetime(pd.Series(values, dtype=float), unit="D")
        return moments.dt.strftime(form).astype(object)

    def describe(self) -> str:
        return "date" + (", some missing" if self.missing else "")

    def is_sound(self) -> bool:
        return super().is_sound() and self.form in DATE_FORMS


@dataclass(frozen=True)
class CategoryColumn(Column):
    """A feature for each frequent level, and one for all others where training rows had any.

    Where more levels than these had two training rows, all of those have a number, too: their key.
    """

    kind = "category"
    levels: tuple[str, ...]
    others: bool
    keyed: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        return (
            *(f"{self.name} = {level}" for level in self.levels),
            *((f"{self.name} is another",) if self.others else ()),
        )

    def encode(self, values: pd.Series) -> Matrix:
        places = {level: index for index, level in enumerate(self.levels)}
        index = pd.Series(self.read(values)).map(places).fillna(len(self.levels)).to_numpy(int)
        return np.eye(len(self.levels) + 1)[index][:, : len(self.features)]

    def read(self, values: pd.Series) -> Matrix:
        return labels_of(values).to_numpy(object)

    def cells(self, values: Matrix) -> pd.Series:
        cells = [None if value == MISSING_LEVEL else value for value in values]
        return pd.Series(cells, dtype=object)

    def describe(self) -> str:
        count = len(self.keyed) or len(self.levels)
        return f"category with {count} levels" + (" and rarer ones" if self.others else "")

    def unseen(self, values: pd.Series) -> int:
        return 0 if self.others else int((~labels_of(values).isin(self.levels)).sum())

    @property
    def has_keys(self) -> bool:
        return bool(self.keyed)

    def keys(self, values: pd.Series) -> Matrix:
        if not self.keyed:
            return super().keys(values)
        places = {level: index for index, level in enumerate(self.keyed)}
        return pd.Series(self.read(values)).map(places).fillna(-1).to_numpy(np.int32)[:, None]

    def is_sound(self) -> bool:
        return (
            super().is_sound()
            and isinstance(self.others, bool)
            and len(set(self.keyed)) == len(self.keyed)
        )

    def to_json(self) -> dict[str, Any]:
        entry = super().to_json()
        # A column of few levels is written as it always was.
        return entry if self.keyed else {k: v for k, v in entry.items() if k != "keyed"}


KINDS: dict[str, type[Column]] = {
    column.kind: column for column in (NumberColumn, DateColumn, CategoryColumn)
}
FORMER_FIELDS = {"middle": "center", "unit": "scale"}
"""Names that version 0.1 wrote, and what they are now."""


def column_from_json(entry: dict[str, Any]) -> Column:
    """The column that `to_json` wrote; anything else is refused."""
    options = {FORMER_FIELDS.get(name, name): value for name, value in entry.items()}
    kind = options.pop("kind", None)
    if kind not in KINDS:
        raise unknown("kind of column", str(kind), KINDS)
    for name in ("levels", "keyed"):
        if name in options:
            options[name] = tuple(map(str, options[name]))
    try:
        column = KINDS[kind](**options)
    except TypeError as error:
        raise HeadstartError(
            f"A column of the kind {kind!r} is not described as it should be: {error}."
        ) from error
    if not column.is_sound():
        raise HeadstartError(
            f"The column {column.name!r} of the kind {kind!r} is not described as it should be."
        )
    return column


def log_compress(z: Matrix) -> Matrix:
    """The identity up to ±5, logarithmic beyond, without a kink.

    Example:
        >>> log_compress(np.array([-3.0, 5.0, 5 + math.e - 1])).tolist()
        [-3.0, 5.0, 6.0]
    """
    excess = np.maximum(np.abs(z) - LOG_BEYOND, 0.0)
    return np.sign(z) * (np.minimum(np.abs(z), LOG_BEYOND) + np.log1p(excess))


def center_and_scale(numbers: Matrix) -> tuple[float, float, bool]:
    """Mean and sd with the outermost hundredths clipped, and whether any value is missing.

    Example:
        >>> center_and_scale(np.array([-1.0, 1.0, np.nan]))
        (0.0, 1.0, True)
    """
    seen = numbers[np.isfinite(numbers)]
    clipped = seen.clip(
        np.quantile(seen, 0.01, method="higher"), np.quantile(seen, 0.99, method="lower")
    )
    center, scale = clipped.mean(), clipped.std()
    if not scale > 1e-12 * max(1.0, abs(center)):
        center, scale = seen.mean(), seen.std() or 1.0
    return float(center), float(scale), bool(len(seen) < len(numbers))


def category_column(name: str, values: pd.Series) -> CategoryColumn:
    """The most frequent levels, as many as get a feature, and keys where those are not all."""
    counts = labels_of(values).value_counts()
    known = counts[counts >= MIN_LEVEL_ROWS].index
    frequent, keyed = known[:MAX_LEVELS], known.drop(MISSING_LEVEL, errors="ignore")[:MAX_KEYED]
    return CategoryColumn(
        name,
        tuple(sorted(map(str, frequent))),
        len(frequent) < len(counts),
        tuple(sorted(map(str, keyed))) if len(known) > MAX_LEVELS else (),
    )


def warn_of_levels(column: CategoryColumn, known: pd.Series, warnings: list[str]) -> None:
    """Say how the levels are told apart where they are too many for a feature each."""
    distinct = labels_of(known).nunique()
    if distinct <= MAX_LEVELS or not column.levels:
        return
    rest = "those with a single row are not told apart"
    if column.keyed:
        all_of = f"the {MAX_KEYED} most frequent" if len(column.keyed) == MAX_KEYED else "all"
        rest = f"{all_of} with {MIN_LEVEL_ROWS} rows or more are told apart by the target's mean"
    warnings.append(
        f"The column {column.name!r} has {distinct} levels: "
        f"the {len(column.levels)} most frequent get a feature each, and {rest}."
    )


_NUMBER_AND_UNIT = r"^\s*[+-]?\d[\d.,'’ \u00a0\u202f]*?\s*([^\d\s.,'’:/+-]\D*?\d?)\s*$"


def warn_of_unit(name: str, known: pd.Series, warnings: list[str]) -> None:
    """Say so where nearly every cell of a text column is a number and the same word."""
    words = known.astype(str).str.extract(_NUMBER_AND_UNIT)[0].value_counts()
    if len(words) and words.iloc[0] >= MIN_NUMERIC_FRACTION * len(known):
        warnings.append(
            f"The cells of {name!r} are numbers with {words.index[0]!r} behind them, so they are "
            "read as text: take that off to use them as numbers."
        )
