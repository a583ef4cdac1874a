"""A fitted table on disk: a folder that version 0.1 has written is read, and predicts as it did."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from headstart.tabular.frames import read_frame
from headstart.tabular.page import write_page
from headstart.tabular.predict import prediction_frame
from headstart.tabular.run import TABLE_FILE, TableRun

OLD = Path(__file__).parent / "run_0_1"


def test_a_run_of_version_0_1_predicts_as_it_did() -> None:
    found = prediction_frame(TableRun.load(OLD), read_frame(OLD / "new.csv"))
    written = pd.read_csv(OLD / "predictions.csv")
    pd.testing.assert_frame_equal(found, written, rtol=1e-6)


def test_a_run_of_version_0_1_is_written_anew_and_shown(tmp_path: Path) -> None:
    old = TableRun.load(OLD)
    old.save(tmp_path / "run")
    again = TableRun.load(tmp_path / "run")
    assert again.schema == old.schema
    assert again.calibration == old.calibration
    assert again.found == old.found
    table = json.loads((tmp_path / "run" / TABLE_FILE).read_text())
    assert set(table["calibration"]["factors"]) == {"0.5", "0.95"}
    assert {"center", "scale"} < set(table["schema"]["columns"][0])
    page = write_page(again, tmp_path / "run").read_text(encoding="utf-8")
    assert "Predicting price" in page
