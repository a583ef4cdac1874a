"""What `reproduce` and `compare` share: do the runs, show the result, and say how it ended."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from headstart.experiments.execute import ExecutionSummary, execute
from headstart.experiments.results import Results, format_number, results_of
from headstart.experiments.spec import Run
from headstart.experiments.store import Store

EXIT_INTERRUPTED = 130


def do_runs(
    runs: list[Run],
    out: Path,
    *,
    jobs: int | None,
    backend: str,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Do the runs, with a bar; then a table for people or the last row of each run for machines.

    Args:
        runs: What to run.
        out: The folder of the rows.
        jobs: Runs at a time; None for as many as there are cores.
        backend: `processes` or `ray`.
        data_dir: Where the data sets are.
        as_json: Whether to print JSON.
    """
    console, store = Console(stderr=True), Store(out)
    command = shlex.join(["headstart", *sys.argv[1:]])
    outcome = execute(
        runs, store, jobs=jobs, backend=backend, data_dir=data_dir, console=console, command=command
    )
    keys = {run.key for run in runs}
    rows = [row for row in store.rows() if row["run"] in keys]
    if as_json:
        typer.echo(json.dumps([row for row in rows if row.get("last")]))
    else:
        for suite in dict.fromkeys(row["suite"] for row in rows):
            Console().print(_end_table(suite, results_of(suite, rows)))
    _say_how_it_ended(outcome, store, console)


def _say_how_it_ended(outcome: ExecutionSummary, store: Store, console: Console) -> None:
    def say(sentence: str, style: str | None = None) -> None:
        console.print(sentence, style=style, markup=False, highlight=False, soft_wrap=True)

    for fault in outcome.faults:
        say(f"headstart: {fault}", "red")
    if outcome.interrupted:
        say(
            f"headstart: interrupted; {outcome.finished} of {outcome.total} runs are finished "
            f"and kept in {store.path}: give the same command again to go on.",
            "red",
        )
        raise typer.Exit(EXIT_INTERRUPTED)
    kept = f" ({outcome.already} were finished before)" if outcome.already else ""
    say(f"{outcome.finished} of {outcome.total} runs are finished{kept}: {store.path}")
    say(f"A page with tables and curves: headstart report {shlex.quote(str(store.folder))}")
    if outcome.faults:
        raise typer.Exit(1)


def _end_table(suite: str, results: Results) -> Table:
    """Where each initializer started and ended, in the mean over splits."""
    table = Table(title=suite)
    metrics = "/".join(dict.fromkeys(results.metric(problem) for problem in results.problems))
    for column in ("data set", "initializer", f"{metrics} at 0", "at the end", "MNLL", "seconds"):
        left = column in ("data set", "initializer")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    for problem, name in results.names().items():
        metric = results.metric(problem)
        best = results.best(problem, metric)
        for label in results.labels_of(problem):
            end = results.final(problem, label, metric)
            seconds = sum(
                results.final(problem, label, part).mean or 0.0
                for part in ("init_seconds", "seconds")
            )
            values = (
                format_number(results.at(problem, label, 0, metric).mean),
                format_number(end.mean) + (" NC" if end.nc else ""),
                format_number(results.final(problem, label, "mnll").mean),
                f"{seconds:.1f}",
            )
            table.add_row(name, label, *values, style="bold" if label == best else None)
    return table
