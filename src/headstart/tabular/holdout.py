"""Which rows of a table are kept to test on, and what its target is: from the target alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from headstart.errors import HeadstartError
from headstart.reporting.text import plural
from headstart.tabular.columns import MIN_NUMERIC_FRACTION, to_numbers
from headstart.tabular.target import Target, refuse_words, task_of
from headstart.training.folds import split_validation

MIN_TABLE_ROWS = 10


def split_rows(
    labels: pd.Series, name: str, *, task: str = "auto", fraction: float = 0.1, seed: int = 0
) -> tuple[Target, np.ndarray, np.ndarray]:
    """The target, and the positions of the rows to learn from and of those to test on.

    Rows without a label are in neither. A quantity is recognized and split without the labels of
    the test rows: the number of known labels settles which rows those are, and the labels of the
    other rows settle that it is a quantity. Classes are split in proportion: this takes all labels.

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
    train, test = _divide_rows(rows, torch.zeros(len(rows)), fraction, seed)
    if task_of(labels.iloc[train], task) == "regression":
        refuse_words(labels.iloc[rows], name, 1.0)
        return Target.learn(labels.iloc[train], name, "regression"), train, test
    target = Target.learn(labels.iloc[rows], name, "classification")
    places = torch.tensor(target.encode(labels.iloc[rows]))
    return target, *_divide_rows(rows, places, fraction, seed)


def _divide_rows(
    rows: np.ndarray, labels: torch.Tensor, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from and rows to test on; with a fraction of 0 none is tested on."""
    if fraction == 0:
        return rows, rows[:0]
    train, test = split_validation(labels, fraction, seed)
    return rows[train.numpy()], rows[test.numpy()]
