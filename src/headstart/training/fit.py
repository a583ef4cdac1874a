"""`fit`: training to the end, with validation, early stopping and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.progress import Progress
from torch import nn

from headstart.batching import Data
from headstart.distributed.collectives import group_of
from headstart.distributed.fabric import Fabric
from headstart.errors import HeadstartError
from headstart.inference import Inference, OptimizerChoice
from headstart.kernels.random_state import kept_random_state, seeded
from headstart.likelihoods import Likelihood
from headstart.predictive import evaluate
from headstart.training.averaged import current_rate
from headstart.training.budget import check_limits, default_interval
from headstart.training.convergence import Tail
from headstart.training.early_stopping import EarlyStopping
from headstart.training.fit_checkpoint import FitCheckpoint
from headstart.training.history import History, Step
from headstart.training.interrupt import deferred_interrupt
from headstart.training.loop import Training
from headstart.training.progress import progress_bar
from headstart.training.read_out import find_read_out
from headstart.training.refine import refine_
from headstart.training.schedules import KLSchedule

__all__ = ["History", "fit"]

Callback = Callable[[Step, History], bool | None]
"""What is called after a step: training ends where it returns True."""


def fit(
    model: nn.Module,
    likelihood: Likelihood,
    batches: Data,
    *,
    steps: int | None = None,
    epochs: int | None = None,
    max_steps: int | None = None,
    time_limit: float | None = None,
    samples: int = 8,
    lr: float | None = None,
    optimizer: OptimizerChoice = None,
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
    every: int | None = None,
    patience: int | None = None,
    monitor: str = "mnll",
    validation_samples: int = 32,
    checkpoint: str | Path | None = None,
    keep: int = 2,
    resume: bool = False,
    refine: bool = False,
    callbacks: Sequence[Callback] = (),
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
        steps: How many steps to take, exactly. None: until converged, that is until the score of
            the validation rows, or the NELBO where there are none, no longer improves by more than
            its noise (`headstart.training.convergence`), at most `max_steps`. Schedules of the KL
            and of the learning rate need a number of steps.
        epochs: How many passes over the data to take, exactly, in the place of `steps`.
        max_steps: A bound where `steps` is None; None: 2000, or 30 epochs where these are more.
        time_limit: Seconds of this call after which training ends with the step at hand, its
            state kept where there is a `checkpoint`; None: no limit.
        samples: Draws of the weights for each step.
        lr: The learning rate. None: step sizes are chosen from the layers' inputs on the first
            batch (docs/step-sizes.md); a number alone means Adam at that rate.
        optimizer: `averaged`, which keeps a good start and needs no schedule, or `adam`, the
            paper's protocol (a constant 1e-3 where `lr` is None). None: `averaged`, or `adam` where
            `lr` is given. Or what makes an optimizer of groups of parameters, with a rate of its
            own: `torch.optim.NAdam`, `lambda params: torch.optim.SGD(params, lr=1e-6)`.
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
            parameters of the best evaluation, of which the start is the first.
        every: Steps between two evaluations, and between two checkpoints. None: 100, or a fiftieth
            of `max_steps` where `steps` is None.
        patience: Evaluations in a row without a better one that end training; None: never.
        monitor: The metric that says which evaluation is better.
        validation_samples: Draws of the weights for each evaluation.
        checkpoint: A folder where the state is kept; None: nowhere.
        keep: How many of the latest states are kept.
        resume: Whether to go on from what is in the folder, as if training had never stopped.
        refine: Whether `refine_` solves the last layer again on the training rows in the end. Where
            there are validation rows, it begins with the parameters of the best evaluation, and
            these rows choose the noise of predictions. Checkpoints hold the net before that:
            resume with one that is not refined yet.
        callbacks: Functions of the record of a step and of the history so far, called after every
            step; training ends where one returns True.
        progress: Whether to show a progress bar.
        seed: Seeds the random numbers, and the caller's come back afterwards; None: the caller's.

    Returns:
        The record of every step, every evaluation, why training ended, whether it converged, and
        what `refine_` did.

    Raises:
        HeadstartError: An option is out of range, the loss is no longer finite, or the folder
            holds another run.
        Interrupted: Ctrl-C was pressed, and the state is safe in the folder.

    Example:
        >>> import headstart as hs, torch
        >>> x = torch.randn(100, 3)
        >>> model, lik = hs.bayesianize(nn.Linear(3, 1)), hs.Gaussian()
        >>> len(hs.fit(model, lik, (x, x.sum(1)), steps=5, progress=False, seed=0).steps)
        5
    """
    least = {
        "steps": (steps, 0),
        "epochs": (epochs, 0),
        "max_steps": (max_steps, 1),
        "time_limit": (time_limit, 0),
        "every": (every, 1),
        "patience": (patience, 1),
        "keep": (keep, 1),
        "validation_samples": (validation_samples, 1),
    }
    ends = {"steps": steps, "epochs": epochs, "max_steps": max_steps}
    check_limits(least, ends, [kl_schedule, lr_schedule])
    exact = steps is not None or epochs is not None
    _check_resume(resume, checkpoint)
    if refine:
        _check_refinable(model, likelihood, batches, num_data, temperature, fabric)
    with seeded(seed, model):
        training = Training(
            model,
            likelihood,
            batches,
            steps=max_steps if steps is None else steps,
            samples=samples,
            lr=lr,
            optimizer=optimizer,
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
            epochs=epochs,
        )
        early_stopping = None
        if validation is not None:
            early_stopping = EarlyStopping(nn.ModuleList([model, likelihood]), monitor, patience)
        history, tail = History(), Tail(model)
        interval = every or default_interval(training.total, exact)
        saved = None
        if checkpoint is not None:
            settings = {"every": interval, "seed": seed, "exact": exact}
            saved = FitCheckpoint(
                Path(checkpoint), keep, training, history, early_stopping, tail, settings
            )
            saved.begin_(resume)
        loop = _Loop(training, history, tail, saved, interval, time_limit, monitor, exact)

        def score() -> dict[str, float]:
            return evaluate(
                model, likelihood, validation, validation_samples, seed=0, fabric=fabric
            )

        loop.callbacks = callbacks
        loop.validation = None if early_stopping is None else (early_stopping, score)
        with progress_bar(progress and training.leads) as bar:
            loop.run(bar)
        # The slowest are the log-variances.
        slowest = min(map(current_rate, training.optimizer.param_groups))
        history.movement = tail.movement(training.done, slowest)
    history.stopped = history.stopped or ("max_steps reached", "all steps done")[loop.exact]
    if early_stopping is not None:
        history.best_step = early_stopping.restore_()
    if refine:
        history.refined = refine_(
            model, likelihood, batches, validation=validation, num_data=num_data, fabric=fabric
        )
    return history


def _check_resume(resume: bool, checkpoint: str | Path | None) -> None:
    if resume and checkpoint is None:
        raise HeadstartError("resume goes on from a checkpoint: name its folder, checkpoint=.")


def _check_refinable(
    model: nn.Module,
    likelihood: Likelihood,
    batches: Data,
    num_data: int | None,
    temperature: float,
    fabric: Fabric | None,
) -> None:
    """Refuse now what could not be refined after training."""
    if temperature != 1:
        raise HeadstartError(
            f"refine=True maximizes the evidence lower bound, and temperature={temperature:g} is "
            "another objective: leave one of the two out."
        )
    with kept_random_state(model):
        find_read_out(model, likelihood, batches, num_data, group_of(fabric, model))


@dataclass
class _Loop:
    """Take a step; every so often evaluate, keep the state, and see whether to stop."""

    training: Training
    history: History
    tail: Tail
    saved: FitCheckpoint | None
    every: int
    time_limit: float | None
    monitor: str
    exact: bool
    validation: tuple[EarlyStopping, Callable[[], dict[str, float]]] | None = None
    callbacks: Sequence[Callback] = ()

    def run(self, bar: Progress) -> None:
        """Steps until one of them is the last."""
        # A fit that was stopped early stays so when it is resumed.
        if bool(self.history.stopped):
            return
        training, begun = self.training, self.training.seconds
        task = bar.add_task("fit", total=training.total, completed=training.done)
        if training.done == 0:
            # The start is a candidate too: where nothing is to be learned it is the best.
            self._evaluate(0)
        with deferred_interrupt(self.saved is not None) as pressed:
            for record in training:
                self.history.steps.append(record)
                bar.update(task, advance=1, description=self.history.progress(self.monitor))
                due = record.step % self.every == 0 or record.step == training.total
                end = self._end(record, record.seconds - begun)
                end = end if training.agreed(bool(end), due) else ""
                self._after(record.step, due, end, training.agreed(bool(pressed), due))
                if self.history.stopped:
                    break

    def _after(self, step: int, due: bool, end: str, interrupted: bool) -> None:
        """What there is to do after a step, where something is due."""
        if not (due or end or interrupted):
            return
        self.training.check()
        self.tail.see(step)
        if due:
            self._evaluate(step)
        if self.saved is not None:
            self.saved.save()
            if interrupted:
                raise self.saved.interruption()
        if end and not self.history.stopped:
            # After the checkpoint was written: with more time a fit goes on from there.
            if not due:
                self._evaluate(step)
            self.history.stopped = end

    def _evaluate(self, step: int) -> None:
        """Score the validation rows, and see whether there is more to gain."""
        history = self.history
        if self.validation is not None:
            early_stopping, score = self.validation
            scores = score()
            early_stopping.update(step, scores)
            history.validation.append({"step": step, **scores})
            history.stopped = early_stopping.reason
        if not self.exact and not history.stopped:
            history.stopped = history.plateau(self.monitor, self.every, self.training.num_data)

    def _end(self, record: Step, seconds: float) -> str:
        """Why training ends with this step, where it does for its time or a callback."""
        # All of them are called, whatever the first says.
        wishes = [each(record, self.history) for each in self.callbacks]
        if any(wish is True for wish in wishes):
            return "a callback"
        late = self.time_limit is not None and seconds >= self.time_limit
        return f"time limit of {self.time_limit:g} s" if late else ""
