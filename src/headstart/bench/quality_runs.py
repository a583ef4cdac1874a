"""Runs of time to quality, each in a process of its own; and the targets."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from headstart.bench import quality_rows
from headstart.bench.learners import QUALITY_METHODS
from headstart.bench.quality_curve import (
    QualityPoint,
    peak_of_process,
    train_curve,
)
from headstart.bench.quality_rows import QualityRows, quality_task, read_rows
from headstart.errors import HeadstartError

PATIENT = 4.0
"""A process may take so many times the seconds of its run, and two minutes."""
TARGET_PATH = Path(__file__).with_name("quality_targets.json")
TARGET_SEED, TARGET_PATIENCE = 1000, 12
QualityRow = dict[str, Any]


@dataclass(frozen=True)
class QualityRun:
    """One run of a library on a task: which of its settings, and the seed."""

    task: str
    library: str
    choice: int
    seed: int

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.task, self.library, self.choice, self.seed


def target_of(task: str) -> float:
    """The NLL that a task must reach.

    Example:
        >>> 0 < target_of("digits") < 1
        True
    """
    known = json.loads(TARGET_PATH.read_text())
    if task not in known:
        raise HeadstartError(
            f"There is no target of {task} yet: python benchmarks/quality.py target {task}."
        )
    return float(known[task]["nll"])


def lowest_before_patience(curve: list[QualityPoint]) -> float:
    """The lowest score of validation rows before `TARGET_PATIENCE` evaluations without a better."""
    best, since = math.inf, 0
    for point in curve:
        since = 0 if point["valid"] < best else since + 1
        best = min(best, point["valid"])
        if since == TARGET_PATIENCE:
            break
    return best


def make_target(
    task: str, seconds: float, threads: int, cache: Path, clock: str = "wall"
) -> dict[str, float]:
    """What a deep ensemble of five has on validation rows when it no longer improves.

    Args:
        task: Of which task.
        seconds: How long it is trained at the most.
        threads: Of torch.
        cache: A folder that keeps prepared rows.
        clock: What `seconds` counts.

    Returns:
        The NLL, and the seconds that it took to get there.
    """
    run = QualityRun(task, "deep ensemble", 0, TARGET_SEED)
    found = run_alone(run, seconds, threads, cache, target=None, parts=("valid",), clock=clock)
    if "failed" in found:
        raise HeadstartError(f"The ensemble failed on {task}: {found['failed']}")
    nll = lowest_before_patience(found["curve"])
    spent = next(point[clock] for point in found["curve"] if point["valid"] == nll)
    return {"nll": round(nll, 4), "seconds": round(spent, 1), "limit": seconds}


def run_alone(
    run: QualityRun,
    seconds: float,
    threads: int,
    cache: Path,
    *,
    target: float | None,
    parts: tuple[str, ...] = ("valid", "test"),
    libraries: Path | None = None,
    clock: str = "wall",
) -> QualityRow:
    """A run in a process of its own: its curve and its memory, or why it failed.

    Args:
        run: What to run.
        seconds: When it ends.
        threads: Of torch, of OpenMP and of BLAS.
        cache: A folder that keeps prepared rows.
        target: Ends the run that has reached it and stayed there.
        parts: Which rows are scored.
        libraries: A folder with a folder for each library, beside what is installed.
        clock: What `seconds` counts, `wall` or `cpu`.

    Returns:
        `curve` and `memory`, or `failed`.
    """
    job = {
        **vars(run),
        "seconds": seconds,
        "target": target,
        "parts": parts,
        "clock": clock,
        "cache": str(cache),
    }
    words = [sys.executable, "-m", "headstart.bench.quality_runs", json.dumps(job)]
    given = {**os.environ, **_pinned(threads), "PYTHONPATH": _paths(run.library, libraries)}
    # A busy machine gives a process a fraction of a core.
    patience = PATIENT * seconds + 120 if clock == "wall" else None
    try:
        done = subprocess.run(words, env=given, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        return {"failed": "its process took too long"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:300]}
    found: QualityRow = json.loads(done.stdout.splitlines()[-1])
    return found


def _pinned(threads: int) -> dict[str, str]:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {**dict.fromkeys(names, str(threads)), "OMP_WAIT_POLICY": "passive"}


def folder_of(library: str) -> str:
    """The folder of a library's packages: that of the first of them."""
    return (QUALITY_METHODS[library].packages or (library,))[0]


def _paths(library: str, libraries: Path | None) -> str:
    own = [str((libraries / folder_of(library)).resolve())] if libraries else []
    return os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), *own])


def cached_rows(task: str, cache: Path) -> QualityRows:
    """The rows of a task, from a file where they were prepared before."""
    # Rows that other code has split or scaled are not taken.
    code = hashlib.sha256(Path(quality_rows.__file__).read_bytes()).hexdigest()[:8]
    path = cache / f"{task.replace('/', '-')}-{code}.pt"
    if not path.is_file():
        rows = read_rows(quality_task(task))
        cache.mkdir(parents=True, exist_ok=True)
        torch.save(vars(rows), path)
        return rows
    return QualityRows(**torch.load(path, weights_only=True))


def session() -> str:
    """What tells this start of this machine from others: seconds of two of them do not compare."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    found = boot.read_text() if boot.is_file() else platform.node()
    return hashlib.sha256(found.encode()).hexdigest()[:8]


def version_of(library: str) -> str:
    """The library and its version, as this process imports it; that of torch where it is a part."""
    package = (QUALITY_METHODS[library].packages or ("torch",))[0]
    return f"{package} {version(package.partition('==')[0])}"


def take_first_step() -> None:
    """A step of Adam: the first one of a process makes torch import for a second and more."""
    weight = torch.nn.Parameter(torch.zeros(1))
    weight.square().sum().backward()
    torch.optim.Adam([weight]).step()


def do_run(job: QualityRow) -> QualityRow:
    """What the process of a run does."""
    method, task = QUALITY_METHODS[job["library"]], quality_task(job["task"])
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    import_module(method.module)
    rows = cached_rows(job["task"], Path(job["cache"]))
    take_first_step()
    torch.manual_seed(job["seed"])
    curve = train_curve(
        lambda: method.make(task, rows, method.settings[job["choice"]]),
        rows,
        job["seconds"],
        job["target"],
        tuple(job["parts"]),
        job["clock"],
    )
    about = {"memory": peak_of_process(), "version": version_of(job["library"])}
    return {"curve": curve, **about}


if __name__ == "__main__":
    print(json.dumps(do_run(json.loads(sys.argv[1]))))
