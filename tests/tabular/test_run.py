"""A fitted table on disk: never over other files, damaged, and as version 0.1 has written it."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from headstart.tabular.fit import fit_table
from headstart.tabular.frames import read_frame
from headstart.tabular.page import write_page
from headstart.tabular.predict import prediction_frame
from headstart.tabular.run import TABLE_FILE, TableRun
from headstart.training.recipe import Recipe
from tests.tabular.tables import FEW, Headstart, houses

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


@pytest.mark.slow
def test_a_folder_in_use_is_not_touched(fitted: Path, headstart: Headstart, tmp_path: Path) -> None:
    before = (fitted / "run" / "table.json").read_text()
    said = headstart(
        "fit", fitted / "train.csv", "--target", "price", "--out", fitted / "run", *FEW
    )
    assert said.code == 2
    assert "--overwrite" in said.err
    assert (fitted / "run" / "table.json").read_text() == before
    (fitted / "run" / "notes.txt").write_text("mine")
    said = headstart(
        "fit",
        fitted / "train.csv",
        "--target",
        "price",
        "--out",
        fitted / "run",
        "--overwrite",
        *FEW,
    )
    assert said.code == 2
    assert "'notes.txt'" in said.err
    (fitted / "run" / "notes.txt").unlink()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("x")
    assert (
        headstart(
            "fit",
            fitted / "train.csv",
            "--target",
            "price",
            "--out",
            tmp_path / "mine",
            "--overwrite",
            *FEW,
        ).code
        == 2
    )
    houses(60).to_csv(tmp_path / "t.csv", index=False)
    for extra in ((), ("--overwrite",)):
        assert (
            headstart(
                "fit",
                tmp_path / "t.csv",
                "--target",
                "price",
                "--out",
                tmp_path / "run",
                *FEW,
                *extra,
            ).code
            == 0
        )


@pytest.mark.parametrize("damage", ["missing", "cut", "not json", "format", "model", "schema"])
def test_damaged_runs_get_a_sentence(
    fitted: Path, headstart: Headstart, tmp_path: Path, damage: str
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for path in (fitted / "run").iterdir():
        (run / path.name).write_bytes(path.read_bytes())
    table = run / "table.json"
    entry = json.loads(table.read_text())
    actions = {
        "missing": table.unlink,
        "cut": lambda: table.write_text(table.read_text()[:100]),
        "not json": lambda: table.write_bytes(b"\xff\xfe"),
        "format": lambda: table.write_text(json.dumps({**entry, "format": 99})),
        "model": lambda: (run / "model.safetensors").write_bytes(
            (run / "model.safetensors").read_bytes()[:500]
        ),
        "schema": lambda: table.write_text(json.dumps({**entry, "schema": {"target": 3}})),
    }
    actions[damage]()
    said = headstart("predict", run, fitted / "train.csv", "--out", tmp_path / "p.csv")
    assert said.code == 2
    assert len(said.err.strip().splitlines()) == 1
    assert not (tmp_path / "p.csv").exists()


def test_a_net_with_waves_of_the_features_is_stored_with_them(tmp_path: Path) -> None:
    table = houses(80)
    recipe = Recipe(model="mlp-1x10-periodic2", steps=5, effort="quick", trees=False, samples=1)
    run = fit_table(table, "price", recipe=recipe)
    run.save(tmp_path / "run")
    again = TableRun.load(tmp_path / "run")
    pd.testing.assert_frame_equal(prediction_frame(run, table), prediction_frame(again, table))
