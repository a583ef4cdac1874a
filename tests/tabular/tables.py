"""Tables that the tests learn from, and how they call the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from headstart.tabular.schema import Schema

FEW = ("--steps", "60", "--effort", "quick")
N = 60


class Said(NamedTuple):
    code: int
    out: str
    err: str


Headstart = Callable[..., Said]


def houses(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    """A price with numbers, categories, flags, dates, holes, and columns of no use."""
    rng = np.random.default_rng(seed)
    size, city, garden = (
        rng.gamma(4, 30, rows),
        rng.choice(["Köln", "Bonn", "Ulm"], rows),
        rng.random(rows) < 0.4,
    )
    level = pd.Series(city).map({"Köln": 3.0, "Bonn": 2.0, "Ulm": 1.0})
    price = 1000 * (size * level + 50 * garden + 20 * rng.normal(size=rows))
    frame = pd.DataFrame(
        {
            "id": [f"house-{i}" for i in range(rows)],
            "size": size.round(1),
            "city": city,
            "garden": np.where(garden, "yes", "no"),
        }
    )
    frame["built"] = pd.date_range("1950-01-01", periods=rows, freq="37D").strftime("%Y-%m-%d")
    frame["rooms"] = np.where(rng.random(rows) < 0.1, np.nan, (size / 25).round())
    frame["currency"], frame["note"] = "EUR", None
    return frame.assign(price=price.round())


def text_frame(**columns: list[object]) -> pd.DataFrame:
    """Text, as a csv file gives it."""
    given = pd.DataFrame({"y": [str(value) for value in np.linspace(0, 1, N)], **columns})
    return given.map(lambda value: None if pd.isna(value) else str(value))


def learn_schema(**columns: list[object]) -> Schema:
    return Schema.learn(text_frame(**columns), "y")
