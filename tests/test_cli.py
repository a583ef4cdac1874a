"""The command line as a user runs it: real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from headstart import cli
from tests.processes import run


def test_help_names_every_command() -> None:
    command = [sys.executable, "-m", "headstart.cli", "--help"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0
    for command in ("demo", "compare", "reproduce", "report", "data"):
        assert command in result.stdout


def test_the_demo_races_draws_and_speaks_json(tmp_path: Path) -> None:
    result = run("demo", "--out", str(tmp_path / "d"), "--steps", "50", "--json")
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout)
    assert {row["init"] for row in rows} == {
        "uninformative",
        "heuristic",
        "xavier",
        "orthogonal",
        "lsuv",
        "iblm",
    }
    assert {row["step"] for row in rows} == {0, 50}
    best = min((row["rmse"], row["init"]) for row in rows if row["step"] == 0)
    assert best[1] == "iblm"
    assert best[0] < 0.3  # the toy function is all but found before the first step
    with Image.open(tmp_path / "d" / "demo.png") as picture:
        assert picture.width > 1000
        assert len(set(picture.convert("RGB").resize((200, 100)).get_flattened_data())) > 50


def test_a_bad_option_is_one_sentence_without_a_stack_trace(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = run("demo", "--out", str(tmp_path / "file" / "x"), "--steps", "1")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "headstart:" in result.stderr
    result = run("demo", "--steps", "0")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_data_sets_are_listed_with_where_they_are() -> None:
    rows = {row["name"]: row for row in json.loads(run("data", "list", "--json").stdout)}
    assert rows["digits"]["where"] == "built in"
    assert (rows["mnist"]["n"], rows["mnist"]["d"], rows["mnist"]["classes"]) == (60000, 784, 10)
    table = run("data", "list").stdout
    assert all(name in table for name in rows)


def test_data_sets_are_verified() -> None:
    result = run("data", "verify", "digits", "toy", "--json")
    assert result.returncode == 0
    assert [check["ok"] for check in json.loads(result.stdout)] == [True, True]


def test_compare_then_report(tmp_path: Path) -> None:
    out = str(tmp_path / "c")
    options = [
        "--dataset",
        "diabetes",
        "--model",
        "mlp-1x10",
        "--init",
        "xavier,iblm",
        "--steps",
        "3",
        "--jobs",
        "1",
    ]
    result = run("compare", *options, "--out", out, "--json")
    assert result.returncode == 0, result.stderr
    assert [(row["init"], row["step"]) for row in json.loads(result.stdout)] == [
        ("xavier", 3),
        ("iblm", 3),
    ]
    assert len((tmp_path / "c" / "rows.jsonl").read_text().splitlines()) == 4
    result = run("report", out, "--json")
    assert result.returncode == 0, result.stderr
    assert [Path(path).name for path in json.loads(result.stdout)][:2] == [
        "report.html",
        "report.md",
    ]
    assert "--init xavier,iblm" in (tmp_path / "c" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["reproduce", "regresion-deep"],
            "There is no suite 'regresion-deep'; did you mean 'regression-deep'?",
        ),
        (["reproduce", "toy-predictions", "--budget", "fast"], "There is no budget 'fast'"),
        (
            ["compare", "--dataset", "diabets"],
            "There is no data set 'diabets'; did you mean 'diabetes'?",
        ),
        (
            ["compare", "--dataset", "toy", "--init", "iblm,xavir"],
            "'xavir'; did you mean 'xavier'?",
        ),
        (
            ["compare", "--dataset", "toy", "--model", "mpl-5x100"],
            "There is no model 'mpl-5x100'; did you mean 'mlp-5x100'?",
        ),
        (["compare", "--dataset", "nowhere.csv", "--target", "y"], "There is no file nowhere.csv"),
        (["reproduce", "regression-deep", "--data-dir", "nowhere"], "There is no folder nowhere"),
        (["report", "nowhere"], "There is no folder nowhere"),
        (["data", "fetch", "toy"], "built in: there is nothing to fetch"),
        (["data", "verify", "minst"], "There is no data set 'minst'; did you mean 'mnist'?"),
    ],
)
def test_what_is_not_there_is_one_sentence(
    tmp_path: Path,
    arguments: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = ["--out", str(tmp_path / "o")] if arguments[0] in ("reproduce", "compare") else []
    monkeypatch.setattr(sys, "argv", ["headstart", *arguments, *where])
    with pytest.raises(SystemExit) as ending:
        cli.main()
    assert ending.value.code == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "o").exists()
