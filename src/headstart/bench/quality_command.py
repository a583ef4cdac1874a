"""`headstart bench --time-to-quality`: what a machine without the data sets can run."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from headstart.bench.learners import OURS, QUALITY_METHODS
from headstart.bench.quality_plan import QualityFile, run_all
from headstart.bench.quality_rows import SMALL_TASKS, quality_task
from headstart.bench.quality_runs import QualityRow, target_of
from headstart.bench.quality_summary import as_json_row, summarize_task
from headstart.errors import HeadstartError, unknown

QUALITY_HEAD = ("library", "seconds", "range", "CPU seconds", "times ours", "reached", "memory, MB")


def time_to_quality(
    tasks: list[str] | None = None,
    libraries: list[str] | None = None,
    *,
    seeds: int = 3,
    threads: int = 1,
    max_seconds: float | None = None,
    progress: bool = False,
) -> list[dict[str, Any]]:
    """Seconds until test rows are predicted as well as a deep ensemble predicts validation rows.

    Each library runs at its documented settings, in a process of its own; one that misses the
    target with the first seed is not run with the others.

    Args:
        tasks: Tasks by name; None for those whose rows scikit-learn carries or makes.
        libraries: Libraries by name; None for all that are installed. headstart is always one.
        seeds: How many runs of each.
        threads: Threads of each process.
        max_seconds: The most seconds of a run; None: the task's own.
        progress: Whether each run is told on standard error.

    Returns:
        A row for each task and library.

    Raises:
        HeadstartError: A task or library is not known, or a named library is not installed.
    """
    chosen = [quality_task(name).name for name in tasks or SMALL_TASKS]
    targets = {task: target_of(task) for task in chosen}
    console = Console(stderr=True)

    def tell(row: QualityRow) -> None:
        if progress:
            console.print(row["task"], row["library"], "seed", row["seed"], highlight=False)

    with tempfile.TemporaryDirectory() as folder:
        file = QualityFile(Path(folder) / "runs.jsonl")
        run_all(
            chosen,
            _named_methods(libraries),
            file,
            seeds=seeds,
            threads=threads,
            cache=Path(folder),
            cap=max_seconds,
            documented=True,
            tell=tell,
        )
    return [
        as_json_row(task, target, each, file.clock)
        for task, target in targets.items()
        for each in summarize_task(file, task, target)
    ]


def _named_methods(libraries: list[str] | None) -> list[str]:
    """These libraries and headstart, or all that are installed."""
    for name in libraries or ():
        if name not in QUALITY_METHODS:
            raise unknown("library", name, QUALITY_METHODS)
        if not QUALITY_METHODS[name].installed:
            raise HeadstartError(
                f"{name}: not installed; docs/bench.md says how to install the other libraries."
            )
    if libraries:
        return list(dict.fromkeys([OURS, *libraries]))
    return [name for name, method in QUALITY_METHODS.items() if method.installed]


def print_quality(rows: list[dict[str, Any]], console: Console) -> None:
    """A table for each task."""
    for task in dict.fromkeys(row["task"] for row in rows):
        mine = [row for row in rows if row["task"] == task]
        ours = next(row["seconds"] for row in mine if row["library"] == OURS)
        table = Table(title=f"{task}: seconds to a test NLL of {mine[0]['target']:.4f}")
        for column in QUALITY_HEAD:
            table.add_column(column, justify="left" if column == "library" else "right")
        for row in mine:
            table.add_row(*quality_cells(row, ours))
        console.print(table)


def quality_cells(row: dict[str, Any], ours: float | None) -> list[str]:
    """A line of a table; a run that missed the target counts as its limit."""
    if row["failed"]:
        return [row["library"], row["failed"], *[""] * (len(QUALITY_HEAD) - 2)]
    sign = "" if row["reached"] else "> "
    return [
        row["library"],
        f"{sign}{row['seconds']:.2f}",
        f"{row['seconds_low']:.2f}–{row['seconds_high']:.2f}",
        f"{row['cpu_seconds']:.2f}",
        f"{row['seconds'] / ours:.1f}" if ours else "",
        f"{row['reached']} of {row['runs']}",
        f"{row['memory'] / 1e6:.0f}",
    ]
