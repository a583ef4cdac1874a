"""The target in disguise among the columns: copies, recodings, monotone functions, bands."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from headstart.tabular.columns import Matrix

SAME = 0.9999
"""The correlation from which on a column is the target."""
MIN_LEAK_ROWS = 30
"""Rows below which an order may agree by chance."""
MIN_ROWS_PER_LEVEL = 3.0
"""Rows of a level, on average, for its agreement with the target to mean something."""


def disguise_of(values: Matrix, y: Matrix, *, classes: bool) -> str:
    """What makes a column the target in disguise, in words; empty where nothing does.

    Args:
        values: What the column's `read` makes of its cells: numbers or labels.
        y: The target in the same rows, all known: numbers, or the places of classes.
        classes: Whether those are classes.

    Example:
        >>> y = np.linspace(1.0, 2.0, 50)
        >>> disguise_of(y**3, y, classes=False)
        'is a monotone function of the target'
    """
    if len(set(y)) < 2:
        return ""
    if values.dtype == object:
        return _disguised_levels(values, y, classes)
    known = np.isfinite(values)
    return _disguised_numbers(values[known], y[known], classes) if known.mean() > 0.5 else ""


def _disguised_numbers(values: Matrix, y: Matrix, classes: bool) -> str:
    if np.std(values) == 0 or np.std(y) == 0:
        return ""
    if abs(np.corrcoef(values, y)[0, 1]) > SAME:
        return "is the target but for its scale"
    if len(y) < MIN_LEAK_ROWS:
        return ""
    if classes:
        return "tells the class of every row" if _splits_classes(values, y) else ""
    if abs(stats.spearmanr(values, y).statistic) > SAME:
        return "is a monotone function of the target"
    if len(set(values)) < len(y) / MIN_ROWS_PER_LEVEL and _in_bands(values, y):
        return "is the target in bands"
    return ""


def _disguised_levels(values: Matrix, y: Matrix, classes: bool) -> str:
    levels = len(set(values))
    if len(y) < MIN_LEAK_ROWS or not 1 < levels <= len(y) / MIN_ROWS_PER_LEVEL:
        return ""
    if classes:
        one_class = pd.Series(y).groupby(values).nunique().max() == 1
        return "tells the class of every row" if one_class else ""
    return "is the target in bands" if levels > 2 and _in_bands(values, y) else ""


def _splits_classes(values: Matrix, y: Matrix) -> bool:
    """Whether each class has an interval of its own."""
    ends = pd.Series(values).groupby(y).agg(["min", "max"]).sort_values("min")
    return bool((ends["max"].to_numpy()[:-1] < ends["min"].to_numpy()[1:]).all())


def _in_bands(values: Matrix, y: Matrix) -> bool:
    """Whether the values divide the target into at least three intervals without overlap."""
    ends = pd.Series(y).groupby(values).agg(["min", "max"]).sort_values("min")
    apart = ends["max"].to_numpy()[:-1] < ends["min"].to_numpy()[1:]
    return len(ends) > 2 and bool(apart.all())
