"""One training run: everything that decides its numbers, and the way from data to rows."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headstart import data
from headstart.errors import HeadstartError
from headstart.experiments.tables import read_table
from headstart.experiments.tasks import PAPER_NOISE_VAR, TASKS, Task
from headstart.inference import make_inference
from headstart.initializers import initialize_
from headstart.likelihoods import Likelihood
from headstart.models import create
from headstart.objective import nelbo
from headstart.predictive import predict
from headstart.training import steps

Row = dict[str, Any]
NELBO_ROWS = 1024
"""Training rows, always the same ones, on which a row's NELBO is estimated."""
LINE_POINTS = 91


@dataclass(frozen=True)
class Run:
    """A run, whole: the same `Run` gives the same rows to the last bit, on one machine, whatever ran before it.

    `dataset` is a name or a csv file, of which `target` is the column to predict and `content` the digest. Training takes
    `steps`, or `epochs` passes. Rows come at the `checkpoints`, at step 0 and at the end. `line`, the two ends of a line of
    inputs in their own units, asks for predictions along it. `noise_var` is where the noise of standardised targets starts.
    Rows are put together by `label`; empty, it is the initialiser's name.

    Example:
        >>> one, other = Run("toy", "mlp-1x50", "iblm"), Run("toy", "mlp-1x50", "iblm", seed=1)
        >>> one.key == Run("toy", "mlp-1x50", "iblm").key, one.key == other.key
        (True, False)
    """

    dataset: str
    model: str
    init: str
    suite: str = "compare"
    budget: str = "own"
    target: str = ""
    content: str = ""
    method: str = "svi"
    init_options: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    posterior: str = "mean_field"
    prior: float | str = 1.0
    kl_weight: float = 1.0
    noise_var: float = PAPER_NOISE_VAR
    learn_noise: bool = True
    steps: int | None = 1000
    epochs: int | None = None
    samples: int = 16
    eval_samples: int = 64
    batch: int = 64
    lr: float = 1e-3
    seed: int = 0
    split: int = 0
    checkpoints: tuple[int, ...] = (50, 100, 200, 500, 1000)
    line: tuple[float, float] | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise HeadstartError("A run takes a number of steps or epochs: one of the two.")

    @cached_property
    def key(self) -> str:
        """A stable hash of all of the above."""
        canonical = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def total(self, rows: int) -> int:
        """The number of steps on so many training rows."""
        return self.steps if self.steps is not None else (self.epochs or 0) * math.ceil(rows / self.batch)

    def load(self, data_dir: str | Path | None = None) -> data.Dataset:
        """The data set that `dataset` names."""
        return read_table(Path(self.dataset), self.target) if self.target else data.load(self.dataset, data_dir)


def run(run: Run, data_dir: str | Path | None = None) -> list[Row]:
    """Train, and return a row for each evaluation; the last one is marked `last`.

    A run that breaks down on the way, a loss that is no longer finite for instance, ends in a row that says why in `failed`.

    Example:
        >>> [row["step"] for row in run(Run("toy", "mlp-1x20", "iblm", steps=3, checkpoints=(1, 2)))]
        [0, 1, 2, 3]
    """
    dataset = run.load(data_dir)
    _warm_up()
    rows: list[Row] = []
    with _alone(run):
        try:
            for row in _evaluations(run, dataset):
                rows.append({**_heading(run), **_finite(row)})
        except HeadstartError as error:
            rows.append({**_heading(run), **(rows[-1] if rows else {"step": 0}), "failed": str(error), "nc": True})
    rows[-1]["last"] = True
    return rows


def _evaluations(run: Run, dataset: data.Dataset) -> Iterator[Row]:
    """Data, batches, likelihood, net, bayesianize, initialize_, steps, predict, evaluate."""
    task = TASKS[dataset.task]
    split, scaling = data.standardize(data.split(dataset, run.split), targets=task.standardize_targets)
    train = (split.x_train, split.y_train)
    likelihood = task.likelihood(dataset, run.noise_var, run.learn_noise)
    net = create(run.model, tuple(split.x_train.shape[1:]), task.outputs(dataset))
    method = make_inference(run.method)
    model = method.convert(net, posterior=run.posterior, prior=run.prior)
    report = initialize_(model, run.init, likelihood, train, seed=run.seed, **run.init_options)
    look = _Look(run, task, model, likelihood, split, scaling)
    total = run.total(len(split.x_train))

    def row(step: int, seconds: float) -> Row:
        return {"step": step, "seconds": seconds, "init_seconds": report.seconds, **look()}

    yield row(0, 0.0)
    seconds, start = 0.0, time.perf_counter()
    for record in steps(
        model,
        likelihood,
        train,
        steps=total,
        samples=run.samples,
        lr=run.lr,
        batch_size=run.batch,
        inference=method,
        temperature=run.kl_weight,
    ):
        if record.step in run.checkpoints or record.step == total:
            seconds += time.perf_counter() - start  # of training: looking does not count
            yield row(record.step, seconds)
            start = time.perf_counter()


@dataclass(frozen=True)
class _Look:
    """A look at the model as it is: scores on the test part, the objective on the training part."""

    run: Run
    task: Task
    model: nn.Module
    likelihood: Likelihood
    split: data.Split
    scaling: data.Scaling

    def __call__(self) -> Row:
        run, split = self.run, self.split
        sampler = make_inference(run.method).test_sampler
        pred = predict(self.model, self.likelihood, split.x_test, run.eval_samples, sampler=sampler, seed=run.seed)
        return {**self.task.scores(pred, split, self.scaling), **self._objective(), **self._band()}

    @torch.no_grad()
    def _objective(self) -> Row:
        """KL and NELBO, its likelihood part estimated on the first training rows."""
        run, x, y = self.run, self.split.x_train[:NELBO_ROWS], self.split.y_train[:NELBO_ROWS]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(run.seed)
            loss = nelbo(
                self.model,
                self.likelihood,
                x,
                y,
                num_data=len(self.split.x_train),
                samples=run.samples,
                kl_weight=run.kl_weight,
            )
        return {"kl": float(loss.kl), "nelbo": float(loss.value)}

    def _band(self) -> Row:
        """Predictions along `line`, in the units of the data."""
        if self.run.line is None:
            return {}
        x = torch.linspace(*self.run.line, LINE_POINTS).unsqueeze(1)
        pred = predict(
            self.model,
            self.likelihood,
            self.scaling.inputs(x),
            self.run.eval_samples,
            sampler="weights",  # whole functions: smooth bands
            seed=self.run.seed,
        )
        scale = float(self.scaling.y_scale)
        parts = {
            "x": x,
            "mean": self.scaling.in_units(pred.mean),
            "epistemic_std": scale * pred.epistemic_std,
            "std": scale * pred.std,
        }
        return {"band": {name: [round(v, 4) for v in part.flatten().tolist()] for name, part in parts.items()}}


@contextmanager
def _alone(run: Run) -> Iterator[None]:
    """The run's own random numbers and number of threads; the caller's come back afterwards."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        torch.set_num_threads(run.threads)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _warm_up() -> None:
    """Torch imports its compiler at a process's first optimiser step, seconds that are no run's own."""
    torch.optim.Adam([torch.zeros(1, requires_grad=True)]).zero_grad()


def _heading(run: Run) -> Row:
    """What every row of a run says about it."""
    return {
        "run": run.key,
        **asdict(run),
        "versions": {"headstart": importlib.metadata.version("headstart"), "torch": torch.__version__},
    }


def _finite(row: Row) -> Row:
    """JSON has no infinity: what is not finite is null."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }
