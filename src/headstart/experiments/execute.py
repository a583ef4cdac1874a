"""Runs side by side, each in its own process; finished ones are stored and not repeated."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from headstart import data
from headstart.errors import HeadstartError, unknown
from headstart.experiments.prepare import load_dataset
from headstart.experiments.results import format_number
from headstart.experiments.run import run_experiment
from headstart.experiments.spec import Run
from headstart.experiments.store import Store
from headstart.experiments.tasks import EXPERIMENT_TASKS, metric_of
from headstart.experiments.workers import BACKENDS, Done, side_by_side
from headstart.inference import PRECISIONS, make_inference
from headstart.initializers import INITIALIZERS
from headstart.models import create
from headstart.storage.checkpoints import Keeper

UNFINISHED = "unfinished"
"""The folder beside the rows where runs keep their state while they go on."""


@dataclass
class ExecutionSummary:
    """What became of a list of runs: how many there were, were finished already, and ended now."""

    total: int
    already: int = 0
    done: list[Done] = field(default_factory=list)
    interrupted: bool = False

    @property
    def finished(self) -> int:
        """How many runs are finished now."""
        return self.already + sum(done.row is not None for done in self.done)

    @property
    def faults(self) -> list[str]:
        """One sentence for each run that failed."""
        return [
            f"{describe_run(done.run)} failed: {done.broken or (done.row or {})['failed']}"
            for done in self.done
            if done.broken or (done.row or {}).get("failed")
        ]


def execute(
    runs: list[Run],
    store: Store,
    *,
    jobs: int | None = None,
    backend: str = "processes",
    data_dir: str | Path | None = None,
    console: Console | None = None,
    command: str = "",
) -> ExecutionSummary:
    """Do what is not yet done of `runs`, with a progress bar.

    Args:
        runs: The runs; those that the store has, of the same code, are not repeated.
        store: Where rows go.
        jobs: Runs at a time; None for as many as there are cores.
        backend: `processes` of this machine, or `ray`, a cluster that sees the store's folder too.
        data_dir: Where the data sets are.
        console: Where progress is shown.
        command: The line that asked for the runs; the store remembers it.

    Returns:
        What became of the runs.
    """
    if backend not in BACKENDS:
        raise unknown("backend", backend, BACKENDS)
    rows = check_runs(runs, data_dir)
    store.note(command)
    known = store.finished()
    todo = [one for one in runs if one.key not in known]
    for one in runs:
        # A process that was killed between its rows and the end has left its state.
        if one.key in known:
            shutil.rmtree(store.folder / UNFINISHED / one.key, ignore_errors=True)
    outcome = ExecutionSummary(total=len(runs), already=len(runs) - len(todo))
    console = console or Console(stderr=True)
    work = partial(_finish, folder=store.folder.resolve(), data_dir=data_dir)
    with _runs_bar(console) as bar:
        task = bar.add_task("", total=sum(_cost(one, rows) for one in todo))

        def say(sentence: str) -> None:
            bar.console.print(sentence, highlight=False, markup=False, soft_wrap=True)

        def tell(one: Run, what: str) -> None:
            say(f"{describe_run(one)}: {what}")

        try:
            for done in side_by_side(todo, work, jobs=jobs, backend=backend, tell=tell):
                outcome.done.append(done)
                bar.update(
                    task,
                    advance=_cost(done.run, rows),
                    description=f"{outcome.finished} of {outcome.total} runs",
                )
                say(_summary_line(done))
        except KeyboardInterrupt:
            outcome.interrupted = True
    return outcome


def check_runs(runs: Iterable[Run], data_dir: str | Path | None = None) -> dict[str, int]:
    """Refuse what cannot run: a data set, model, initializer, option or device that is not there.

    Args:
        runs: The runs to check.
        data_dir: Where the data sets are.

    Returns:
        The number of rows of each data set.

    Raises:
        HeadstartError: Something that a run names is not there.
    """
    usable = [name for name, initializer in INITIALIZERS.items() if "net" not in initializer.needs]
    rows: dict[str, int] = {}
    seen: set[tuple[str, str]] = set()
    devices, others = set(), {""}
    for one in runs:
        make_inference(one.method)
        if one.precision not in PRECISIONS:
            raise unknown("precision", one.precision, PRECISIONS)
        if one.device not in devices:
            _check_device(one.device)
            devices.add(one.device)
        if one.init not in usable:
            raise unknown("initializer to compare", one.init, usable)
        for option in one.init_options.keys() - set(INITIALIZERS[one.init].options):
            raise unknown(f"option of {one.init!r}", option, INITIALIZERS[one.init].options)
        if (one.dataset, one.model) not in seen:
            dataset = load_dataset(one, data_dir)
            create(
                one.model,
                tuple(dataset.x.shape[1:]),
                EXPERIMENT_TASKS[dataset.task].outputs(dataset),
            )
            seen.add((one.dataset, one.model))
            rows[one.dataset] = len(dataset.x)
        if one.out_of_distribution not in others:
            data.load(one.out_of_distribution, data_dir)
            others.add(one.out_of_distribution)
    return rows


def _check_device(device: str) -> None:
    try:
        # The closed forms are solved in double precision.
        torch.ones(1, device=device, dtype=torch.float64)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise HeadstartError(
            f"Torch cannot compute on the device {device!r} here: {reason}"
        ) from error


def describe_run(one: Run) -> str:
    """A run in a few words."""
    names = (one.suite, Path(one.dataset).name, one.model, one.label or one.init)
    return f"{' · '.join(names)} · split {one.split}"


def _finish(one: Run, folder: Path, data_dir: str | Path | None) -> Done:
    """Run and store; an unexpected error is told, not stored: the run is tried again next time."""
    try:
        rows = run_experiment(one, data_dir, folder / UNFINISHED)
        Store(folder).append(rows)
        Keeper(folder / UNFINISHED / one.key).clear()
    except Exception as error:
        # Whatever it is, the other runs go on.
        return Done(one, None, f"{type(error).__name__}: {error}")
    return Done(one, rows[-1])


def _cost(one: Run, rows: dict[str, int]) -> int:
    """How long a run takes, roughly: its steps, and something for evaluations."""
    return 10 + one.total_steps(rows[one.dataset])


def _runs_bar(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("time left"),
    )
    return Progress(*columns, TimeRemainingColumn(), console=console, transient=True)


def _summary_line(done: Done) -> str:
    """How a run ended, in a line."""
    if done.row is None or "failed" in done.row:
        return f"{describe_run(done.run)}: failed"
    metric, seconds = metric_of(done.row), done.row["init_seconds"] + done.row["seconds"]
    scores = (f"{name} {format_number(done.row[name])}" for name in (metric, "mnll"))
    return f"{describe_run(done.run)}: {', '.join(scores)}, {seconds:.1f} s"
