"""A table as a matrix and labels: what each column is, learned from training rows, kept as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from headstart.errors import HeadstartError, unknown
from headstart.reporting.text import listing, plural
from headstart.tabular.cells import (
    DATE_FORMS,
    are_long_numbers,
    labels_of,
    to_days,
    to_numbers,
)
from headstart.tabular.columns import (
    MIN_NUMERIC_FRACTION,
    Column,
    DateColumn,
    NumberColumn,
    category_column,
    center_and_scale,
    column_from_json,
    warn_of_levels,
    warn_of_unit,
)
from headstart.tabular.leaks import disguise_of
from headstart.tabular.quotes import Written, as_written, warn_of_marks
from headstart.tabular.target import TARGET_TASKS, Target, doubtful_classes

MAX_DISTINCT_FRACTION = 0.9
"""A text column with a larger fraction of distinct values names its rows."""
MIN_ID_ROWS = 20
MAX_LEAK_ROWS = 20_000
"""Rows that are enough to tell the target in disguise."""


@dataclass
class Schema:
    """How a table becomes numbers.

    Args:
        target: What is predicted.
        columns: The columns that are used, each with what was learned about it.
        left_out: The columns that are not used, and why.
        warnings: What there is to warn of.

    Example:
        >>> wind, city = ["1.5", "2.5", "0.5", None] * 6, list("ab") * 12
        >>> frame = pd.DataFrame({"wind": wind, "city": city, "wet": list("ynny") * 6})
        >>> schema = Schema.learn(frame, "wet")
        >>> schema.target.task, schema.feature_names
        ('classification', ('wind', 'wind is missing', 'city = a', 'city = b'))
        >>> schema.encode(frame).shape
        (24, 4)
    """

    target: Target
    columns: tuple[Column, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def learn(
        cls, frame: pd.DataFrame, target: str, *, task: str = "auto", ignore: Sequence[str] = ()
    ) -> Schema:
        """Decide on the target and on every column from these rows."""
        return cls.for_target(
            frame, Target.learn(column_of(frame, target), target, task), ignore=ignore
        )

    @classmethod
    def for_target(
        cls,
        frame: pd.DataFrame,
        target: Target,
        *,
        ignore: Sequence[str] = (),
        written: Written | None = None,
    ) -> Schema:
        """Decide on every column from these rows; the index is their position in the table."""
        for name in ignore:
            if name not in frame.columns:
                raise unknown("column to ignore", name, map(str, frame.columns))
        if frame.index.dtype.kind not in "iu":
            frame = frame.reset_index(drop=True)
        schema = cls(target, ())
        if not target.classes:
            warn_of_marks(target.name, frame[target.name], schema.warnings, written)
        schema.warnings += doubtful_classes(target, frame[target.name])
        schema.left_out = {name: "was to be ignored" for name in frame.columns if name in ignore}
        decide = partial(_decide, written=written)
        schema._decide_columns(frame.drop(columns=target.name), decide)
        return schema

    @classmethod
    def for_features(
        cls, frame: pd.DataFrame, target: Target, *, categories: Sequence[str] = ()
    ) -> Schema:
        """Decide on every column of a table without a target, of which no number is left out.

        Args:
            frame: The rows, as `plain_frame` has them.
            target: What is predicted.
            categories: The names of columns whose values are levels, even where they are numbers.
        """
        schema = cls(target, ())
        decide = partial(_decide_feature, categories=frozenset(categories))
        schema._decide_columns(frame, decide)
        return schema

    def _decide_columns(
        self,
        frame: pd.DataFrame,
        decide: Callable[[str, pd.Series, list[str]], tuple[Column | None, str]],
    ) -> None:
        columns = []
        for name in frame.columns.difference(list(self.left_out), sort=False):
            column, reason = decide(name, frame[name], self.warnings)
            if column is None:
                self.left_out[name] = reason
            else:
                columns.append(column)
        if not columns:
            reasons = "; ".join(f"{name!r} {reason}" for name, reason in self.left_out.items())
            raise HeadstartError(
                f"There is no column beside {self.target.name!r} to predict it from"
                + (f": {reasons}." if reasons else ".")
            )
        self.columns = tuple(columns)

    def leakage(self, frame: pd.DataFrame) -> list[str]:
        """Warn of what makes scores too good: the target among the features, and copies of rows."""
        some = frame.iloc[:: max(1, len(frame) // MAX_LEAK_ROWS)]
        y = self.target.encode(some[self.target.name]).astype(float)
        known = np.isfinite(y) & (y >= 0 if self.target.classes else True)
        found = []
        for column in self.columns:
            values = column.read(some[column.name][known])
            if what := disguise_of(values, y[known], classes=bool(self.target.classes)):
                found.append(
                    f"The column {column.name!r} {what}: "
                    "if it is not known when you predict, leave it out with --ignore."
                )
        doubles = int(frame.duplicated().sum())
        if doubles > 0.01 * len(frame):
            found.append(
                f"{plural(doubles, 'row')} of {len(frame)} occur more than once: "
                "copies on both sides of the split make scores too good."
            )
        return found

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.features)

    @property
    def date_names(self) -> frozenset[str]:
        """The names of the columns that hold dates."""
        return frozenset(column.name for column in self.columns if isinstance(column, DateColumn))

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The names of the columns of `keys`: categories with too many levels for features."""
        return tuple(column.name for column in self.columns if column.has_keys)

    def keys(self, frame: pd.DataFrame) -> np.ndarray:
        """The number of each row's level, −1 for one without: (rows, key columns)."""
        self._check_columns(frame)
        return np.concatenate([column.keys(frame[column.name]) for column in self.columns], axis=1)

    def encode(self, frame: pd.DataFrame) -> np.ndarray:
        """The matrix (rows, features); refuses a table that lacks a column, by name."""
        self._check_columns(frame)
        parts = [column.encode(frame[column.name]) for column in self.columns]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def _check_columns(self, frame: pd.DataFrame) -> None:
        missing = [column.name for column in self.columns if column.name not in frame.columns]
        if missing:
            raise HeadstartError(
                f"The table lacks {plural(len(missing), 'column')} that the model was trained on: "
                f"{listing(missing)}."
            )

    def unseen(self, frame: pd.DataFrame) -> dict[str, int]:
        """Columns with values of a kind that training has not seen, and how many."""
        counts = {column.name: column.unseen(frame[column.name]) for column in self.columns}
        return {name: count for name, count in counts.items() if count}

    def to_json(self) -> dict[str, Any]:
        return {
            "target": {
                "name": self.target.name,
                "task": self.target.task,
                "classes": list(self.target.classes),
            },
            "columns": [column.to_json() for column in self.columns],
            "left_out": self.left_out,
            "warnings": self.warnings,
        }

    @classmethod
    def from_json(cls, entry: Any) -> Schema:
        """What `to_json` wrote; anything else is refused with a sentence."""
        try:
            target = Target(
                str(entry["target"]["name"]),
                entry["target"]["task"],
                tuple(map(str, entry["target"]["classes"])),
            )
            columns = tuple(column_from_json(column) for column in entry["columns"])
            left_out = {str(name): str(reason) for name, reason in entry["left_out"].items()}
            warnings = [str(warning) for warning in entry["warnings"]]
        except HeadstartError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise HeadstartError(
                f"This is not the description of a table: {type(error).__name__} {error}."
            ) from error
        if (
            target.task not in TARGET_TASKS
            or (target.task == "classification") != (len(target.classes) > 1)
            or not columns
        ):
            raise HeadstartError("The description of the table contradicts itself.")
        return cls(target, columns, left_out, warnings)


def column_of(frame: pd.DataFrame, name: str) -> pd.Series:
    """The column that is to be predicted; refuses a name that is none."""
    if name not in frame.columns:
        if len(frame.columns) == 1:
            raise HeadstartError(
                f"There is no column {name!r}: the table has a single column, "
                f"{str(frame.columns[0])!r}. Its first line must be a header, with commas, "
                "semicolons, tabs or bars between the names."
            )
        raise unknown("column", name, map(str, frame.columns))
    return frame[name]


def unseen_in_words(counts: Mapping[str, int]) -> list[str]:
    """A sentence for each column of `Schema.unseen`."""
    return [
        f"{plural(count, 'value')} of {name!r} {'is' if count == 1 else 'are'} "
        "of a kind that training has not seen: a new category counts as 'other', "
        "any other value as missing."
        for name, count in counts.items()
    ]


def _decide(
    name: str, values: pd.Series, warnings: list[str], written: Written | None
) -> tuple[Column | None, str]:
    """The column, or why it is of no use."""
    known = values.dropna()
    if len(known) == 0:
        return None, "is empty"
    if known.map(str).nunique() == 1 and len(known) == len(values):
        return None, "holds a single value"
    if are_long_numbers(known) and _names_rows(known):
        return None, NAMES_ROWS
    numbers = to_numbers(values)
    infinite = known.astype(str).str.strip().str.lower().str.lstrip("+-").isin(["inf", "infinity"])
    numeric = np.isfinite(numbers).sum() / max(1, len(known) - int(infinite.sum()))
    if numeric >= MIN_NUMERIC_FRACTION:
        if not np.isfinite(to_numbers(known)).all():
            odd = as_written(name, str(known[~np.isfinite(to_numbers(known))].iloc[0]), written)
            warnings.append(
                f"The column {name!r} holds numbers and a few other things, like {odd!r}: "
                "those count as missing."
            )
        warn_of_marks(name, known, warnings, written)
        return _number_column(name, numbers, values.index.to_numpy())
    if date := _date_column(name, values, known, warnings):
        return date, ""
    warn_of_unit(name, known, warnings)
    if _names_rows(known):
        return None, NAMES_ROWS
    column = category_column(name, values)
    warn_of_levels(column, known, warnings)
    return (column, "") if column.levels else (None, "names its rows: no value occurs twice")


def _names_rows(known: pd.Series) -> bool:
    """Whether nearly every value is another."""
    enough = len(known) >= MIN_ID_ROWS
    return enough and labels_of(known).nunique() > MAX_DISTINCT_FRACTION * len(known)


NAMES_ROWS = "names its rows: nearly every value is another"


def _decide_feature(
    name: str, values: pd.Series, warnings: list[str], categories: frozenset[str]
) -> tuple[Column | None, str]:
    """As `_decide`, but levels stay levels and numbers numbers, if they never vary, too."""
    if name in categories:
        column = category_column(name, values)
        return (column, "") if column.levels else (None, "names its rows: no value occurs twice")
    if not pd.api.types.is_numeric_dtype(values.dtype):
        return _decide(name, values, warnings, None)
    numbers = to_numbers(values)
    seen = numbers[np.isfinite(numbers)]
    if len(seen) == 0:
        return None, "is empty"
    if len(seen) < values.notna().sum():
        warnings.append(f"The column {name!r} holds infinite numbers: those count as missing.")
    if len(np.unique(seen)) == 1:
        return NumberColumn(name, float(seen[0]), 1.0, len(seen) < len(numbers)), ""
    return NumberColumn(name, *center_and_scale(numbers)), ""


def _date_column(
    name: str, values: pd.Series, known: pd.Series, warnings: list[str]
) -> DateColumn | None:
    if np.isfinite(to_numbers(known)).mean() > 0.5:
        # A year is a number.
        return None
    fitting = [
        form
        for form in DATE_FORMS
        if np.isfinite(to_days(known, form)).mean() >= MIN_NUMERIC_FRACTION
    ]
    if not fitting:
        return None
    if len(fitting) > 1:
        warnings.append(
            f"The dates of {name!r} are read as {fitting[0]}; {fitting[1]} would fit them too."
        )
    return DateColumn(name, *center_and_scale(to_days(values, fitting[0])), fitting[0])


def _number_column(name: str, numbers: np.ndarray, rows: np.ndarray) -> tuple[Column | None, str]:
    seen = numbers[np.isfinite(numbers)]
    if len(np.unique(seen)) == 1 and len(seen) == len(numbers):
        return None, "holds a single value"
    if len(seen) >= MIN_ID_ROWS and len(seen) == len(numbers) and np.ptp(seen - rows) == 0:
        return None, "counts the rows"
    if len(np.unique(seen)) == 1:
        # Whether it is there is all that it tells.
        return NumberColumn(name, float(seen[0]), 1.0, True), ""
    return NumberColumn(name, *center_and_scale(numbers)), ""
