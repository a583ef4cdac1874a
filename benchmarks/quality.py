"""Time to quality: seconds until test rows are predicted as well as by a deterministic ensemble.

    python benchmarks/quality.py install
    python benchmarks/quality.py target --tasks energy,spam
    python benchmarks/quality.py run --tasks energy,spam
    python benchmarks/quality.py page --out docs/results/quality.md

A target is the lowest NLL of validation rows that a deep ensemble of five has reached when it no
longer improves; it stands in quality_targets.json of headstart.bench before any run of headstart.
Data sets are read from the folder that HEADSTART_DATA names. Every library gets a folder of its own
below --libraries. Runs are kept in a file, a line each; what is there is not run again, and those
of headstart only where today's code made them. The page keeps its rows beside it, and a run begins
with those in docs/results, so that nobody makes them again. `--clock cpu` counts seconds of the
processor, for a machine that has other work.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from quality_page import MADE_BY, SEEDS, write_quality_page
from tables import read_rows, write_rows

from headstart.bench.learners import QUALITY_METHODS
from headstart.bench.quality_plan import QualityFile, run_all, target_reached
from headstart.bench.quality_rows import quality_task
from headstart.bench.quality_runs import (
    TARGET_PATH,
    QualityRow,
    folder_of,
    make_target,
    target_of,
)
from headstart.experiments.code import code_hash

OUT = Path("out/quality")
PUBLISHED = Path("docs/results/quality.jsonl.xz")
FULL_TASKS = ("energy", "spam", "eeg", "protein", "mlp-5x100/mnist", "lenet/mnist", "lenet/cifar10")
TARGET_TIMES = 2.0
"""An ensemble is trained for its target so many times as long as a run may take."""


def install(libraries: Path) -> None:
    """Every library into a folder of its own, without dependencies: torch is that of this one."""
    for name, method in QUALITY_METHODS.items():
        folder = libraries / folder_of(name)
        if method.packages and not folder.exists():
            words = ["install", "-q", "--no-deps", "--target", str(folder), *method.packages]
            subprocess.run([sys.executable, "-m", "pip", *words], check=True)


def set_targets(tasks: list[str], threads: int, clock: str, seconds: float | None) -> None:
    """Write the targets of tasks that have none."""
    for task in tasks:
        known = json.loads(TARGET_PATH.read_text())
        if task in known:
            print(f"{task}: the target is {known[task]['nll']:.4f} already.", flush=True)
            continue
        limit = seconds or TARGET_TIMES * quality_task(task).seconds
        found = make_target(task, limit, threads, OUT / "rows", clock)
        known = {**json.loads(TARGET_PATH.read_text()), task: found}
        TARGET_PATH.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        print(task, found, flush=True)


def rows_beside(page: Path) -> Path:
    """The file with the rows of a page."""
    return page.with_suffix(".jsonl.xz")


def opened(given: argparse.Namespace) -> QualityFile:
    """The runs so far: those of the page in docs/results, and those of this machine."""
    published = read_rows(PUBLISHED)
    return QualityFile(given.rows, code_hash(MADE_BY), given.clock, published)


def rounded(row: QualityRow) -> QualityRow:
    """A row with as many digits in its curve as a page can use."""
    if "curve" not in row:
        return row
    curve = [{key: float(f"{value:.6g}") for key, value in point.items()} for point in row["curve"]]
    return {**row, "curve": curve}


def tell(row: QualityRow) -> None:
    """One line for a run that has ended."""
    hit = target_reached(row, target_of(row["task"]))
    words = f"{hit[row['clock']]:.2f} s" if hit else row.get("failed", "missed")
    print(row["task"], row["library"], row["choice"], row["seed"], words, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["install", "target", "run", "page"])
    parser.add_argument("--tasks", default=",".join(FULL_TASKS), help="separated by commas")
    parser.add_argument("--methods", default=";".join(QUALITY_METHODS), help="separated by ;")
    parser.add_argument("--libraries", type=Path, default=OUT / "libraries")
    parser.add_argument("--rows", type=Path, default=OUT / "runs.jsonl")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="bounds a run (default: the task's own)")
    parser.add_argument("--minutes", type=float, help="begin no run after so many")
    parser.add_argument(
        "--documented", action="store_true", help="try no settings but those of the documentation"
    )
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--out", type=Path, default=OUT / "quality.md")
    given = parser.parse_args()
    tasks = given.tasks.split(",")
    if given.command == "install":
        install(given.libraries)
    elif given.command == "target":
        set_targets(tasks, given.threads, given.clock, given.seconds)
    elif given.command == "run":
        file = opened(given)
        end = time.monotonic() + 60 * given.minutes if given.minutes else float("inf")
        run_all(
            tasks,
            given.methods.split(";"),
            file,
            seeds=given.seeds,
            threads=given.threads,
            cache=OUT / "rows",
            cap=given.seconds,
            folder=given.libraries,
            documented=given.documented,
            tell=tell,
            go_on=lambda: time.monotonic() < end,
        )
    else:
        file = opened(given)
        write_quality_page(given.out, file, tasks)
        write_rows(rows_beside(given.out), [rounded(row) for row in file.rows.values()])


if __name__ == "__main__":
    main()
