"""Mixtures in comparisons, and of tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from headstart import HeadstartError
from headstart.cli.experiments import _counts
from headstart.experiments.plan import comparison
from headstart.experiments.run import run_experiment
from headstart.network.layer import count_members
from headstart.tabular.fit import fit_table
from headstart.tabular.run import TableRun
from headstart.training.recipe import Recipe


def test_a_comparison_has_every_number_of_members() -> None:
    runs = comparison("toy", "mlp-1x50", ["xavier", "iblm"], members=(1, 4))
    assert [(run.members, run.label) for run in runs] == [
        (1, ""),
        (1, ""),
        (4, "xavier, 4 members"),
        (4, "iblm, 4 members"),
    ]
    assert len({run.key for run in runs}) == 4


def test_methods_for_single_posteriors_are_refused_before_anything_runs() -> None:
    with pytest.raises(HeadstartError, match="noisy-kfac trains single posteriors"):
        comparison("toy", "mlp-1x50", ["iblm"], methods=["noisy-kfac"], members=(1, 4))


def test_numbers_on_the_command_line() -> None:
    assert _counts("1,4") == [1, 4]
    for words in ("", "0", "-1", "two", "1.5"):
        with pytest.raises(HeadstartError, match="--members takes whole numbers from 1 on"):
            _counts(words)


def test_a_run_of_members() -> None:
    (run,) = comparison("toy", "mlp-1x20", ["iblm"], steps=5, members=(3,))
    rows = run_experiment(run)
    assert rows[-1]["members"] == 3
    assert rows[-1]["step"] == 5
    assert np.isfinite(rows[-1]["mnll"])


def test_a_table_of_members(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.normal(size=(150, 2)), columns=["a", "b"])
    frame["y"] = frame.a - frame.b
    run = fit_table(frame, "y", recipe=Recipe(steps=20, members=3, effort="quick"))
    assert count_members(run.model) == 3
    run.save(tmp_path / "run")
    again = TableRun.load(tmp_path / "run")
    assert count_members(again.model) == 3
    assert torch.equal(again.predict(frame).draws, run.predict(frame).draws)
