"""A second run of a row is equal to the last bit, for every method, optimizer and start.

That another process gives the same rows is tested in test_execute.py.
"""

from __future__ import annotations

import dataclasses
import json

import pytest

from headstart.experiments.run import run_experiment
from headstart.experiments.spec import ResultRow, Run
from tests.experiments.conftest import timeless

SHORT = Run("digits", "mlp-2x20", "iblm", steps=12, checkpoints=(4,), samples=4, eval_samples=8)
CASES = {
    "averaged": dataclasses.replace(SHORT, optimizer="averaged"),
    "adam": SHORT,
    "regression": dataclasses.replace(SHORT, dataset="diabetes"),
    "split in time": dataclasses.replace(SHORT, dataset="diabetes", split_by="time", split=2),
    "one draw": dataclasses.replace(SHORT, init="iblm-paper", init_options={"one_draw": True}),
    "orthogonal": dataclasses.replace(SHORT, init="orthogonal", prior="learned"),
    "lsuv": dataclasses.replace(SHORT, init="lsuv", samples=16),
    "mixture": dataclasses.replace(SHORT, members=2),
    "mc-dropout": dataclasses.replace(SHORT, init="stock", method="mc-dropout"),
    "noisy-kfac": dataclasses.replace(
        SHORT, init="stock", method="noisy-kfac", posterior="matrix_normal"
    ),
}


def bits(rows: list[ResultRow]) -> str:
    """Rows without their times as text: `repr` of a float has all of its bits."""
    return json.dumps(timeless(rows))


@pytest.mark.parametrize("case", CASES)
def test_a_second_run_of_a_row_is_equal_to_the_last_bit(case: str) -> None:
    assert bits(run_experiment(CASES[case])) == bits(run_experiment(CASES[case]))
