"""The commands of experiments as a user runs them: real processes."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image

from tests.processes import run


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
    # The toy function is all but found before the first step.
    assert best[0] < 0.3
    with Image.open(tmp_path / "d" / "demo.png") as picture:
        assert picture.width > 1000
        assert len(set(picture.convert("RGB").resize((200, 100)).get_flattened_data())) > 50


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
