"""Many runs: killed and gone on with, side by side, interrupted, broken."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headstart import cli
from headstart.experiments import execute as module
from headstart.experiments.execute import execute
from headstart.experiments.spec import ResultRow, Run
from headstart.experiments.store import Store
from tests import processes
from tests.experiments.conftest import runs, timeless, words


def wait_for_the_first_run(store: Store, alive: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 400
    while not store.rows():
        assert alive()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_killed_and_started_again_gives_the_same_rows_without_doubles(
    tmp_path: Path,
    filled: Store,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Killed in one process, gone on with in two, and compared with a third that ran in peace."""
    store = Store(tmp_path)
    process = processes.Command(*words(tmp_path, "--jobs", "1"))
    wait_for_the_first_run(store, lambda: process.alive)
    process.kill()
    process.end()
    kept = store.finished()
    assert 0 < len(kept) < 6
    monkeypatch.setattr(sys, "argv", ["headstart", *words(tmp_path, "--jobs", "2")])
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    assert f"{len(kept)} were finished before" in capsys.readouterr().err
    assert timeless(store.rows()) == timeless(filled.rows())
    assert len(store.path.read_text().splitlines()) == len(filled.rows())


def test_interrupted_it_says_what_is_kept_and_how_to_go_on(tmp_path: Path) -> None:
    store = Store(tmp_path)
    command = [sys.executable, "-m", "headstart.cli", *words(tmp_path, "--jobs", "2", steps=500)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, start_new_session=True, **pipes)
    wait_for_the_first_run(store, lambda: process.poll() is None)
    # As the terminal does.
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "are finished and kept in" in errors
    assert "same command again" in errors
    assert "Traceback" not in errors
    assert 0 < len(store.finished()) < 6


def test_finished_runs_are_not_repeated(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "run_experiment", lambda *_: pytest.fail("repeated"))
    outcome = execute(runs(), filled, jobs=1)
    assert (outcome.finished, outcome.already, outcome.done) == (6, 6, [])


def test_a_run_that_breaks_is_told_and_tried_again_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.run_experiment

    def breaking(one: Run, *rest: Any) -> list[ResultRow]:
        if one.init == "lsuv":
            raise MemoryError("no room")
        return real(one, *rest)

    monkeypatch.setattr(module, "run_experiment", breaking)
    outcome = execute(runs(steps=2), Store(tmp_path), jobs=1)
    assert outcome.finished == 4
    assert len(outcome.faults) == 2
    assert "lsuv · split 0 failed: MemoryError: no room" in outcome.faults[0]
    monkeypatch.undo()
    assert execute(runs(steps=2), Store(tmp_path), jobs=1).already == 4


def test_a_run_that_diverges_is_a_result(tmp_path: Path) -> None:
    diverging = [Run("diabetes", "mlp-1x10", "orthogonal", steps=5, lr=1e30)]
    outcome = execute(diverging, Store(tmp_path), jobs=1)
    assert outcome.finished == 1
    assert "failed: The loss became" in outcome.faults[0]
    assert execute(diverging, Store(tmp_path), jobs=1).already == 1


def _work(folder: Path, seconds: float) -> None:
    """What the child process does: two runs, saved as often as can be."""
    from headstart.experiments import run as module

    module.SAVE_SECONDS = seconds
    execute(_killed_runs(), Store(folder), jobs=1, console=Console(quiet=True))


def _killed_runs() -> list[Run]:
    options = {"steps": 250, "samples": 2, "eval_samples": 4, "checkpoints": (50, 100, 200)}
    return [Run("toy", "mlp-2x10-tanh", init, **options) for init in ("iblm", "orthogonal")]


def test_killed_processes_leave_each_row_once_and_the_same(tmp_path: Path) -> None:
    """SIGKILL at random moments: what was begun goes on, and the rows are those of a quiet run."""

    def child(folder: str) -> Any:
        return processes.start(_work, tmp_path / folder, 0.0)

    def finish(folder: str) -> list[dict[str, Any]]:
        assert processes.finish(child(folder)) == 0
        return [
            {k: v for k, v in row.items() if "seconds" not in k}
            for row in Store(tmp_path / folder).rows()
        ]

    expected = finish("quiet")
    chance = random.Random(1)
    for _ in range(8):
        process = child("killed")
        time.sleep(chance.uniform(0.2, 1.2))
        process.kill()
        process.join(60)
        process.close()
    assert finish("killed") == expected
    assert len(expected) == 10
    assert not (tmp_path / "killed" / "unfinished").exists() or not any(
        (tmp_path / "killed" / "unfinished").iterdir()
    )


def test_a_state_that_a_finished_run_has_left_is_cleared_away(tmp_path: Path) -> None:
    run = Run("toy", "mlp-1x20", "iblm", steps=1, checkpoints=())
    store = Store(tmp_path)
    execute([run], store, jobs=1)
    left = tmp_path / "unfinished" / run.key
    left.mkdir(parents=True)
    assert execute([run], store, jobs=1).already == 1
    assert not left.exists()
