"""fit and predict as a new user types them, on good and bad files; no stack trace."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from headstart.errors import HeadstartError
from headstart.tabular.command import begin_or_resume
from headstart.training.recipe import Recipe
from tests import processes
from tests.tabular.tables import FEW, Headstart, houses


def test_fit_says_what_matters(fitted: Path) -> None:
    said, numbers = (
        (fitted / "said.txt").read_text(),
        json.loads((fitted / "said.json").read_text()),
    )
    assert numbers["task"] == "regression"
    assert numbers["scores"]["rmse"] < 0.5 * numbers["trivial"]["rmse"]
    assert 0.8 < numbers["coverage"]["0.95"] <= 1
    assert "Predicting price, a quantity (regression), from 5 columns and 400 rows." in said
    for words in (
        "'id' names its rows",
        "'currency' holds a single value",
        "'note' is empty",
        "always predicting the mean",
        "(conformal)",
    ):
        assert words in said
    trees = numbers["tried"][0]["trees"]
    assert {path.name for path in (fitted / "run").iterdir()} == {
        "model.safetensors",
        "fold-0-model.safetensors",
        *(["trees.safetensors", "fold-0-trees.safetensors"] if trees else []),
        "table.json",
        "found.json",
        "familiarity.json",
        "report.html",
    }


@pytest.mark.parametrize("command", ["explain", "monitor", "recalibrate", "update"])
def test_quiet_commands_print_errors_and_json_only(
    fitted: Path, headstart: Headstart, tmp_path: Path, command: str
) -> None:
    houses(80, seed=5).to_csv(tmp_path / "n.csv", index=False)
    asked = (command, fitted / "run", tmp_path / "n.csv", "--quiet")
    if command == "update":
        asked += ("--steps", "2")

    def out(name: str) -> tuple[str | Path, ...]:
        return () if command == "monitor" else ("--out", tmp_path / name)

    assert headstart(*asked, *out("first")) == (0, "", "")
    said = headstart(*asked, *out("second"), "--json")
    assert said.err == ""
    assert json.loads(said.out)
    said = headstart(command, fitted / "run", tmp_path / "none.csv", "-q", *out("third"))
    assert (said.code, said.out) == (2, "")
    assert "There is no file" in said.err


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
    assert "Read as date: 'built'." in said.err
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


def test_a_fit_that_was_killed_goes_on(tmp_path: Path) -> None:
    """A real process, killed, then interrupted, then resumed, ends as an uninterrupted one."""
    houses(200).to_csv(tmp_path / "t.csv", index=False)

    def start(out: str, *more: str) -> processes.Command:
        words = ("fit", "t.csv", "--target", "price", "--out", out, "--steps", "1200")
        plain = ("--effort", "quick", "--no-trees", "--noise", "constant")
        return processes.Command(*words, *plain, *more, folder=tmp_path)

    def wait_for_a_checkpoint(beyond: int) -> int:
        for _ in range(3000):
            steps = [int(path.stem[5:]) for path in (tmp_path / ".run.unfinished").rglob("step-*")]
            if steps and max(steps) > beyond:
                return max(steps)
            time.sleep(0.02)
        raise AssertionError("no checkpoint came")

    process = start("run")
    reached = wait_for_a_checkpoint(0)
    process.kill()
    process.end()
    assert not (tmp_path / "run").exists()
    done = start("run").end()
    assert "--resume" in done.stderr
    assert done.returncode == 2
    process = start("run", "--resume")
    wait_for_a_checkpoint(reached)
    process.interrupt()
    done = process.end()
    assert done.returncode == 130, done.stderr
    assert "Stopped after step" in done.stderr
    assert "Traceback" not in done.stderr
    assert start("run", "--resume").end().stderr.startswith("Predicting price, a quantity")
    start("whole").end()
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model.safetensors"
    ).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "t.csv", "whole"]


def test_a_fit_goes_on_only_as_it_was_begun(headstart: Headstart, tmp_path: Path) -> None:
    houses(50).to_csv(tmp_path / "t.csv", index=False)
    left = tmp_path / ".run.unfinished" / "a-net"
    left.mkdir(parents=True)
    (left / "step-000000010.safetensors").write_text("a checkpoint")
    words = ("fit", tmp_path / "t.csv", "--target", "price", "--out", tmp_path / "run")
    settings = {"target": "price", **asdict(Recipe(steps=300))}
    begin_or_resume(left.parent, settings, begun=False)
    for more, sentence in (
        (("--steps", "500"), "was begun with steps=300, and would go on with steps=500"),
        (("--steps", "300", "--seed", "1"), "was begun with seed=0, and would go on with seed=1"),
    ):
        said = headstart(*words, "--resume", *more)
        assert said.code == 2
        assert sentence in said.err
        # What was begun is still there for the command that began it.
        assert (left / "step-000000010.safetensors").is_file()


def test_a_fit_that_knew_no_device_is_gone_on_with_on_the_cpu(tmp_path: Path) -> None:
    settings = {"target": "price", **asdict(Recipe())}
    before = {name: value for name, value in settings.items() if name != "device"}
    begin_or_resume(tmp_path, before, begun=False)
    begin_or_resume(tmp_path, settings, begun=True)
    with pytest.raises(HeadstartError, match=r"begun with device=cpu, and would .* device=cuda"):
        begin_or_resume(tmp_path, settings | {"device": "cuda"}, begun=True)
