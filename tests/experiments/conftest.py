"""Small runs that need no files, and a command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headstart.experiments.command import comparison
from headstart.experiments.execute import execute
from headstart.experiments.run import Row, Run
from headstart.experiments.store import Store

TIMES = ("seconds", "init_seconds")


def arguments(out: Path, *more: str, steps: int = 40) -> list[str]:
    """The command line that `runs` stands for."""
    options = ["--dataset", "diabetes", "--model", "mlp-2x20", "--init", "xavier,lsuv,iblm", "--steps", str(steps)]
    return [sys.executable, "-m", "headstart.cli", "compare", *options, "--splits", "2", "--out", str(out), *more]


def runs(steps: int = 40) -> list[Run]:
    return comparison("diabetes", "mlp-2x20", ["xavier", "lsuv", "iblm"], steps=steps, splits=2)


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}


def call(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment())


def timeless(rows: list[Row]) -> list[Row]:
    """Rows without their times, in an order of their own."""
    kept: list[Row] = [{name: value for name, value in row.items() if name not in TIMES} for row in rows]
    return sorted(kept, key=lambda row: (row["run"], row["step"]))


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A folder with a small comparison in it."""
    store = Store(tmp_path_factory.mktemp("filled"))
    outcome: Any = execute(runs(), store, jobs=1)
    assert outcome.finished == 6
    store.note("headstart compare --dataset diabetes")
    return store
