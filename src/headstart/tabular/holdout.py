"""Which rows of a table are kept to test on, and what its target is: from the target alone."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from headstart.errors import HeadstartError
from headstart.reporting.text import plural
from headstart.tabular.cells import DATE_FORMS, to_numbers
from headstart.tabular.columns import MIN_NUMERIC_FRACTION
from headstart.tabular.schema import column_of
from headstart.tabular.target import Target, refuse_words, task_of
from headstart.training.folds import split_groups, split_validation

MIN_TABLE_ROWS = 10
MIN_LEARNED_ROWS = 5
"""Rows to learn from, below which nothing is learned."""
MIN_NEIGHBORS, MIN_CORRELATION = 50, 0.3
"""Rows and correlation from which on errors of neighboring rows are called alike."""


@dataclass(frozen=True)
class RowOrder:
    """What a split must respect: groups that stay together, or time.

    Args:
        groups: A number for each row of the table; rows with the same one stay together.
        times: When each row was; the latest are tested on.
    """

    groups: np.ndarray | None = None
    times: np.ndarray | None = None

    @classmethod
    def of(cls, frame: pd.DataFrame, group: str | None, time: str | None) -> RowOrder:
        """By columns of a table.

        Args:
            frame: The table.
            group: The name of the column of groups, if any.
            time: The name of the column of times, numbers or dates, if any.

        Raises:
            HeadstartError: There is no such column, a time is missing, or both are named.
        """
        if group is not None and time is not None:
            raise HeadstartError("Rows are split by groups or by time: name --group or --time.")
        groups = times = None
        if group is not None:
            groups = pd.factorize(column_of(frame, group).astype(str))[0]
        if time is not None:
            times = _moments(column_of(frame, time), time)
        return cls(groups, times)

    @property
    def is_random(self) -> bool:
        """Whether any row may go anywhere."""
        return self.groups is None and self.times is None

    def of_rows(self, rows: np.ndarray) -> np.ndarray | None:
        """The groups of some rows.

        Args:
            rows: Their positions.
        """
        return None if self.groups is None else self.groups[rows]


def _moments(column: pd.Series, name: str) -> np.ndarray:
    """Numbers that order times."""
    found = to_numbers(column)
    if np.isfinite(found).all():
        return found
    # One form for all cells: 03/04 and 13/04 are days of one month, or of none.
    forms = [{"format": form} for form in DATE_FORMS] + [{"dayfirst": True}, {"dayfirst": False}]
    fewest = None
    for options in forms:
        with warnings.catch_warnings():
            # Pandas warns where it must guess a form; what does not fit it is refused below.
            warnings.simplefilter("ignore", UserWarning)
            dates = pd.to_datetime(column, errors="coerce", utc=True, **options)
        if not dates.isna().any():
            return dates.astype("int64").to_numpy(dtype=np.float64)
        if fewest is None or dates.isna().sum() < fewest.isna().sum():
            fewest = dates
    assert fewest is not None
    odd = str(column[fewest.isna()].iloc[0])
    raise HeadstartError(
        f"The column {name!r} holds {odd!r}, which is no time, or not one in the form of the "
        "others: write all of them as 2024-12-31."
    )


def split_rows(
    labels: pd.Series,
    name: str,
    *,
    task: str = "auto",
    fraction: float = 0.1,
    seed: int = 0,
    order: RowOrder | None = None,
) -> tuple[Target, np.ndarray, np.ndarray]:
    """The target, and the positions of the rows to learn from and of those to test on.

    Rows without a label are in neither. A quantity is recognized and split without the labels of
    the test rows: the number of known labels settles which rows those are, and the labels of the
    other rows settle that it is a quantity. Classes are split in proportion: this takes all labels.
    Groups stay together, and of times the latest are tested on; the rows to learn from are then in
    the order of time.

    Example:
        >>> target, train, test = split_rows(pd.Series([None, *range(40)]), "price")
        >>> target.task, len(train), len(test)
        ('regression', 36, 4)
    """
    known = labels.notna().to_numpy()
    if known.sum() < MIN_TABLE_ROWS:
        known_rows = f"{plural(int(known.sum()), 'row')} with a known {name!r}"
        raise HeadstartError(f"The table has {known_rows}; at least {MIN_TABLE_ROWS} are needed.")
    if task == "regression":
        refuse_words(labels[known], name, MIN_NUMERIC_FRACTION)
        known = np.isfinite(to_numbers(labels))
    rows = np.flatnonzero(known)
    order = order or RowOrder()
    train, test = _divide_rows(rows, torch.zeros(len(rows)), fraction, seed, order)
    if len(train) < MIN_LEARNED_ROWS:
        raise HeadstartError(
            f"{plural(len(train), 'row')} would be left to learn from, and {len(test)} to test on: "
            f"keep at least {MIN_LEARNED_ROWS} with a smaller --test-share."
        )
    if task_of(labels.iloc[train], task) == "regression":
        refuse_words(labels.iloc[rows], name, 1.0)
        return Target.learn(labels.iloc[train], name, "regression"), train, test
    target = Target.learn(labels.iloc[rows], name, "classification")
    places = torch.tensor(target.encode(labels.iloc[rows]))
    return target, *_divide_rows(rows, places, fraction, seed, order)


def _divide_rows(
    rows: np.ndarray, labels: torch.Tensor, fraction: float, seed: int, order: RowOrder
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from and rows to test on; with a fraction of 0 none is tested on."""
    count = max(1, round(fraction * len(rows))) if fraction else 0
    if order.times is not None:
        rows = rows[np.argsort(order.times[rows], kind="stable")]
        return rows[: len(rows) - count], rows[len(rows) - count :]
    if not count:
        return rows, rows[:0]
    if order.groups is not None:
        learned, tested = split_groups(order.groups[rows], fraction, seed)
        return rows[learned], rows[tested]
    train, test = split_validation(labels, fraction, seed)
    return rows[train.numpy()], rows[test.numpy()]


def neighbor_correlation(positions: np.ndarray, residuals: np.ndarray) -> float:
    """How much alike the errors of neighboring rows are: the correlation of one with the next.

    Args:
        positions: Where each row stands in the table.
        residuals: Its error.

    Returns:
        The correlation; 0 where it is no larger than chance gives among so many rows.

    Example:
        >>> neighbor_correlation(np.arange(100), np.arange(100) % 2)
        0.0
        >>> round(neighbor_correlation(np.arange(100), np.arange(100) // 50), 1)
        1.0
    """
    if len(residuals) < MIN_NEIGHBORS or np.ptp(residuals) == 0:
        return 0.0
    ordered = residuals[np.argsort(positions)]
    found = float(np.corrcoef(ordered[:-1], ordered[1:])[0, 1])
    return found if found > max(MIN_CORRELATION, 4 / np.sqrt(len(ordered))) else 0.0
