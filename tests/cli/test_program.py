"""The program as a whole: help, and mistakes in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headstart import cli
from tests.processes import run


def test_help_names_every_command() -> None:
    command = [sys.executable, "-m", "headstart.cli", "--help"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0
    for command in ("demo", "compare", "reproduce", "report", "data"):
        assert command in result.stdout


def test_help_is_quick_and_completion_is_there() -> None:
    """Without torch and pandas; half a second of CPU on a slow machine, a tenth on most."""
    code = (
        "import sys, time; from headstart import cli; sys.argv = ['headstart', '--help']\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'pandas', 'matplotlib'} & set(sys.modules)\n"
        "assert time.process_time() < 2, time.process_time()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "--install-completion" in result.stdout


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("headstart fi", "fit"), ("headstart fit t.csv --test", "--test-share")],
)
def test_the_shell_completes_commands_and_options(typed: str, expected: str) -> None:
    """As bash asks: the words typed so far, and which of them the cursor is in."""
    place = str(len(typed.split()) - 1)
    asked = {"_HEADSTART_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": place}
    code = "import sys; sys.argv = ['headstart']; from headstart import cli; cli.main()"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **asked}
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [expected]


def test_a_bad_option_is_one_sentence_without_a_stack_trace(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = run("demo", "--out", str(tmp_path / "file" / "x"), "--steps", "1")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "headstart:" in result.stderr
    result = run("demo", "--steps", "0")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


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
