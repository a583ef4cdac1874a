"""Runs side by side: each in its own process, stored as it finishes; finished ones are not repeated."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import joblib
import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from headstart import data
from headstart.checkpoints import Keeper
from headstart.errors import HeadstartError, unknown
from headstart.experiments.run import Row, Run, run
from headstart.experiments.store import Store
from headstart.experiments.summary import number
from headstart.experiments.tasks import TASKS, metric_of
from headstart.inference import PRECISIONS, make_inference
from headstart.initializers import INITIALIZERS
from headstart.models import create

UNFINISHED = "unfinished"
"""The folder beside the rows where runs keep their state while they go on."""


class Done(NamedTuple):
    """A run that ended: its last row, or, where it broke down for no reason of ours, what was raised."""

    run: Run
    row: Row | None
    broken: str = ""


@dataclass
class Outcome:
    """What became of a list of runs: how many there were, were finished already, and ended in this call."""

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
            f"{label(done.run)} failed: {done.broken or (done.row or {})['failed']}"
            for done in self.done
            if done.broken or (done.row or {}).get("failed")
        ]


def execute(
    runs: list[Run],
    store: Store,
    *,
    jobs: int | None = None,
    data_dir: str | Path | None = None,
    console: Console | None = None,
    command: str = "",
) -> Outcome:
    """Do what is not yet done of `runs`, `jobs` at a time (all cores, by default), with a progress bar.

    The store remembers `command`, the line that asked for them.
    """
    rows = check(runs, data_dir)
    store.note(command)
    known = store.finished()
    todo = [one for one in runs if one.key not in known]
    outcome = Outcome(total=len(runs), already=len(runs) - len(todo))
    console = console or Console(stderr=True)
    with _bar(console) as bar:
        task = bar.add_task("", total=sum(_work(one, rows) for one in todo))
        try:
            for done in _results(todo, store.folder, jobs or cores(todo), data_dir):
                outcome.done.append(done)
                bar.update(
                    task,
                    advance=_work(done.run, rows),
                    description=f"{outcome.finished} of {outcome.total} runs",
                )
                bar.console.print(_line(done), highlight=False, markup=False, soft_wrap=True)
        except KeyboardInterrupt:
            outcome.interrupted = True
        except TerminatedWorkerError as error:
            raise HeadstartError(
                f"A worker process was killed, perhaps for want of memory; {outcome.finished} of {outcome.total} runs are "
                f"finished and kept in {store.path}: go on with the same command and fewer --jobs."
            ) from error
    return outcome


def check(runs: Iterable[Run], data_dir: str | Path | None = None) -> dict[str, int]:
    """Refuse at the door what cannot run: a data set, model, initialiser, option or device that is not there. Returns each data set's rows."""
    usable = [name for name, initializer in INITIALIZERS.items() if "net" not in initializer.needs]
    rows: dict[str, int] = {}
    seen: set[tuple[str, str]] = set()
    devices, outsiders = set(), {""}
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
            dataset = one.load(data_dir)
            create(one.model, tuple(dataset.x.shape[1:]), TASKS[dataset.task].outputs(dataset))
            seen.add((one.dataset, one.model))
            rows[one.dataset] = len(dataset.x)
        if one.outsiders not in outsiders:
            data.load(one.outsiders, data_dir)
            outsiders.add(one.outsiders)
    return rows


def _check_device(device: str) -> None:
    try:
        torch.ones(1, device=device, dtype=torch.float64)  # the closed forms are solved in double precision
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise HeadstartError(f"Torch cannot compute on the device {device!r} here: {reason}") from error


def cores(runs: list[Run]) -> int:
    """How many of these runs fit on this machine at a time."""
    return max(1, joblib.cpu_count() // max((one.threads for one in runs), default=1))


def label(one: Run) -> str:
    """A run in a few words."""
    return f"{one.suite} · {Path(one.dataset).name} · {one.model} · {one.label or one.init} · split {one.split}"


def _results(todo: list[Run], folder: Path, jobs: int, data_dir: str | Path | None) -> Iterator[Done]:
    if jobs == 1:
        yield from (_finish(one, folder, data_dir) for one in todo)
        return
    parallel = joblib.Parallel(
        n_jobs=jobs, return_as="generator_unordered", initializer=_leave_interrupts_to_the_parent
    )
    yield from parallel(joblib.delayed(_finish)(one, folder, data_dir) for one in todo)


def _finish(one: Run, folder: Path, data_dir: str | Path | None) -> Done:
    """Run and store; an error that is not ours is told, not stored, so that the run is tried again next time."""
    try:
        rows = run(one, data_dir, folder / UNFINISHED)
        Store(folder).append(rows)
        Keeper(folder / UNFINISHED / one.key).clear()
    except Exception as error:  # whatever it is, the other runs go on
        return Done(one, None, f"{type(error).__name__}: {error}")
    return Done(one, rows[-1])


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _work(one: Run, rows: dict[str, int]) -> int:
    """How long a run takes, roughly, for the time left: its steps, and something for looking at it."""
    return 10 + one.total(rows[one.dataset])


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("time left"))
    return Progress(*columns, TimeRemainingColumn(), console=console, transient=True)


def _line(done: Done) -> str:
    """How a run ended, in a line."""
    if done.row is None or "failed" in done.row:
        return f"{label(done.run)}: failed"
    metric, seconds = metric_of(done.row), done.row["init_seconds"] + done.row["seconds"]
    return f"{label(done.run)}: {metric} {number(done.row[metric])}, mnll {number(done.row['mnll'])}, {seconds:.1f} s"
