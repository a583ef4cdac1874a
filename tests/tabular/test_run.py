"""A fitted table on disk: a folder that version 0.1 has written is read, and predicts as it did."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from headstart.tabular.frames import read_frame
from headstart.tabular.predict import predictions
from headstart.tabular.run import TableRun

OLD = Path(__file__).parent / "run_0_1"


def test_a_run_of_version_0_1_predicts_as_it_did() -> None:
    found = predictions(TableRun.load(OLD), read_frame(OLD / "new.csv"))
    written = pd.read_csv(OLD / "predictions.csv")
    pd.testing.assert_frame_equal(found, written, rtol=1e-6)
