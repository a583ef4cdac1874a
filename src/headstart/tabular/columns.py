"""One column of a table as numbers: what kind it is is decided on training rows, and written down as plain JSON."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from headstart.errors import HeadstartError, unknown

MOST_LEVELS = 50
"""Levels of a category that get a feature of their own; the others share one."""
FEWEST_OF_A_LEVEL = 2
MOSTLY = 0.95
"""A column with at least this share of numbers is one of numbers; the rest counts as missing."""
BEND = 5.0
"""Beyond so many units from the middle a number grows as its logarithm: an outlier must not be all that is seen."""
LARGEST = 1e100
"""Numbers from here on count as infinite, and infinite ones as missing."""
MISSING_LEVEL = "(missing)"
_BOOLEAN = {
    "true": 1.0,
    "false": 0.0,
    "yes": 1.0,
    "no": 0.0,
    "t": 1.0,
    "f": 0.0,
    "y": 1.0,
    "n": 0.0,
}

Matrix = np.ndarray


@dataclass(frozen=True)
class Column(ABC):
    """A column of the table, by name."""

    name: str

    @property
    @abstractmethod
    def features(self) -> tuple[str, ...]:
        """The names of the numbers it becomes."""

    @abstractmethod
    def encode(self, values: pd.Series) -> Matrix:
        """(rows, features) numbers."""

    @abstractmethod
    def describe(self) -> str:
        """What it is taken for, in a few words."""

    def strange(self, values: pd.Series) -> int:
        """How many values are of a kind that training has not seen."""
        return 0

    def to_json(self) -> dict[str, Any]:
        """What `column_from_json` rebuilds it from."""
        return {"kind": type(self).__name__.lower(), **asdict(self)}


@dataclass(frozen=True)
class Number(Column):
    """`(value − middle) / unit`, bent beyond ±5; missing ones are put in the middle, and told by a feature where training had any."""

    middle: float
    unit: float
    missing: bool

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name, f"{self.name} is missing") if self.missing else (self.name,)

    def encode(self, values: pd.Series) -> Matrix:
        numbers = self.parse(values)
        scaled = bend((numbers - self.middle) / self.unit)
        hole = ~np.isfinite(scaled)
        scaled[hole] = 0.0
        return np.column_stack([scaled, hole]) if self.missing else scaled[:, None]

    def parse(self, values: pd.Series) -> Matrix:
        return to_numbers(values)

    def describe(self) -> str:
        return "number" + (", some missing" if self.missing else "")

    def strange(self, values: pd.Series) -> int:
        holes = ~np.isfinite(self.parse(values))
        return int((holes & values.notna().to_numpy() if self.missing else holes).sum())


@dataclass(frozen=True)
class Date(Number):
    """A point in time, as days; written as in training, or it is none: the order of day and month is not guessed again."""

    form: str

    def parse(self, values: pd.Series) -> Matrix:
        return to_days(values, self.form)

    def describe(self) -> str:
        return "date" + (", some missing" if self.missing else "")


@dataclass(frozen=True)
class Category(Column):
    """A feature for each level that training has seen often enough, and one for all others where there were any."""

    levels: tuple[str, ...]
    others: bool

    @property
    def features(self) -> tuple[str, ...]:
        return (
            *(f"{self.name} = {level}" for level in self.levels),
            *((f"{self.name} is another",) if self.others else ()),
        )

    def encode(self, values: pd.Series) -> Matrix:
        places = {level: index for index, level in enumerate(self.levels)}
        index = labels_of(values).map(places).fillna(len(self.levels)).to_numpy(int)
        return np.eye(len(self.levels) + 1)[index][:, : len(self.features)]

    def describe(self) -> str:
        return f"category with {len(self.levels)} levels" + (
            " and rarer ones" if self.others else ""
        )

    def strange(self, values: pd.Series) -> int:
        return 0 if self.others else int((~labels_of(values).isin(self.levels)).sum())


KINDS: dict[str, type[Column]] = {kind.__name__.lower(): kind for kind in (Number, Date, Category)}


def column_from_json(entry: dict[str, Any]) -> Column:
    """The column that `to_json` wrote; anything else is refused."""
    options = dict(entry)
    kind = options.pop("kind", None)
    if kind not in KINDS:
        raise unknown("kind of column", str(kind), KINDS)
    if "levels" in options:
        options["levels"] = tuple(map(str, options["levels"]))
    try:
        column = KINDS[kind](**options)
    except TypeError as error:
        raise HeadstartError(
            f"A column of the kind {kind!r} is not described as it should be: {error}."
        ) from error
    sound = isinstance(column.name, str) and options.get("form", DATE_FORMS[0]) in DATE_FORMS
    if not sound or not all(
        isinstance(options[key], bool) for key in ("missing", "others") if key in options
    ):
        raise HeadstartError(f"A column of the kind {kind!r} is not described as it should be.")
    numbers = [options[key] for key in ("middle", "unit") if key in options]
    if (
        not all(isinstance(value, (int, float)) and math.isfinite(value) for value in numbers)
        or options.get("unit", 1) <= 0
    ):
        raise HeadstartError(f"The column {column.name!r} is not described by finite numbers.")
    return column


def bend(z: Matrix) -> Matrix:
    """The identity up to ±5, logarithmic beyond, without a kink.

    Example:
        >>> bend(np.array([-3.0, 5.0, 5 + math.e - 1])).tolist()
        [-3.0, 5.0, 6.0]
    """
    excess = np.maximum(np.abs(z) - BEND, 0.0)
    return np.sign(z) * (np.minimum(np.abs(z), BEND) + np.log1p(excess))


def to_numbers(values: pd.Series) -> Matrix:
    """Floats, each cell for itself; what is no finite number is NaN."""
    if values.dtype == object or isinstance(values.dtype, pd.StringDtype):
        text = values.astype("string").str.strip().str.lower()
        flags = text.map(_BOOLEAN).to_numpy(dtype=float, na_value=np.nan)
        numbers = np.where(np.isnan(flags), _floats(text), flags)
    else:
        numbers = _floats(values)
    if values.dtype == object:
        # A number beside a word keeps all of its digits, which the way through text may not.
        exact = np.array([_exact(cell) for cell in values], float)
        numbers = np.where(np.isnan(exact), numbers, exact)
    return np.where(np.abs(numbers) < LARGEST, numbers, np.nan)


def _floats(values: pd.Series) -> Matrix:
    return pd.to_numeric(values, errors="coerce").to_numpy(dtype=float, na_value=np.nan)


def _exact(cell: Any) -> float:
    """The number that a cell is, not in text; NaN where it is none."""
    cell = cell.item() if isinstance(cell, np.number) else cell
    return float(cell) if isinstance(cell, (int, float)) and abs(cell) < LARGEST else math.nan


DATE_FORMS = ("ISO8601", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d")
"""How dates may be written; of two that fit, the earlier."""


def to_days(values: pd.Series, form: str) -> Matrix:
    """Days since 1970; what is not text, or not a date in this form, is NaN."""
    cells = [cell if isinstance(cell, str) else None for cell in values]
    moments = pd.to_datetime(cells, errors="coerce", utc=True, format=form)
    seconds = moments.tz_localize(None).to_numpy().astype("datetime64[s]")
    return np.where(np.isnat(seconds), np.nan, seconds.astype(np.int64) / 86_400)


def labels_of(values: pd.Series) -> pd.Series:
    """Values as text, the same whether a file held them as 1, "1" or, among missing ones, 1.0."""
    return values.map(lambda value: MISSING_LEVEL if pd.isna(value) else _label(value)).astype(
        object
    )


def _label(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        value = float(value)
        return str(int(value)) if value.is_integer() else str(value)
    return str(value).strip()


def scale_of(numbers: Matrix) -> tuple[float, float, bool]:
    """Middle and unit, mean and standard deviation, the outermost hundredths pulled in to their quantiles; and whether any is missing."""
    seen = numbers[np.isfinite(numbers)]
    pulled = seen.clip(
        np.quantile(seen, 0.01, method="higher"), np.quantile(seen, 0.99, method="lower")
    )
    middle, unit = pulled.mean(), pulled.std()
    if not unit > 1e-12 * max(1.0, abs(middle)):
        middle, unit = seen.mean(), seen.std() or 1.0
    return float(middle), float(unit), bool(len(seen) < len(numbers))


def category_of(name: str, values: pd.Series) -> Category:
    """The most frequent levels, as many as get a feature."""
    counts = labels_of(values).value_counts()
    frequent = counts[counts >= FEWEST_OF_A_LEVEL].index[:MOST_LEVELS]
    return Category(name, tuple(sorted(map(str, frequent))), len(frequent) < len(counts))


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def listing(names: Iterable[str], most: int = 5) -> str:
    """A few names, and how many more there are."""
    names = list(names)
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
