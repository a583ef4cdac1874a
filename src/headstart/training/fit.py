"""`fit`: training to the end, watched by validation, safe on disk."""

from __future__ import annotations

import copy
import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn

from headstart.batching import Data
from headstart.distributed.collectives import group_of
from headstart.distributed.fabric import Fabric
from headstart.errors import HeadstartError, Interrupted, unknown, untrusted
from headstart.likelihoods import Likelihood
from headstart.metrics import METRICS
from headstart.predictive import evaluate
from headstart.storage.checkpoints import Keeper
from headstart.training.loop import Step, Training


@dataclass
class History:
    """What `fit` returns: every step, every validation (with its `step`), and why it ended."""

    steps: list[Step] = field(default_factory=list)
    validation: list[dict[str, float]] = field(default_factory=list)
    best_step: int | None = None
    stopped: str = ""


def fit(
    model: nn.Module,
    likelihood: Likelihood,
    batches: Data,
    *,
    validation: Data = None,
    every: int = 100,
    patience: int | None = None,
    monitor: str = "mnll",
    validation_samples: int = 32,
    checkpoint: str | Path | None = None,
    keep: int = 2,
    resume: bool = False,
    progress: bool = True,
    seed: int | None = None,
    **options: Any,
) -> History:
    """Train to the end of `steps`, with a progress bar; takes the options of `steps` too.

    With `validation` data the likelihood's metrics are taken every `every` steps, and the model ends with the parameters of the
    best `monitor`; `patience` evaluations without a better one end it early.

    `checkpoint` is a folder where the state is kept every `every` steps, and when Ctrl-C is pressed: the last `keep` states,
    each with the best parameters so far. With `resume` training goes on from there as if it had never stopped. On the ranks of a
    `fabric` the first one writes; a Ctrl-C waits there for the next checkpoint, for all to stop after the same step.

    Example:
        >>> import headstart as hs
        >>> x = torch.randn(100, 3)
        >>> model, lik = hs.bayesianize(nn.Linear(3, 1)), hs.Gaussian()
        >>> len(hs.fit(model, lik, (x, x.sum(1)), steps=5, progress=False, seed=0).steps)
        5
    """
    if "steps" not in options:
        raise HeadstartError(
            "fit needs the number of steps, as in fit(model, likelihood, batches, steps=2000)."
        )
    if every < 1:
        raise HeadstartError(f"every is a number of steps, at least 1, not {every}.")
    history = History()
    fabric = options.get("fabric")
    group = group_of(fabric, model)
    watch = (
        None
        if validation is None
        else _Watch(model, likelihood, validation, monitor, validation_samples, fabric)
    )
    with torch.random.fork_rng(enabled=seed is not None), _bar(progress and group.is_first) as bar:
        if seed is not None:
            torch.manual_seed(seed)
        training = Training(model, likelihood, batches, **options)
        saved = (
            None
            if checkpoint is None
            else _Saved(
                Keeper(Path(checkpoint), keep),
                training,
                history,
                watch,
                {"every": every, "seed": seed},
            )
        )
        if saved is not None:
            saved.begin_(resume)
        task = bar.add_task("fit", total=training.total, completed=training.done)
        with _deferred_interrupt(saved is not None) as interrupted:
            for record in training if history.stopped == RUNNING else ():
                history.steps.append(record)
                bar.update(task, advance=1, description=f"fit · nelbo {record.nelbo:.4g}")
                due = record.step % every == 0 or record.step == training.total
                if due or interrupted:
                    training.check()
                if watch is not None and due:
                    history.validation.append(watch.look(record.step))
                    if patience is not None and watch.misses >= patience:
                        history.stopped = f"no better {monitor} in {patience} evaluations"
                stop = bool(interrupted) if group.is_alone else due and group.any(bool(interrupted))
                if saved is not None and (due or stop or history.stopped != RUNNING):
                    saved.save()
                if stop:
                    raise Interrupted(
                        f"Stopped after step {record.step} of {training.total}; the state is in {checkpoint}: resume goes on from there."
                    )
                if history.stopped != RUNNING:
                    break
    history.stopped = "all steps done" if history.stopped == RUNNING else history.stopped
    if watch is not None:
        history.best_step = watch.restore_()
    return history


RUNNING = ""


class _Saved:
    """A fit on disk: the training's state, its history, and the best parameters so far."""

    def __init__(
        self,
        keeper: Keeper,
        training: Training,
        history: History,
        watch: _Watch | None,
        settings: dict[str, Any],
    ) -> None:
        self.keeper, self.training, self.history, self.watch = keeper, training, history, watch
        self.identity = {
            **training.identity,
            **settings,
            "monitor": None if watch is None else watch.monitor,
        }

    def begin_(self, resume: bool) -> None:
        """Take up what is there, if that was asked for; else refuse to write over it."""
        state = self.training.group.run_on_first(lambda: self._left(resume))
        if state is None:
            return
        with untrusted(self.keeper.folder, "holds a checkpoint that cannot be taken up"):
            self.training.load_state_(state["training"])
            self.history.steps[:] = [
                Step(int(row[0]), *map(float, row[1:])) for row in state["steps"].tolist()
            ]
            self.history.validation[:] = [dict(scores) for scores in state["validation"]]
            self.history.stopped = str(state["stopped"])
            if self.watch is not None:
                self.watch.load_state_(state["watch"])

    def _left(self, resume: bool) -> dict[str, Any] | None:
        """What an earlier call has left."""
        state = self.keeper.latest(self.identity) if resume or self.keeper.any() else None
        if state is not None and not resume:
            raise HeadstartError(
                f"{self.keeper.folder} holds an unfinished run: pass resume=True to go on, or name another folder."
            )
        return state

    def save(self) -> None:
        """Every rank tells its state, the first one writes."""
        records = [
            [float(value) for value in vars(record).values()] for record in self.history.steps
        ]
        state = {
            "training": self.training.state(),
            "steps": torch.tensor(records, dtype=torch.float64),
            "validation": self.history.validation,
            "stopped": self.history.stopped,
            "watch": None if self.watch is None else self.watch.state(),
        }
        self.training.group.run_on_first(
            lambda: self.keeper.save(self.training.done, state, self.identity)
        )


@contextmanager
def _deferred_interrupt(enabled: bool) -> Iterator[list[int]]:
    """The first Ctrl-C is put off until a step is whole: the list then holds it. A second one is Python's own."""
    pressed: list[int] = []
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield pressed
        return
    before = signal.getsignal(signal.SIGINT)

    def press(number: int, frame: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


class _Watch:
    """Validation: remembers the best parameters seen."""

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        data: Data,
        monitor: str,
        samples: int,
        fabric: Fabric | None,
    ) -> None:
        self.modules = nn.ModuleList([model, likelihood])
        self.data, self.monitor, self.samples, self.fabric = data, monitor, samples, fabric
        self.best, self.misses, self.best_step = math.inf, 0, 0
        self.parameters = copy.deepcopy(self.modules.state_dict())

    def look(self, step: int) -> dict[str, float]:
        model, likelihood = self.modules
        scores = evaluate(model, likelihood, self.data, self.samples, seed=0, fabric=self.fabric)  # type: ignore[arg-type]
        usable = [name for name in scores if METRICS[name].better]
        if self.monitor not in usable:
            raise unknown("metric to monitor", self.monitor, usable)
        score = -METRICS[self.monitor].better * scores[self.monitor]
        if score < self.best:
            self.best, self.misses, self.best_step = score, 0, step
            self.parameters = copy.deepcopy(self.modules.state_dict())
        else:
            self.misses += 1
        return {"step": step, **scores}

    def state(self) -> dict[str, Any]:
        return {
            "best": self.best,
            "misses": self.misses,
            "best_step": self.best_step,
            "parameters": self.parameters,
        }

    def load_state_(self, state: dict[str, Any]) -> None:
        self.best, self.misses, self.best_step = state["best"], state["misses"], state["best_step"]
        self.parameters = state["parameters"]

    def restore_(self) -> int:
        self.modules.load_state_dict(self.parameters)
        return self.best_step


def _bar(progress: bool) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, disable=not progress, transient=True)
