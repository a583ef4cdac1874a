"""A table as a matrix and labels: which column is what, learned from training rows and kept as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from headstart.errors import HeadstartError, unknown
from headstart.tabular.columns import (
    DATE_FORMS,
    MOST_LEVELS,
    MOSTLY,
    Column,
    Date,
    Number,
    category_of,
    column_from_json,
    labels_of,
    listing,
    plural,
    scale_of,
    to_days,
    to_numbers,
)
from headstart.tabular.target import TASKS, Target

ID_SHARE = 0.9
"""A text column with a larger share of distinct values names its rows."""
FEWEST_FOR_ID = 20


@dataclass
class Schema:
    """The columns that are used, those that are not and why, the target, and what there is to warn of.

    Example:
        >>> frame = pd.DataFrame({"wind": ["1.5", "2.5", "0.5", None] * 6, "city": list("ab") * 12, "wet": list("ynny") * 6})
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
        cls, frame: pd.DataFrame, target: Target, *, ignore: Sequence[str] = ()
    ) -> Schema:
        """Decide on every column from these rows; the index is their position in the table."""
        for name in ignore:
            if name not in frame.columns:
                raise unknown("column to ignore", name, map(str, frame.columns))
        if frame.index.dtype.kind not in "iu":
            frame = frame.reset_index(drop=True)
        schema, columns = cls(target, ()), []
        for name in map(str, frame.columns):
            if name == target.name:
                continue
            column, reason = (
                (None, "was to be ignored")
                if name in ignore
                else _decide(name, frame[name], schema.warnings)
            )
            if column is None:
                schema.left_out[name] = reason
            else:
                columns.append(column)
        if not columns:
            reasons = "; ".join(f"{name!r} {reason}" for name, reason in schema.left_out.items())
            raise HeadstartError(
                f"There is no column beside {target.name!r} to predict it from"
                + (f": {reasons}." if reasons else ".")
            )
        schema.columns = tuple(columns)
        return schema

    def leakage(self, frame: pd.DataFrame) -> list[str]:
        """Warn of what makes scores too good: the target among the features, and copies of rows."""
        y = self.target.encode(frame[self.target.name]).astype(float)
        known = np.isfinite(y)
        found = []
        for column in self.columns:
            first = column.encode(frame[column.name])[:, 0]
            if (
                len(set(y[known])) > 1
                and np.std(first[known]) > 0
                and abs(np.corrcoef(first[known], y[known])[0, 1]) > 0.9999
            ):
                found.append(
                    f"The column {column.name!r} is the target but for its scale: "
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

    def encode(self, frame: pd.DataFrame) -> np.ndarray:
        """The matrix (rows, features); refuses a table that lacks a column, by name."""
        missing = [column.name for column in self.columns if column.name not in frame.columns]
        if missing:
            raise HeadstartError(
                f"The table lacks {plural(len(missing), 'column')} that the model was trained on: {listing(missing)}."
            )
        parts = [column.encode(frame[column.name]) for column in self.columns]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def strange(self, frame: pd.DataFrame) -> dict[str, int]:
        """Columns with values of a kind that training has not seen, and how many."""
        counts = {column.name: column.strange(frame[column.name]) for column in self.columns}
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
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, HeadstartError):
                raise
            raise HeadstartError(
                f"This is not the description of a table: {type(error).__name__} {error}."
            ) from error
        if (
            target.task not in TASKS
            or (target.task == "classification") != (len(target.classes) > 1)
            or not columns
        ):
            raise HeadstartError("The description of the table contradicts itself.")
        return cls(target, columns, left_out, warnings)


def column_of(frame: pd.DataFrame, name: str) -> pd.Series:
    """The column that is to be predicted; refuses a name that is none."""
    if name not in frame.columns:
        raise unknown("column", name, map(str, frame.columns))
    return frame[name]


def strange_in_words(counts: Mapping[str, int]) -> list[str]:
    """A sentence for each column of `Schema.strange`."""
    return [
        f"{plural(count, 'value')} of {name!r} {'is' if count == 1 else 'are'} "
        "of a kind that training has not seen, and taken for missing."
        for name, count in counts.items()
    ]


def _decide(name: str, values: pd.Series, warnings: list[str]) -> tuple[Column | None, str]:
    """The column, or why it is of no use."""
    known = values.dropna()
    if len(known) == 0:
        return None, "is empty"
    if known.map(str).nunique() == 1 and len(known) == len(values):
        return None, "holds a single value"
    numbers = to_numbers(values)
    endless = known.astype(str).str.strip().str.lower().str.lstrip("+-").isin(["inf", "infinity"])
    share = np.isfinite(numbers).sum() / max(1, len(known) - int(endless.sum()))
    if share >= MOSTLY:
        if not np.isfinite(to_numbers(known)).all():
            odd = known[~np.isfinite(to_numbers(known))].iloc[0]
            warnings.append(
                f"The column {name!r} holds numbers and a few other things, like {str(odd)!r}: those count as missing."
            )
        return _number(name, numbers, values.index.to_numpy())
    if date := _date(name, values, known, warnings):
        return date, ""
    distinct = labels_of(known).nunique()
    if len(known) >= FEWEST_FOR_ID and distinct > ID_SHARE * len(known):
        return None, "names its rows: nearly every value is another"
    if distinct > MOST_LEVELS:
        warnings.append(
            f"The column {name!r} has {distinct} levels: the {MOST_LEVELS} most frequent are told apart, the others are not."
        )
    column = category_of(name, values)
    return (column, "") if column.levels else (None, "names its rows: no value occurs twice")


def _date(name: str, values: pd.Series, known: pd.Series, warnings: list[str]) -> Date | None:
    if np.isfinite(to_numbers(known)).mean() > 0.5:
        return None  # a year is a number
    fitting = [form for form in DATE_FORMS if np.isfinite(to_days(known, form)).mean() >= MOSTLY]
    if not fitting:
        return None
    if len(fitting) > 1:
        warnings.append(
            f"The dates of {name!r} are read as {fitting[0]}; {fitting[1]} would fit them too."
        )
    return Date(name, *scale_of(to_days(values, fitting[0])), fitting[0])


def _number(name: str, numbers: np.ndarray, rows: np.ndarray) -> tuple[Column | None, str]:
    seen = numbers[np.isfinite(numbers)]
    if len(np.unique(seen)) == 1 and len(seen) == len(numbers):
        return None, "holds a single value"
    if len(seen) >= FEWEST_FOR_ID and len(seen) == len(numbers) and np.ptp(seen - rows) == 0:
        return None, "counts the rows"
    if len(np.unique(seen)) == 1:  # whether it is there is all that it tells
        return Number(name, float(seen[0]), 1.0, True), ""
    return Number(name, *scale_of(numbers)), ""
