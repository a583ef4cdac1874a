"""One column of a table as numbers: what training rows tell about it, kept as plain JSON."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from headstart.errors import HeadstartError, unknown

MAX_LEVELS = 50
"""Levels of a category that get a feature of their own; the others have one in common."""
MIN_LEVEL_ROWS = 2
MIN_NUMERIC_FRACTION = 0.95
"""A column with at least this fraction of numbers is one of numbers; the rest counts as missing."""
LOG_BEYOND = 5.0
"""Numbers are log-compressed beyond so many scales from the center: outliers must not dominate."""
MAX_NUMBER = 1e100
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
    """A feature for each frequent level, and one for all others where training rows had any."""

    kind = "category"
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
        index = pd.Series(self.read(values)).map(places).fillna(len(self.levels)).to_numpy(int)
        return np.eye(len(self.levels) + 1)[index][:, : len(self.features)]

    def read(self, values: pd.Series) -> Matrix:
        return labels_of(values).to_numpy(object)

    def cells(self, values: Matrix) -> pd.Series:
        cells = [None if value == MISSING_LEVEL else value for value in values]
        return pd.Series(cells, dtype=object)

    def describe(self) -> str:
        return f"category with {len(self.levels)} levels" + (
            " and rarer ones" if self.others else ""
        )

    def unseen(self, values: pd.Series) -> int:
        return 0 if self.others else int((~labels_of(values).isin(self.levels)).sum())

    def is_sound(self) -> bool:
        return super().is_sound() and isinstance(self.others, bool)


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
    if "levels" in options:
        options["levels"] = tuple(map(str, options["levels"]))
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


def to_numbers(values: pd.Series) -> Matrix:
    """Floats, each cell for itself; what is no finite number is NaN."""
    if values.dtype == object or isinstance(values.dtype, pd.StringDtype):
        text = values.astype("string").str.strip().str.lower()
        flags = text.map(_BOOLEAN).to_numpy(dtype=float, na_value=np.nan)
        numbers = np.where(np.isnan(flags), _floats(text), flags)
        odd = np.isnan(numbers) & values.notna().to_numpy()
        if odd.any():
            numbers[odd] = _floats(text[odd].map(_without_marks))
    else:
        numbers = _floats(values)
    if values.dtype == object:
        # A number beside a word keeps all of its digits, which the way through text may not.
        exact = np.array([_exact(cell) for cell in values], float)
        numbers = np.where(np.isnan(exact), numbers, exact)
    return np.where(np.abs(numbers) < MAX_NUMBER, numbers, np.nan)


_CURRENCY = r"(?:€|\$|£|¥|eur|usd|gbp|chf)"
_MONEY = re.compile(
    rf"([+-]?)\s*(?:{_CURRENCY}\s*)?([+-]?\d[\d.,'’ \u00a0\u202f]*?)\s*{_CURRENCY}?"
)
_GROUPED_DIGITS = re.compile(
    r"[+-]?[1-9]\d{0,2}(?:([,'’ \u00a0\u202f])\d{3})(?:\1\d{3})*(?:\.\d+)?"
)


def _without_marks(text: str) -> str:
    """A number without currency and without marks between thousands; anything else as it is."""
    money = _MONEY.fullmatch(text)
    if not money:
        return text
    digits = money[1] + money[2]
    if _GROUPED_DIGITS.fullmatch(digits):
        return re.sub(r"[,'’ \u00a0\u202f]", "", digits)
    return digits


MAX_MARKED_ROWS = 10_000
"""Cells among which a number with marks is looked for."""


def marked_number(values: pd.Series) -> str | None:
    """The first cell that is a number only without its currency or its marks between thousands."""
    if values.dtype != object and not isinstance(values.dtype, pd.StringDtype):
        return None
    text = values.dropna()[:MAX_MARKED_ROWS].astype(str).str.strip().str.lower()
    odd = text[np.isnan(_floats(text)) & ~text.isin(_BOOLEAN)]
    found = odd[np.isfinite(_floats(odd.map(_without_marks)))]
    return str(values[found.index[0]]) if len(found) else None


def _floats(values: pd.Series) -> Matrix:
    return pd.to_numeric(values, errors="coerce").to_numpy(dtype=float, na_value=np.nan)


def _exact(cell: Any) -> float:
    """The number that a cell is, not in text; NaN where it is none."""
    cell = cell.item() if isinstance(cell, np.number) else cell
    return float(cell) if isinstance(cell, (int, float)) and abs(cell) < MAX_NUMBER else math.nan


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
    return values.map(lambda value: MISSING_LEVEL if pd.isna(value) else _label_text(value)).astype(
        object
    )


def _label_text(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        value = float(value)
        return str(int(value)) if value.is_integer() else str(value)
    return str(value).strip()


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
    """The most frequent levels, as many as get a feature."""
    counts = labels_of(values).value_counts()
    frequent = counts[counts >= MIN_LEVEL_ROWS].index[:MAX_LEVELS]
    return CategoryColumn(name, tuple(sorted(map(str, frequent))), len(frequent) < len(counts))


_NUMBER_AND_UNIT = r"^\s*[+-]?\d[\d.,'’ \u00a0\u202f]*?\s*([^\d\s.,'’:/+-]\D*?\d?)\s*$"


def warn_of_unit(name: str, known: pd.Series, warnings: list[str]) -> None:
    """Say so where nearly every cell of a text column is a number and the same word."""
    words = known.astype(str).str.extract(_NUMBER_AND_UNIT)[0].value_counts()
    if len(words) and words.iloc[0] >= MIN_NUMERIC_FRACTION * len(known):
        warnings.append(
            f"The cells of {name!r} are numbers with {words.index[0]!r} behind them, so they are "
            "read as text: take that off to use them as numbers."
        )
