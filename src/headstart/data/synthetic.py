"""Data sets that need no files: a toy curve, and two tables that come with scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from headstart.data.readers import Float64, Int64

TOY_ROWS = 512
TOY_NOISE_STD = math.exp(-2.0)


def toy_function(x: Tensor) -> Tensor:
    """The noise-free toy curve f(x) = sin x + sin(x/2) + sin(x/3) − sin(x/4).

    Args:
        x: Where to evaluate it.

    Example:
        >>> toy_function(torch.zeros(1))
        tensor([0.])
    """
    return torch.sin(x) + torch.sin(x / 2) + torch.sin(x / 3) - torch.sin(x / 4)


def toy_arrays(seed: int = 0) -> tuple[Float64, Float64]:
    """512 draws of x ~ U(−10, 10) and y = f(x) + ε, ε ~ N(0, exp(−2)²): both (512, 1).

    Example:
        >>> x, y = toy_arrays()
        >>> x.shape, y.shape
        ((512, 1), (512, 1))
    """
    random = np.random.Generator(np.random.PCG64(seed))
    x = random.uniform(-10.0, 10.0, size=(TOY_ROWS, 1))
    noise = random.normal(0.0, TOY_NOISE_STD, size=(TOY_ROWS, 1))
    return x, toy_function(torch.from_numpy(x)).numpy() + noise


def digits_arrays() -> tuple[Float64, Int64]:
    """scikit-learn's 8 × 8 digits as rows of 64 gray values, 0 to 16, and their labels."""
    # Here, for it takes a second to import.
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.int64)


def diabetes_arrays() -> tuple[Float64, Float64]:
    """scikit-learn's diabetes table in its own units, and disease progression after a year."""
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True, scaled=False)
    return np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)[:, None]
