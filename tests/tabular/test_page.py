"""The page of a fitted table: the same from the run in memory as from its folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headstart.tabular.fit import fit_table
from headstart.tabular.page import write_page
from headstart.tabular.run import TableRun
from headstart.training.recipe import Recipe


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_the_page_is_the_same_from_memory_and_from_disk(tmp_path: Path, task: str) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(80, 2)), columns=["a", "b"])
    frame["y"] = frame["a"] if task == "regression" else (frame["a"] > 0).map(str)
    run = fit_table(frame, "y", recipe=Recipe(model="mlp-1x8", steps=12))
    run.save(tmp_path / "run")
    from_memory = write_page(run, tmp_path / "run").read_bytes()
    from_disk = write_page(TableRun.load(tmp_path / "run"), tmp_path / "run").read_bytes()
    assert from_memory == from_disk
