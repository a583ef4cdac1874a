"""What estimators are given, as a table: arrays of numbers, and data frames as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import check_X_y
from sklearn.utils.validation import validate_data

from headstart.errors import HeadstartError
from headstart.tabular.frames import plain_frame
from headstart.tabular.schema import Schema
from headstart.tabular.target import Target

MIN_ROWS = 3
"""Two rows to learn from, one to check."""


def as_table(estimator: Any, X: Any, *, reset: bool) -> pd.DataFrame:
    """The rows as a data frame, checked as scikit-learn checks them.

    A data frame stays as it is: numbers, words, categories, dates and missing cells. Anything else
    is an array of numbers, in which NaN is a missing one; sparse matrices are refused.

    Args:
        estimator: Whose features these are; scikit-learn keeps their names and their number in it.
        X: The rows.
        reset: Whether names and number are learned from these rows, or must be as they were.
    """
    X = X.to_pandas() if hasattr(X, "to_pandas") else X
    if isinstance(X, pd.DataFrame):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        if not len(X):
            raise HeadstartError("X has no rows.")
        # Rows are numbered: a named index would become a column.
        return plain_frame(X.set_axis(range(len(X)), axis=0), "X")
    array = validate_data(
        estimator, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan"
    )
    return pd.DataFrame(array, columns=[f"x{place}" for place in range(array.shape[1])])


def check_labels(
    estimator: Any, X: Any, y: Any, *, min_rows: int = MIN_ROWS, **options: Any
) -> Any:
    """Labels as scikit-learn checks them: as many as rows, none of them missing.

    Args:
        estimator: Whose labels these are.
        X: The rows.
        y: Their labels.
        min_rows: How many there must be.
        options: Those of `sklearn.utils.check_X_y` that are about labels.
    """
    rows = np.zeros((len(X), 1))
    return check_X_y(rows, y, ensure_min_samples=min_rows, estimator=estimator, **options)[1]


def learn_schema(frame: pd.DataFrame, X: Any, y: Any, classes: tuple[str, ...] = ()) -> Schema:
    """What each column is; columns of pandas' type `category` are categories, whatever they hold.

    Args:
        frame: The rows, as `as_table` gives them.
        X: The rows as they were given.
        y: Their labels as they were given.
        classes: The classes in words, if these are.
    """
    kinds = X.dtypes.items() if isinstance(X, pd.DataFrame) else ()
    categories = [str(name) for name, kind in kinds if isinstance(kind, pd.CategoricalDtype)]
    # What is predicted has a name that no column has.
    name = str(getattr(y, "name", None) or "y")
    while name in frame.columns:
        name = f"{name}_"
    target = Target(name, "classification" if classes else "regression", classes)
    return Schema.for_features(frame, target, categories=categories)
