"""Runs in processes that die, here and on a local Ray of two workers; the same rows from all."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from headstart.errors import HeadstartError
from headstart.experiments.execute import execute
from headstart.experiments.spec import Run
from headstart.experiments.store import Store
from headstart.experiments.workers import Done, side_by_side
from tests import processes
from tests.experiments.conftest import runs, timeless, words

# Ray leaves files open, and its older versions import pkg_resources.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore:pkg_resources is deprecated:DeprecationWarning",
)


def work(one: Run, folder: Path) -> Done:
    """A run in name only: `once` kills its process the first time, `always` every time."""
    tries = folder / f"{one.label}-{time.monotonic_ns()}"
    tries.touch()
    before = len(list(folder.glob(f"{one.label}-*"))) - 1
    if one.label == "always" or (one.label == "once" and not before):
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)
    return Done(one, {"step": os.getpid()})


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A local Ray of two workers."""
    ray = pytest.importorskip("ray")
    options = {
        "num_cpus": 2,
        "include_dashboard": False,
        "log_to_driver": False,
        "logging_level": "ERROR",
    }
    try:
        ray.init("local", **options)
    except Exception:
        # Ray gives its own start 30 seconds, which a very busy machine may not have.
        ray.shutdown()
        ray.init("local", **options)
    yield
    ray.shutdown()


@pytest.mark.parametrize("backend", ["processes", "ray"])
def test_a_run_that_dies_is_told_and_tried_once_more_and_the_others_go_on(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if backend == "ray":
        request.getfixturevalue("cluster")
    todo = [Run("toy", "mlp-1x10", "xavier", label=label) for label in ("once", "always", "other")]
    told: list[str] = []
    found = {
        done.run.label: done
        for done in side_by_side(
            todo,
            partial(work, folder=tmp_path),
            jobs=2,
            backend=backend,
            tell=lambda one, what: told.append(f"{one.label}: {what}"),
        )
    }
    assert set(found) == {"once", "always", "other"}
    assert [label for label, done in found.items() if done.row is None] == ["always"]
    assert "its process died twice" in found["always"].broken
    assert len([line for line in told if line.startswith("once: ")]) == 1
    assert len([line for line in told if line.startswith("always: ")]) == 1
    assert all("tried again" in line for line in told)
    assert len(list(tmp_path.glob("once-*"))) == len(list(tmp_path.glob("always-*"))) == 2


@pytest.mark.usefixtures("cluster")
def test_a_cluster_of_two_workers_gives_the_same_rows(tmp_path: Path, filled: Store) -> None:
    assert execute(runs(), Store(tmp_path), backend="ray").finished == 6
    assert timeless(Store(tmp_path).rows()) == timeless(filled.rows())


def test_a_cluster_that_does_not_answer_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "not an address")
    done = processes.run(*words(tmp_path, "--backend", "ray"))
    assert done.returncode != 0
    assert "No Ray cluster answers at RAY_ADDRESS=not an address" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_backend_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(HeadstartError, match="There is no backend 'rai'; did you mean 'ray'"):
        execute(runs(), Store(tmp_path), backend="rai")


def children(pid: int) -> list[int]:
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [int(line) for line in found.stdout.split()]


def waited(until: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not until() and time.monotonic() < deadline:
        time.sleep(0.05)
    return until()


def test_workers_do_not_outlive_the_process_that_started_them(tmp_path: Path) -> None:
    process = processes.Command(*words(tmp_path, "--jobs", "2", steps=100_000))
    try:
        # Two workers, and what collects their leftovers.
        assert waited(lambda: len(children(process.pid)) >= 3, 60)
        workers = children(process.pid)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.end()
    assert waited(lambda: not any(alive(pid) for pid in workers), 120)


def alive(pid: int) -> bool:
    """Not even a zombie: in a container nobody may collect those."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
