"""Predictions: their columns, rows unlike training, chunks and pipes, values never seen."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headstart.tabular.fit import fit_table
from headstart.tabular.run import TableRun
from headstart.training.recipe import Recipe
from tests.tabular.tables import FEW, Headstart, houses


def test_predictions_have_their_parts(fitted: Path, headstart: Headstart) -> None:
    new = houses(300, seed=1)
    new.to_csv(fitted / "new.csv", index=False)
    said = headstart("predict", fitted / "run", fitted / "new.csv", "--out", fitted / "p.csv")
    assert said.code == 0, said.err
    assert "300 rows predicted" in said.err
    found = pd.read_csv(fitted / "p.csv")
    assert list(found.columns) == [
        "prediction",
        "sd",
        "sd_aleatoric",
        "sd_epistemic",
        "lower_50",
        "upper_50",
        "lower_95",
        "upper_95",
        "unlike_training",
        "unlike_because",
    ]
    np.testing.assert_allclose(
        found["sd"] ** 2, found["sd_aleatoric"] ** 2 + found["sd_epistemic"] ** 2, rtol=1e-3
    )
    assert (found["lower_95"] < found["lower_50"]).all()
    covered = ((new["price"] >= found["lower_95"]) & (new["price"] <= found["upper_95"])).mean()
    assert 0.85 < covered <= 1
    assert np.corrcoef(found["prediction"], new["price"])[0, 1] > 0.9


def test_rows_unlike_the_training_data_are_flagged(fitted: Path, headstart: Headstart) -> None:
    outlying = houses(50, seed=2).assign(size=4000.0, rooms=150.0)
    outlying.to_csv(fitted / "outlying.csv", index=False)
    said = headstart(
        "predict", fitted / "run", fitted / "outlying.csv", "--out", fitted / "s.csv", "--json"
    )
    told = json.loads(said.out)
    assert told["rows"] == 50
    assert told["unlike_training"] > 40


def test_streams_pipes_and_pieces_give_the_same(
    fitted: Path, monkeypatch: pytest.MonkeyPatch, headstart: Headstart
) -> None:
    from headstart.tabular import frames

    houses(120, seed=3).to_csv(fitted / "n.csv", index=False)
    whole = headstart("predict", fitted / "run", fitted / "n.csv")
    assert whole.code == 0
    with (fitted / "n.csv").open("rb") as source:
        monkeypatch.setattr(sys, "stdin", type("Pipe", (), {"buffer": source})())
        assert headstart("predict", fitted / "run", "-", "--out", "-").out == whole.out
    monkeypatch.setattr(frames.read_chunks, "__defaults__", (7,))
    assert (
        headstart(
            "predict",
            fitted / "run",
            fitted / "n.csv",
            "--out",
            fitted / "n.csv.gz",
            "--with-inputs",
        ).code
        == 0
    )
    pieces = pd.read_csv(fitted / "n.csv.gz")
    assert list(pieces.columns[:2]) == ["id", "size"]
    np.testing.assert_allclose(
        pieces["prediction"], pd.read_csv(pd.io.common.StringIO(whole.out))["prediction"], rtol=1e-5
    )


def test_new_levels_and_holes_are_told_and_missing_columns_refused(
    fitted: Path, headstart: Headstart
) -> None:
    table = houses(20, seed=4)
    table.loc[3, "city"], table.loc[4, "size"] = "Rome", np.nan
    table.to_csv(fitted / "odd.csv", index=False)
    said = headstart("predict", fitted / "run", fitted / "odd.csv", "--out", fitted / "o.csv")
    assert said.code == 0
    assert "1 value of 'city'" in said.err
    table.drop(columns=["size", "garden"]).to_csv(fitted / "less.csv", index=False)
    (fitted / "kept.csv").write_text("mine")
    said = headstart("predict", fitted / "run", fitted / "less.csv", "--out", fitted / "kept.csv")
    assert said.code == 2
    assert "lacks 2 columns" in said.err
    assert "'size', 'garden'" in said.err
    assert (fitted / "kept.csv").read_text() == "mine"
    assert not [path for path in fitted.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_predictions(tmp_path: Path, headstart: Headstart) -> None:
    houses(100).to_csv(tmp_path / "t.csv", index=False)
    out = []
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        assert (
            headstart(
                "fit",
                tmp_path / "t.csv",
                "--target",
                "price",
                "--out",
                tmp_path / name,
                "--seed",
                seed,
                *FEW,
            ).code
            == 0
        )
        out.append(headstart("predict", tmp_path / name, tmp_path / "t.csv").out)
    assert out[0] == out[1] != out[2]


def test_levels_are_those_that_were_asked_for(
    fitted: Path, headstart: Headstart, tmp_path: Path
) -> None:
    """A conformal run has those it was calibrated for; any other one has all of them."""
    houses(40, seed=6).to_csv(tmp_path / "n.csv", index=False)
    run = TableRun.load(fitted / "run")
    replace(run, folds=()).save(tmp_path / "plain")
    run.calibration = replace(run.calibration, factors={0.5: 1.0, 0.95: 2.0})
    replace(run, folds=()).save(tmp_path / "split")
    said = headstart("predict", tmp_path / "split", tmp_path / "n.csv", "--levels", "80")
    assert said.code == 2
    assert "recalibrated, at 50% and 95%: at 80% there is none" in said.err
    found = pd.read_csv(
        io.StringIO(
            headstart("predict", tmp_path / "plain", tmp_path / "n.csv", "--levels", "99.5,80").out
        )
    )
    assert list(found.columns[4:8]) == ["lower_80", "upper_80", "lower_99.5", "upper_99.5"]
    assert (found["lower_99.5"] < found["lower_80"]).all()
    wrong = (("0", "not at 0 %"), ("120", "not at 120 %"), ("many", "takes numbers"))
    for levels, words in wrong:
        said = headstart("predict", tmp_path / "plain", tmp_path / "n.csv", "--levels", levels)
        assert said.code == 2
        assert words in said.err


def test_classes_have_no_levels(headstart: Headstart, tmp_path: Path) -> None:
    frame = houses(60).assign(price=lambda table: table["city"].map({"Ulm": "low"}).fillna("high"))
    recipe = Recipe(model="mlp-1x8", steps=20, samples=2, effort="quick", seed=0)
    fit_table(frame.drop(columns="city"), "price", recipe=recipe).save(tmp_path / "run")
    said = headstart("predict", tmp_path / "run", tmp_path / "none.csv", "--levels", "90")
    assert said.code == 2
    # Before any work: the table is not even looked for.
    assert said.err == (
        "headstart: --levels are those of intervals of numbers, and 'price' holds classes, which "
        "have none: leave it out.\n"
    )
    frame.to_csv(tmp_path / "n.csv", index=False)
    assert headstart("predict", tmp_path / "run", tmp_path / "n.csv").code == 0


def test_a_level_that_needs_more_held_out_rows_is_told_once(
    fitted: Path, headstart: Headstart, tmp_path: Path
) -> None:
    houses(30, seed=6).to_csv(tmp_path / "n.csv", index=False)
    (fold,) = TableRun.load(fitted / "run").folds
    asked = ("predict", fitted / "run", tmp_path / "n.csv", "--levels", "95,99,99.9")
    said = headstart(*asked)
    found = pd.read_csv(io.StringIO(said.out))
    assert np.isfinite(found["upper_95"]).all()
    assert np.isinf(found[["lower_99", "upper_99", "upper_99.9"]]).all(axis=None)
    note = (
        f"Note: {len(fold.scores)} held-out rows are too few for a conformal interval of 99 % (it "
        "takes 99) and of 99.9 % (it takes 999), so its ends are infinite: no narrower one is "
        "guaranteed. Ask for a lower level, or fit more rows."
    )
    assert said.err.count(note) == said.err.count("infinite") == 1
    said = headstart(*asked, "--json", "--out", tmp_path / "p.csv")
    assert json.loads(said.out)["rows_needed"] == {"99": 99, "99.9": 999}
    said = headstart("predict", fitted / "run", tmp_path / "n.csv")
    assert "infinite" not in said.err


def test_rows_better_not_answered_are_marked(
    fitted: Path, headstart: Headstart, tmp_path: Path
) -> None:
    rows = houses(40, seed=7)
    rows.loc[0, "size"] *= 1000
    rows.to_csv(tmp_path / "n.csv", index=False)
    plain = pd.read_csv(io.StringIO(headstart("predict", fitted / "run", tmp_path / "n.csv").out))
    cost = float(plain["sd"].median())
    said = headstart(
        "predict", fitted / "run", tmp_path / "n.csv", "--abstain", str(cost), "--out", "-"
    )
    found = pd.read_csv(io.StringIO(said.out))
    expected = (plain["sd"] > cost) | plain["unlike_training"]
    assert found["abstain"].tolist() == expected.tolist()
    assert f"{expected.sum()} better not answered" in said.err
    said = headstart("predict", fitted / "run", tmp_path / "n.csv", "--abstain", "-1")
    assert said.code == 2
    assert "cost of abstaining" in said.err


def test_quiet_says_nothing_and_other_devices_are_refused(
    fitted: Path, headstart: Headstart, tmp_path: Path
) -> None:
    houses(20, seed=8).to_csv(tmp_path / "n.csv", index=False)
    rows = (fitted / "run", tmp_path / "n.csv")
    said = headstart("predict", *rows, "--out", tmp_path / "p.csv", "--quiet", "--device", "cpu")
    assert said == (0, "", "")
    said = headstart("predict", *rows, "--device", "abacus")
    assert said.code == 2
    assert "no device 'abacus'" in said.err


def test_a_column_in_other_units_is_named(
    fitted: Path, headstart: Headstart, tmp_path: Path
) -> None:
    rows = houses(50, seed=9)
    rows["size"] *= 1000
    rows.to_csv(tmp_path / "n.csv", index=False)
    said = headstart("predict", fitted / "run", tmp_path / "n.csv", "--out", tmp_path / "p.csv")
    assert "50 of them unlike the training data" in said.err
    assert (
        "50 rows of 50 are unlike the training data in 'size': is it complete, and in" in said.err
    )
    assert pd.read_csv(tmp_path / "p.csv")["unlike_because"].str.startswith("size is").all()
