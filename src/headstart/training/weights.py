"""Rows that count more than others: weights by their proportions, and the rows they are worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from headstart.errors import HeadstartError


def kish_rows(weights: Tensor) -> float:
    """Kish's effective number of rows, `(Σ w)² / Σ w²`: all of them where weights are equal.

    Args:
        weights: The weight of each row.

    Example:
        >>> kish_rows(torch.ones(10)), kish_rows(torch.tensor([1.0, 0.0, 1.0]))
        (10.0, 2.0)
    """
    return float(weights.sum() ** 2 / weights.square().sum())


def scaled_weights(weights: Any, rows: int) -> Tensor:
    """Weights in their proportions, so that they add up to the effective number of rows.

    A common factor changes nothing. Where few rows carry most of the weight, all rows together
    count as few, and the posterior is as wide as few rows make it.

    Args:
        weights: The weight of each row, any numbers from 0 on.
        rows: How many rows there are.

    Raises:
        HeadstartError: There is not a weight for each row, or one is negative or not finite, or
            all are zero.

    Example:
        >>> scaled_weights([3, 3, 0, 3], 4).tolist()
        [1.0, 1.0, 0.0, 1.0]
    """
    given = torch.as_tensor(np.asarray(weights, dtype=np.float64))
    if given.shape != (rows,):
        raise HeadstartError(
            f"There must be a weight for each of {rows} rows, not weights of shape "
            f"{tuple(given.shape)}."
        )
    if not bool((given.isfinite() & (given >= 0)).all()):
        raise HeadstartError("Weights are finite numbers from 0 on; one is not.")
    if not bool((given > 0).any()):
        raise HeadstartError("The weight of every row is zero: there is nothing to learn from.")
    return given * (kish_rows(given) / float(given.sum()))
