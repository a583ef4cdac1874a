"""The command line in this process, and a run that many tests look at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headstart import cli
from tests.tabular.tables import Headstart, Said, houses


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


@pytest.fixture(scope="session")
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
        "--effort",
        "quick",
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
