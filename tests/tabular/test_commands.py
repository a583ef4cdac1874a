"""fit, predict and report as a new user types them, on good and bad files; no stack trace."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from headstart import cli
from tests.browser import browse

FEW = ("--steps", "60")


class Said(NamedTuple):
    code: int
    out: str
    err: str


Headstart = Callable[..., Said]


@pytest.fixture
def headstart(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Headstart:
    """The command line, in this process."""

    def run(*arguments: str | Path) -> Said:
        monkeypatch.setattr(sys, "argv", ["headstart", *map(str, arguments)])
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return Said(code, *capsys.readouterr())

    return run


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


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table of houses and a run on it."""
    folder = tmp_path_factory.mktemp("houses")
    houses().to_csv(folder / "train.csv", index=False)
    command = [
        sys.executable,
        "-m",
        "headstart.cli",
        "fit",
        "train.csv",
        "--target",
        "price",
        "--out",
        "run",
        "--steps",
        "300",
        "--conformal",
        "--json",
    ]
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    (folder / "said.json").write_text(done.stdout)
    (folder / "said.txt").write_text(done.stderr)
    return folder


def test_fit_says_what_matters(fitted: Path) -> None:
    said, numbers = (
        (fitted / "said.txt").read_text(),
        json.loads((fitted / "said.json").read_text()),
    )
    assert numbers["task"] == "regression"
    assert numbers["scores"]["rmse"] < 0.5 * numbers["trivial"]["rmse"]
    assert 0.8 < numbers["coverage"]["0.95"] <= 1
    assert "price is taken for a quantity, from 5 columns of 400 rows." in said
    for words in (
        "'id' names its rows",
        "'currency' holds a single value",
        "'note' is empty",
        "always saying the mean",
        "(conformal)",
    ):
        assert words in said
    assert {path.name for path in (fitted / "run").iterdir()} == {
        "model.safetensors",
        "table.json",
        "found.json",
        "report.html",
    }


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


def test_classes(tmp_path: Path, headstart: Headstart) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3))
    kind = np.where(x[:, 0] > 0.5, "large", np.where(x[:, 1] > 0, "small", "none"))
    pd.DataFrame(x, columns=["a", "b", "c"]).assign(kind=kind).to_parquet(tmp_path / "t.parquet")
    said = headstart(
        "fit",
        tmp_path / "t.parquet",
        "--target",
        "kind",
        "--out",
        tmp_path / "run",
        "--steps",
        "300",
        "--json",
    )
    assert said.code == 0, said.err
    numbers = json.loads(said.out)
    assert numbers["task"] == "classification"
    assert numbers["scores"]["error"] < 0.15 < numbers["trivial"]["error"]
    assert "one of 3 classes" in said.err
    found = pd.read_csv(
        pd.io.common.StringIO(headstart("predict", tmp_path / "run", tmp_path / "t.parquet").out)
    )
    assert list(found.columns) == [
        "prediction",
        "p_large",
        "p_none",
        "p_small",
        "entropy",
        "mutual_information",
        "unlike_training",
    ]
    np.testing.assert_allclose(found[["p_large", "p_none", "p_small"]].sum(axis=1), 1.0, atol=1e-4)
    assert (found["prediction"] == kind).mean() > 0.85
    assert (
        headstart(
            "fit",
            tmp_path / "t.parquet",
            "--target",
            "kind",
            "--out",
            tmp_path / "r2",
            "--conformal",
            *FEW,
        ).code
        == 2
    )


BAD = {
    "wrong column": ("a,b,y\n" + "1,2,3\n" * 30, "z", "'z'"),
    "empty": ("", "y", "is empty"),
    "header only": ("a,y\n", "y", "no rows"),
    "one row": ("a,y\n1,2\n", "y", "1 row with a known 'y'; at least 10"),
    "three rows": ("a,y\n1,2\n2,3\n3,5\n", "y", "at least 10"),
    "target empty": ("a,y\n" + "1,\n2,\n" * 10, "y", "0 rows with a known"),
    "target constant": ("a,y\n" + "1,1\n2,1\n" * 10, "y", "single value"),
    "only the target": ("y\n" + "1\n2\n" * 10, "y", "no column beside"),
    "all columns empty": ("a,y\n" + ",1\n,2\n" * 10, "y", "'a' is empty"),
    "ragged": ("a,y\n1,2\n1,2,3\n", "y", "cells in every line"),
    "a thousand classes": (
        "a,y\n" + "".join(f"{i % 17},c{i % 1000}\n" for i in range(2500)),
        "y",
        "1000 different labels",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_get_one_sentence_and_leave_nothing(
    tmp_path: Path, headstart: Headstart, case: str
) -> None:
    content, target, words = BAD[case]
    (tmp_path / "t.csv").write_text(content)
    said = headstart("fit", tmp_path / "t.csv", "--target", target, "--out", tmp_path / "run", *FEW)
    assert said.code == 2, said.err
    assert said.err.startswith("headstart: ")
    assert len(said.err.strip().splitlines()) == 1
    assert words in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--task", "ranking"), "ranking"),
        (("--model", "mlp-ax7"), "mlp-ax7"),
        (("--ignore", "nothing"), "'nothing'"),
        (("--test-share", "1.5"), "between 0 and 1"),
        (("--time-limit", "-1"), "time limit"),
        (("--config", "none.json"), "no file"),
        (("--noise", "loud"), "loud"),
    ],
)
def test_bad_options(
    tmp_path: Path, headstart: Headstart, options: tuple[str, str], words: str
) -> None:
    houses(60).to_csv(tmp_path / "t.csv", index=False)
    said = headstart(
        "fit", tmp_path / "t.csv", "--target", "price", "--out", tmp_path / "run", *FEW, *options
    )
    assert said.code == 2
    assert words in said.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_semicolons_decimal_commas_and_encodings_learn_alike(
    tmp_path: Path, headstart: Headstart, encoding: str
) -> None:
    text = houses(120).to_csv(index=False, sep=";", decimal=",")
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    said = headstart(
        "fit", tmp_path / "t.csv", "--target", "price", "--out", tmp_path / "run", *FEW, "--json"
    )
    assert said.code == 0, said.err
    houses(120).to_csv(tmp_path / "plain.csv", index=False)
    other = headstart(
        "fit",
        tmp_path / "plain.csv",
        "--target",
        "price",
        "--out",
        tmp_path / "run2",
        *FEW,
        "--json",
    )
    assert json.loads(said.out)["scores"] == json.loads(other.out)["scores"]


def test_labels_that_are_missing_are_left_out_and_told(
    tmp_path: Path, headstart: Headstart
) -> None:
    table = houses(120)
    table.loc[:9, "price"] = np.nan
    table.to_csv(tmp_path / "t.csv", index=False)
    said = headstart(
        "fit", tmp_path / "t.csv", "--target", "price", "--out", tmp_path / "run", *FEW
    )
    assert said.code == 0, said.err
    assert "10 rows without a known 'price' were left out" in said.err


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


def test_settings_from_a_file_and_a_time_limit(tmp_path: Path, headstart: Headstart) -> None:
    houses(100).to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "c.json").write_text(
        json.dumps({"model": "mlp-1x20", "samples": 2, "lr": 0.01, "steps": 40})
    )
    said = headstart(
        "fit",
        tmp_path / "t.csv",
        "--target",
        "price",
        "--out",
        tmp_path / "run",
        "--config",
        tmp_path / "c.json",
        "--time-limit",
        "20",
    )
    assert said.code == 0, said.err
    recipe = json.loads((tmp_path / "run" / "found.json").read_text())["recipe"]
    assert (recipe["model"], recipe["samples"], recipe["lr"], recipe["steps"]) == (
        "mlp-1x20",
        2,
        0.01,
        40,
    )
    (tmp_path / "c.json").write_text(json.dumps({"learning": 1}))
    said = headstart(
        "fit",
        tmp_path / "t.csv",
        "--target",
        "price",
        "--out",
        tmp_path / "r2",
        "--config",
        tmp_path / "c.json",
    )
    assert said.code == 2
    assert "'learning'" in said.err


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


def test_noise_may_vary_with_the_row(tmp_path: Path, headstart: Headstart) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 1500)
    pd.DataFrame({"x": x, "y": x + rng.normal(size=1500) * np.where(x > 0, 0.6, 0.05)}).to_csv(
        tmp_path / "t.csv", index=False
    )
    said = headstart(
        "fit",
        tmp_path / "t.csv",
        "--target",
        "y",
        "--out",
        tmp_path / "run",
        "--noise",
        "varying",
        "--steps",
        "600",
    )
    assert said.code == 0, said.err
    pd.DataFrame({"x": [-0.7, 0.7]}).to_csv(tmp_path / "n.csv", index=False)
    found = pd.read_csv(
        pd.io.common.StringIO(headstart("predict", tmp_path / "run", tmp_path / "n.csv").out)
    )
    assert found["sd_aleatoric"][1] > 4 * found["sd_aleatoric"][0]


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


def test_the_page_in_a_browser(tmp_path: Path, headstart: Headstart) -> None:
    """Names from the data are text, the pictures are drawn, nothing is fetched."""
    table = houses(100).rename(
        columns={"size": "<script>alert(1)</script>", "price": "price & <b>more</b>"}
    )
    table["city"] = table["city"].replace("Ulm", "<img src=x onerror=alert(2)>")
    table.to_csv(tmp_path / "t.csv", index=False)
    assert (
        headstart(
            "fit",
            tmp_path / "t.csv",
            "--target",
            "price & <b>more</b>",
            "--out",
            tmp_path / "run",
            *FEW,
        ).code
        == 0
    )
    said = headstart("report", tmp_path / "run")
    assert said.out.strip() == str(tmp_path / "run" / "report.html")
    dom = browse(tmp_path / "run" / "report.html", tmp_path / "profile", "--dump-dom")
    assert "<script" not in dom
    assert "<img" not in dom
    assert "Predicting price &amp; &lt;b&gt;more&lt;/b&gt;" in dom
    assert not re.search(r"(src|href)=\"http", dom.replace("xlink:href", ""))
    assert len(re.findall("<figure", dom)) == 2
    for heading in (
        "The table",
        "The start",
        "Learning",
        "Calibration",
        "Where the model knows least",
    ):
        assert f">{heading}</h2>" in dom
    assert "iblm placed the posterior" in dom


def test_a_fit_that_was_killed_goes_on(tmp_path: Path) -> None:
    """A real process, killed, then interrupted, then resumed, ends as an uninterrupted one."""
    houses(200).to_csv(tmp_path / "t.csv", index=False)

    def start(out: str, *more: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "headstart.cli",
            "fit",
            "t.csv",
            "--target",
            "price",
            "--out",
            out,
            "--steps",
            "1200",
            *more,
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            command,
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def wait_for_a_checkpoint(beyond: int) -> int:
        for _ in range(600):
            steps = [int(path.stem[5:]) for path in (tmp_path / ".run.unfinished").glob("step-*")]
            if steps and max(steps) > beyond:
                return max(steps)
            time.sleep(0.1)
        raise AssertionError("no checkpoint came")

    with start("run") as process:
        reached = wait_for_a_checkpoint(0)
        process.kill()
    assert not (tmp_path / "run").exists()
    with start("run") as process:
        assert "--resume" in process.communicate()[1]
    assert process.returncode == 2
    with start("run", "--resume") as process:
        wait_for_a_checkpoint(reached)
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
    assert process.returncode == 130, said
    assert "Stopped after step" in said
    assert "Traceback" not in said
    with start("run", "--resume") as process:
        assert process.communicate()[1].startswith("price is taken for a quantity")
    with start("whole") as process:
        process.communicate()
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model.safetensors"
    ).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "t.csv", "whole"]


@pytest.mark.parametrize(("scale", "offset"), [(1e25, 0.0), (1e-30, 0.0), (1.0, 1e8)])
def test_targets_of_any_size_are_learned(
    tmp_path: Path, headstart: Headstart, scale: float, offset: float
) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    y = scale * (x[:, 0] - 2 * x[:, 1]) + offset
    pd.DataFrame({"a": 1e20 * x[:, 0], "b": x[:, 1], "y": y}).to_csv(
        tmp_path / "t.csv", index=False, float_format="%.12g"
    )
    said = headstart(
        "fit",
        tmp_path / "t.csv",
        "--target",
        "y",
        "--out",
        tmp_path / "run",
        "--steps",
        "200",
        "--json",
    )
    assert said.code == 0, said.err
    numbers = json.loads(said.out)
    assert numbers["scores"]["rmse"] < 0.3 * numbers["trivial"]["rmse"]


def test_what_people_got_wrong(tmp_path: Path, headstart: Headstart) -> None:
    """A table onto itself, no rows, counting columns, a marker for missing labels."""
    table = houses(80)
    table.insert(0, "row", range(1, 81))
    table["price"] = table["price"].astype(str)
    table.loc[::10, "price"] = "?"
    table.to_csv(tmp_path / "t.csv", index=False)
    said = headstart(
        "fit", tmp_path / "t.csv", "--target", "price", "--out", tmp_path / "run", *FEW
    )
    assert said.code == 0, said.err
    assert "8 rows without a known 'price'" in said.err
    assert "'row' counts the rows" in said.err
    assert "Taken for date: 'built'." in said.err
    before = (tmp_path / "t.csv").read_text()
    assert (
        headstart("predict", tmp_path / "run", tmp_path / "t.csv", "--out", tmp_path / "t.csv").code
        == 2
    )
    assert (tmp_path / "t.csv").read_text() == before
    table.head(0).to_csv(tmp_path / "none.csv", index=False)
    said = headstart(
        "predict", tmp_path / "run", tmp_path / "none.csv", "--out", tmp_path / "p.csv"
    )
    assert said.code == 2
    assert "no rows" in said.err
    table["price"] = [f"{i}.5" if i % 9 else "call us" for i in range(80)]
    table.to_csv(tmp_path / "u.csv", index=False)
    said = headstart("fit", tmp_path / "u.csv", "--target", "price", "--out", tmp_path / "r2", *FEW)
    assert said.code == 2
    assert "like 'call us'" in said.err
