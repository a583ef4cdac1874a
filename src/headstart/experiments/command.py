"""What `reproduce` and `compare` share: do the runs, show the result, and say how it ended."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from headstart.errors import HeadstartError
from headstart.experiments.execute import Outcome, execute
from headstart.experiments.run import Run
from headstart.experiments.store import Store
from headstart.experiments.suites import CHECKPOINTS, results_of, spread
from headstart.experiments.summary import Results, number
from headstart.experiments.tables import content_digest
from headstart.experiments.variants import by_method

INTERRUPTED = 130


def comparison(
    dataset: str,
    model: str,
    inits: list[str],
    *,
    methods: Sequence[str] = ("svi",),
    target: str = "",
    steps: int = 1000,
    splits: int = 1,
    seed: int = 0,
    **machine: Any,
) -> list[Run]:
    """One data set, the product of methods and initialisers; `machine` as in `plan`.

    Example:
        >>> [run.init for run in comparison("toy", "mlp-1x50", ["xavier", "iblm"])]
        ['xavier', 'iblm']
    """
    if dataset.endswith(".csv") and not target:
        raise HeadstartError(
            f"Which column of {dataset} is to be predicted? Name it with --target."
        )
    if not methods:
        raise HeadstartError(
            "Name at least one method with --method, as in --method svi,noisy-kfac."
        )
    template = Run(
        dataset,
        model,
        "iblm",
        target=target,
        content=content_digest(Path(dataset)) if target else "",
        steps=steps,
        checkpoints=CHECKPOINTS,
        **machine,
    )
    variants = [variant for method in methods for variant in by_method(method, inits)]
    return spread(template, [dataset], [model], variants, seed=seed, splits=splits)


def do(
    runs: list[Run],
    out: Path,
    *,
    jobs: int | None,
    backend: str,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Do the runs, with a bar; then a table for people or the last row of each run for machines."""
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
            Console().print(_table(suite, results_of(suite, rows)))
    _ending(outcome, store, console)


def _ending(outcome: Outcome, store: Store, console: Console) -> None:
    def say(sentence: str, style: str | None = None) -> None:
        console.print(sentence, style=style, markup=False, highlight=False, soft_wrap=True)

    for fault in outcome.faults:
        say(f"headstart: {fault}", "red")
    if outcome.interrupted:
        say(
            f"headstart: interrupted; {outcome.finished} of {outcome.total} runs are finished and kept in {store.path}: "
            "give the same command again to go on.",
            "red",
        )
        raise typer.Exit(INTERRUPTED)
    kept = f" ({outcome.already} were finished before)" if outcome.already else ""
    say(f"{outcome.finished} of {outcome.total} runs are finished{kept}: {store.path}")
    say(f"A page with tables and curves: headstart report {shlex.quote(str(store.folder))}")
    if outcome.faults:
        raise typer.Exit(1)


def _table(suite: str, results: Results) -> Table:
    """Where each initialiser started and ended, in the mean over splits."""
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
                number(results.at(problem, label, 0, metric).mean),
                number(end.mean) + (" NC" if end.nc else ""),
                number(results.final(problem, label, "mnll").mean),
                f"{seconds:.1f}",
            )
            table.add_row(name, label, *values, style="bold" if label == best else None)
    return table
