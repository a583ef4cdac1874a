"""The target in disguise: copies, recodings, monotone functions, bands, a class as numbers."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.tabular.leaks import disguise_of

RNG = np.random.default_rng(0)
Y = RNG.gamma(2, 100, 200)
CLASS = RNG.integers(0, 3, 200).astype(float)
LETTERS = np.array(["x", "y", "z"], object)

FOUND = {
    "a copy": (Y, Y, False, "but for its scale"),
    "other units": (-1000 * Y + 7, Y, False, "but for its scale"),
    "a logarithm": (np.log(Y), Y, False, "monotone function"),
    "a falling square": (-(Y**2), Y, False, "monotone function"),
    "bands as words": (np.array([f"{y // 100}" for y in Y], object), Y, False, "in bands"),
    "bands as numbers": (Y // 100, Y, False, "in bands"),
    "a class as words": (LETTERS[CLASS.astype(int)], CLASS, True, "tells the class"),
    "a class as other numbers": (
        np.array([7.0, 3.0, 5.0])[CLASS.astype(int)],
        CLASS,
        True,
        "tells",
    ),
    "a class in intervals": (CLASS + 0.4 * RNG.random(200), CLASS, True, "tells the class"),
}
CLEAN = {
    "a strong column": (Y + RNG.normal(0, 20, 200), Y, False),
    "a category": (LETTERS[CLASS.astype(int)], Y, False),
    "a name of each row": (np.array([f"n{i}" for i in range(200)], object), CLASS, True),
    "a class mostly": (np.where(np.arange(200) < 3, 2 - CLASS, CLASS), CLASS, True),
    "nothing known": (np.full(200, np.nan), Y, False),
    "few rows": (np.arange(9.0), np.repeat([0.0, 1.0], [4, 5]), True),
}


@pytest.mark.parametrize("case", FOUND)
def test_disguises_are_found(case: str) -> None:
    values, y, classes, words = FOUND[case]
    assert words in disguise_of(values, y, classes=classes)


@pytest.mark.parametrize("case", CLEAN)
def test_ordinary_columns_are_not_accused(case: str) -> None:
    values, y, classes = CLEAN[case]
    assert disguise_of(values, y, classes=classes) == ""
