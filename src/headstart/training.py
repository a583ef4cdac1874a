"""The training loop: `steps` yields a record per step, `fit` runs it to the end."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn

from headstart.batches import Batches, Data
from headstart.errors import HeadstartError, unknown
from headstart.inference import PRECISIONS, Inference, make_inference
from headstart.layers import bayesian_layers
from headstart.likelihoods import Likelihood
from headstart.metrics import METRICS
from headstart.objective import KLSchedule, make_schedule
from headstart.predictive import evaluate

LR_SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: 0.5 * (1 + math.cos(math.pi * progress)),
}
"""The learning rate's factor as a function of the share of steps done."""


@dataclass(frozen=True)
class Step:
    """A step done: its number (from 1), the objective on its batch before the update, and the seconds since the start."""

    step: int
    nelbo: float
    nll: float
    kl: float
    seconds: float


@dataclass
class History:
    """What `fit` returns: every step, every validation (with its `step`), and why it ended."""

    steps: list[Step] = field(default_factory=list)
    validation: list[dict[str, float]] = field(default_factory=list)
    best_step: int | None = None
    stopped: str = "all steps done"


def steps(
    model: nn.Module,
    likelihood: Likelihood,
    batches: Data,
    *,
    steps: int,
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
) -> Iterator[Step]:
    """Train step by step, yielding a record after each; stop whenever you like.

    `temperature` multiplies the KL (1: the evidence lower bound), `kl_schedule` (`constant`, `warmup`, `sigmoid`, or a function
    of step and steps) besides. Priors learned in closed form are renewed every `prior_every` steps. `precision="bfloat16"` runs
    the net under autocast. `batch_size` is for a pair of arrays; a loader brings its own.

    Example:
        >>> import headstart as hs
        >>> x = torch.randn(100, 3)
        >>> model, lik = hs.bayesianize(nn.Linear(3, 1)), hs.Gaussian()
        >>> [record.step for record in hs.steps(model, lik, (x, x.sum(1)), steps=3)]
        [1, 2, 3]
    """
    if lr_schedule not in LR_SCHEDULES:
        raise unknown("learning-rate schedule", lr_schedule, LR_SCHEDULES)
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
    data = Batches(batches, batch_size=batch_size, num_data=num_data, like=model)
    kl_weight, method = make_schedule(kl_schedule), make_inference(inference)
    method.precision = precision
    optimizer = method.bind(model, likelihood, num_data=data.num_data, samples=samples, lr=lr, clip=clip)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: LR_SCHEDULES[lr_schedule](step / max(1, steps))
    )
    start = time.perf_counter()
    if not model.training:  # a model that trains keeps the modes of its parts: a frozen BatchNorm stays frozen
        model.train()
    for step, (x, y) in enumerate(islice(data.forever(), steps), start=1):
        if step % prior_every == 0:
            for layer in bayesian_layers(model).values():
                layer.prior.update_(layer.posterior)
        loss = method.update(x, y, temperature * kl_weight(step, steps))
        value, nll, kl = (float(part) for part in loss)
        if not math.isfinite(value):
            raise HeadstartError(
                f"The loss became {value} at step {step} (nll {nll:.4g}, KL {kl:.4g}). Try a smaller lr than {lr:g}, clip=1.0, "
                "standardised inputs, or initialize_(model, 'iblm', ...) first."
            )
        schedule.step()
        yield Step(step, value, nll, kl, time.perf_counter() - start)


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
    progress: bool = True,
    seed: int | None = None,
    **options: Any,
) -> History:
    """Train to the end of `steps`, with a progress bar; takes the options of `steps` too.

    With `validation` data the likelihood's metrics are taken every `every` steps, and the model ends with the parameters of the
    best `monitor`; `patience` evaluations without a better one end it early.

    Example:
        >>> import headstart as hs
        >>> x = torch.randn(100, 3)
        >>> model, lik = hs.bayesianize(nn.Linear(3, 1)), hs.Gaussian()
        >>> len(hs.fit(model, lik, (x, x.sum(1)), steps=5, progress=False, seed=0).steps)
        5
    """
    if "steps" not in options:
        raise HeadstartError("fit needs the number of steps, as in fit(model, likelihood, batches, steps=2000).")
    history = History()
    watch = None if validation is None else _Watch(model, likelihood, validation, monitor, validation_samples)
    with torch.random.fork_rng(enabled=seed is not None), _bar(progress) as bar:
        if seed is not None:
            torch.manual_seed(seed)
        task = bar.add_task("fit", total=options["steps"])
        for record in steps(model, likelihood, batches, **options):
            history.steps.append(record)
            bar.update(task, advance=1, description=f"fit · nelbo {record.nelbo:.4g}")
            if watch is not None and (record.step % every == 0 or record.step == options["steps"]):
                history.validation.append(watch.look(record.step))
                if patience is not None and watch.misses >= patience:
                    history.stopped = f"no better {monitor} in {patience} evaluations"
                    break
    if watch is not None:
        history.best_step = watch.restore_()
    return history


class _Watch:
    """Validation: remembers the best parameters seen."""

    def __init__(self, model: nn.Module, likelihood: Likelihood, data: Data, monitor: str, samples: int) -> None:
        self.modules = nn.ModuleList([model, likelihood])
        self.data, self.monitor, self.samples = data, monitor, samples
        self.best, self.misses, self.best_step = math.inf, 0, 0
        self.parameters = copy.deepcopy(self.modules.state_dict())

    def look(self, step: int) -> dict[str, float]:
        model, likelihood = self.modules
        scores = evaluate(model, likelihood, self.data, self.samples, seed=0)  # type: ignore[arg-type]
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

    def restore_(self) -> int:
        self.modules.load_state_dict(self.parameters)
        return self.best_step


def _bar(progress: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, disable=not progress, transient=True)
