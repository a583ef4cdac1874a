"""Small runs that need no files, and made-up rows."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from headstart.experiments.execute import execute
from headstart.experiments.plan import comparison, plan
from headstart.experiments.spec import ResultRow, Run
from headstart.experiments.store import Store

TIMES = ("seconds", "init_seconds")


def words(out: Path, *more: str, steps: int = 40) -> list[str]:
    """The command line that `runs` stands for."""
    options = [
        "--dataset",
        "diabetes",
        "--model",
        "mlp-2x20",
        "--init",
        "xavier,lsuv,iblm",
        "--steps",
        str(steps),
    ]
    return ["compare", *options, "--splits", "2", "--out", str(out), *more]


def runs(steps: int = 40) -> list[Run]:
    return comparison("diabetes", "mlp-2x20", ["xavier", "lsuv", "iblm"], steps=steps, splits=2)


def timeless(rows: list[ResultRow]) -> list[ResultRow]:
    """Rows without their times, in an order of their own."""
    kept: list[ResultRow] = [
        {name: value for name, value in row.items() if name not in TIMES} for row in rows
    ]
    return sorted(kept, key=lambda row: (row["run"], row["step"]))


def row(init: str, split: int, step: int, rmse: float | None, **more: object) -> ResultRow:
    """A made-up row of regression-deep."""
    settings = {
        **dataclasses.asdict(plan("regression-deep")[0]),
        "versions": {"headstart": "0.1", "torch": "2.0"},
    }
    scores = {
        "rmse": rmse,
        "mnll": rmse,
        "paper_nll": rmse,
        "trivial": 0.98,
        "nc": False,
        "seconds": 1.0,
    }
    place = {
        "run": f"{init}{split}",
        "init": init,
        "split": split,
        "seed": split,
        "step": step,
        "init_seconds": 0.5,
    }
    return {**settings, **place, **scores, **more}


def store_of(rows: list[ResultRow], folder: Path) -> Store:
    store = Store(folder)
    for key in dict.fromkeys(r["run"] for r in rows):
        store.append([r for r in rows if r["run"] == key])
    return store


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A folder with a small comparison in it."""
    store = Store(tmp_path_factory.mktemp("filled"))
    outcome: Any = execute(runs(), store, jobs=1)
    assert outcome.finished == 6
    store.note("headstart compare --dataset diabetes")
    return store
