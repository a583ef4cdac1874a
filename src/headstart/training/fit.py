"""`fit`: training to the end, with validation, early stopping and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn

from headstart.batching import Data
from headstart.distributed.fabric import Fabric
from headstart.errors import HeadstartError
from headstart.inference import Inference
from headstart.likelihoods import Likelihood
from headstart.predictive import evaluate
from headstart.training.early_stopping import EarlyStopping
from headstart.training.fit_checkpoint import FitCheckpoint
from headstart.training.history import History
from headstart.training.interrupt import deferred_interrupt
from headstart.training.loop import Training
from headstart.training.schedules import KLSchedule

__all__ = ["History", "fit"]


def fit(
    model: nn.Module,
    likelihood: Likelihood,
    batches: Data,
    *,
    steps: int | None = None,
    samples: int = 16,
    lr: float = 1e-3,
    batch_size: int = 64,
    inference: str | Inference = "svi",
    kl_schedule: str | KLSchedule = "constant",
    temperature: float = 1.0,
    lr_schedule: str = "constant",
    clip: float | None = None,
    prior_every: int = 100,
    precision: str = "float32",
    num_data: int | None = None,
    fabric: Fabric | None = None,
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
) -> History:
    """Train to the end, with a progress bar, validation, early stopping and checkpoints.

    A step descends along the gradient of `NELBO = E_q[−log p(y|x, W)] + temperature · KL(q‖p)`.
    Ctrl-C without checkpoints ends training at once. With checkpoints it waits for the step to be
    complete, and keeps its state; on several ranks it waits for the next checkpoint, so that all
    of them stop after the same step.

    Args:
        model: The Bayesian net, trained in place.
        likelihood: The likelihood of its labels; its parameters are trained too.
        batches: Training rows: a pair (x, y) of tensors or arrays, or a loader of such pairs.
        steps: How many steps to take. The number must be given.
        samples: Draws of the weights for each step.
        lr: The learning rate of Adam.
        batch_size: Rows of a step, where `batches` is a pair; a loader brings its own.
        inference: `svi`, `mc-dropout`, `noisy-kfac`, or an object; an object stays as it was.
        kl_schedule: The KL's weight over time: `constant`, `warmup`, `sigmoid`, or a function of
            (step, steps) that returns it.
        temperature: Multiplies the KL; 1 is the evidence lower bound.
        lr_schedule: The learning rate over time: `constant`, `linear` or `cosine`.
        clip: The largest norm of a gradient; None: any.
        prior_every: Priors learned in closed form are renewed every so many steps.
        precision: `float32`, or `bfloat16` to run the net under autocast.
        num_data: The number of training rows, where a loader's length does not tell.
        fabric: A launched `lightning.fabric.Fabric`: all its ranks train the model together, each
            on its shard of every batch, and the first one writes checkpoints (docs/cluster.md).
        validation: Validation rows, a pair or a loader. With them the model ends with the
            parameters of the best evaluation.
        every: Steps between two evaluations, and between two checkpoints.
        patience: Evaluations in a row without a better one that end training; None: never.
        monitor: The metric that says which evaluation is better.
        validation_samples: Draws of the weights for each evaluation.
        checkpoint: A folder where the state is kept; None: nowhere.
        keep: How many of the latest states are kept.
        resume: Whether to go on from what is in the folder, as if training had never stopped.
        progress: Whether to show a progress bar.
        seed: Seeds the random numbers, and the caller's come back afterwards; None: the caller's.

    Returns:
        The record of every step, every evaluation, and why training ended.

    Raises:
        HeadstartError: An option is out of range, the loss is no longer finite, or the folder
            holds another run.
        Interrupted: Ctrl-C was pressed, and the state is safe in the folder.

    Example:
        >>> import headstart as hs
        >>> x = torch.randn(100, 3)
        >>> model, lik = hs.bayesianize(nn.Linear(3, 1)), hs.Gaussian()
        >>> len(hs.fit(model, lik, (x, x.sum(1)), steps=5, progress=False, seed=0).steps)
        5
    """
    if steps is None:
        raise HeadstartError(
            "fit needs the number of steps, as in fit(model, likelihood, batches, steps=2000)."
        )
    if every < 1:
        raise HeadstartError(f"every is a number of steps, at least 1, not {every}.")
    with _seeded(seed):
        training = Training(
            model,
            likelihood,
            batches,
            steps=steps,
            samples=samples,
            lr=lr,
            batch_size=batch_size,
            inference=inference,
            kl_schedule=kl_schedule,
            temperature=temperature,
            lr_schedule=lr_schedule,
            clip=clip,
            prior_every=prior_every,
            precision=precision,
            num_data=num_data,
            fabric=fabric,
        )
        history, early_stopping, saved = History(), None, None
        if validation is not None:
            early_stopping = EarlyStopping(nn.ModuleList([model, likelihood]), monitor, patience)
        if checkpoint is not None:
            settings = {"every": every, "seed": seed}
            saved = FitCheckpoint(
                Path(checkpoint), keep, training, history, early_stopping, settings
            )
            saved.begin_(resume)

        def validate(step: int) -> None:
            if early_stopping is not None:
                scores = evaluate(
                    model, likelihood, validation, validation_samples, seed=0, fabric=fabric
                )
                early_stopping.update(step, scores)
                history.validation.append({"step": step, **scores})
                history.stopped = early_stopping.reason

        # A fit that was stopped early stays so when it is resumed.
        if not history.stopped:
            with _progress_bar(progress and training.leads) as bar:
                _train(training, history, every, validate, saved, bar)
    history.stopped = history.stopped or "all steps done"
    if early_stopping is not None:
        history.best_step = early_stopping.restore_()
    return history


def _train(
    training: Training,
    history: History,
    every: int,
    validate: Callable[[int], None],
    saved: FitCheckpoint | None,
    bar: Progress,
) -> None:
    """The loop: take a step; every so often evaluate, keep the state, and see whether to stop."""
    task = bar.add_task("fit", total=training.total, completed=training.done)
    with deferred_interrupt(saved is not None) as pressed:
        for record in training:
            history.steps.append(record)
            bar.update(task, advance=1, description=f"fit · nelbo {record.nelbo:.4g}")
            due = record.step % every == 0 or record.step == training.total
            if due or pressed:
                training.check()
            if due:
                validate(record.step)
            interrupted = training.interrupted(pressed, due)
            if saved is not None and (due or interrupted):
                saved.save()
                if interrupted:
                    raise saved.interruption()
            if history.stopped:
                break


@contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Random numbers from a seed within this scope; None: the caller's."""
    with torch.random.fork_rng(enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        yield


def _progress_bar(shown: bool) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    # Up to rich 14.2 a bar that is disabled still ends its line.
    console = None if shown else Console(quiet=True)
    return Progress(*columns, console=console, disable=not shown, transient=True)
