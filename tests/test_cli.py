"""The command line as a user runs it: real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from PIL import Image


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headstart.cli", *arguments], capture_output=True, text=True, timeout=300, check=False
    )


def test_help_names_every_command() -> None:
    result = run("--help")
    assert result.returncode == 0
    assert "demo" in result.stdout


def test_the_demo_races_draws_and_speaks_json(tmp_path: Path) -> None:
    result = run("demo", "--out", str(tmp_path / "d"), "--steps", "50", "--json")
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout)
    assert {row["init"] for row in rows} == {"uninformative", "heuristic", "xavier", "orthogonal", "lsuv", "iblm"}
    assert {row["step"] for row in rows} == {0, 50}
    best = min((row["rmse"], row["init"]) for row in rows if row["step"] == 0)
    assert best[1] == "iblm"
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
