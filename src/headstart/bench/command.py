"""`headstart bench`: rows for machines, a table for people."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from headstart.bench.cases import CASES, Case, make_case
from headstart.bench.measure import Timing, measure
from headstart.bench.rivals import RIVALS, TORCH_ON_BATCH, TORCH_ON_SAMPLES, Rival
from headstart.errors import HeadstartError, unknown
from headstart.kernels.allocator import keep_freed

__all__ = ["CASES", "TABLE_WIDTH", "print_tables", "run_benchmarks", "time_case"]

TABLE_WIDTH = 120
"""Of the tables where there is no terminal to say so."""
SHARED_DRAWS = (
    "The samples of headstart share draws: to a gradient they may be worth fewer independent "
    "samples than they are, or more (docs/bench.md, What shared draws are worth)."
)
TABLE_HEAD = (
    "library",
    "sampler",
    "ms",
    "times S·B rows",
    "range",
    "times B rows",
    "memory, MB",
    "times S·B",
)


def run_benchmarks(
    cases: list[str],
    libraries: list[str] | None = None,
    *,
    rounds: int = 7,
    threads: int = 2,
    progress: bool = False,
) -> list[dict[str, Any]]:
    """Time a training step of each library on each case, in turn.

    Args:
        cases: Cases by name.
        libraries: Libraries by name; None for all that are installed. Plain torch is always one.
        rounds: How often each takes its turn.
        threads: Threads of torch.
        progress: Whether a bar on standard error says whose turn it is and how much is left.

    Returns:
        A row for each case, library and sampler.

    Raises:
        HeadstartError: A case or library is not known, or a named library is not installed.

    Example:
        >>> rows = run_benchmarks(["mlp-1x100"], ["headstart"], rounds=1, threads=1)
        >>> [(row["library"], row["sampler"]) for row in rows][2:]
        [('headstart', 'local'), ('headstart', 'weights')]
    """
    chosen = _chosen_rivals(libraries)
    named = {name: make_case(name) for name in cases}
    # For all alike: else some steps wait for the kernel, now these, now those.
    keep_freed()
    with _torch_threads(threads), _turns_bar(progress) as bar:
        turns = rounds * sum(rival.installed for rival in chosen)
        tasks = {name: bar.add_task(name, total=turns) for name in named}

        def advance(name: str) -> Callable[[str], None]:
            return lambda rival: bar.update(tasks[name], advance=1, description=f"{name} · {rival}")

        return [
            row
            for name, case in named.items()
            for row in time_case(name, case, chosen, rounds, advance(name))
        ]


def _chosen_rivals(libraries: list[str] | None) -> list[Rival]:
    """The rivals of these libraries, or all; and the deterministic steps."""
    known = dict.fromkeys(rival.name for rival in RIVALS)
    for name in libraries or ():
        if name not in known:
            raise unknown("library", name, known)
    wanted = {TORCH_ON_BATCH, TORCH_ON_SAMPLES, *(libraries or known)}
    chosen = [rival for rival in RIVALS if rival.name in wanted]
    missing = [rival.name for rival in chosen if not rival.installed]
    if libraries and missing:
        raise HeadstartError(
            f"{', '.join(missing)}: not installed; "
            "docs/bench.md says how to install the other libraries."
        )
    return chosen


@contextmanager
def _torch_threads(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _turns_bar(progress: bool) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("time left"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not progress)


def time_case(
    name: str,
    case: Case,
    rivals: Iterable[Rival],
    rounds: int,
    tell: Callable[[str], None] = lambda name: None,
) -> list[dict[str, Any]]:
    """The rows of one case, the step of each installed rival in turn."""
    racing = [rival for rival in rivals if rival.installed]
    steps = {rival.title: rival.make(case) for rival in racing}
    found = {
        rival.title: replace(timing, memory=timing.memory + rival.copies(case) * case.bytes)
        for rival, timing in zip(racing, measure(steps, rounds, tell).values(), strict=True)
    }
    on_batch, on_samples = (found[f"{plain} none"] for plain in (TORCH_ON_BATCH, TORCH_ON_SAMPLES))
    return [
        _result_row(name, case, rival, found[rival.title], on_batch, on_samples) for rival in racing
    ]


def _result_row(
    name: str, case: Case, rival: Rival, timing: Timing, on_batch: Timing, on_samples: Timing
) -> dict[str, Any]:
    ratios = sorted(timing.ratios(on_samples))
    return {
        "case": name,
        "samples": case.samples,
        "library": rival.name,
        "sampler": rival.sampler,
        "seconds": timing.median,
        "ratio": statistics.median(ratios),
        "ratio_low": ratios[0],
        "ratio_high": ratios[-1],
        "ratio_batch": statistics.median(timing.ratios(on_batch)),
        "memory": timing.memory,
        "memory_ratio": timing.memory / on_samples.memory,
        "threads": torch.get_num_threads(),
    }


def print_tables(rows: list[dict[str, Any]], console: Console) -> None:
    """A table for each case."""
    for case in dict.fromkeys(row["case"] for row in rows):
        mine = [row for row in rows if row["case"] == case]
        table = Table(title=f"{case}, {mine[0]['samples']} samples: one training step")
        for column in TABLE_HEAD:
            table.add_column(
                column, justify="left" if column in TABLE_HEAD[:2] else "right", no_wrap=True
            )
        for row in mine:
            table.add_row(*table_cells(row))
        console.print(table)
    if any(row["library"] == "headstart" and row["samples"] > 1 for row in rows):
        console.print(SHARED_DRAWS, highlight=False)


def table_cells(row: dict[str, Any]) -> list[str]:
    """A line of a table."""
    return [
        row["library"],
        row["sampler"],
        f"{1e3 * row['seconds']:.2f}",
        f"{row['ratio']:.2f}",
        f"{row['ratio_low']:.2f}–{row['ratio_high']:.2f}",
        f"{row['ratio_batch']:.2f}",
        f"{row['memory'] / 1e6:.1f}",
        f"{row['memory_ratio']:.2f}",
    ]
