"""One training run: everything that decides its numbers, and the way from data to rows."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from headstart import data
from headstart.errors import HeadstartError
from headstart.experiments.look import Look
from headstart.experiments.parts import prepare
from headstart.experiments.tables import read_table
from headstart.experiments.tasks import PAPER_NOISE_VAR, TASKS
from headstart.inference import make_inference
from headstart.initializers import initialize_
from headstart.models import create
from headstart.storage.checkpoints import Keeper
from headstart.training.loop import Training

Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A run, whole: the same `Run` gives the same rows to the last bit, on one machine, whatever ran before it.

    `dataset` is a name or a csv file, of which `target` is the column to predict and `content` the digest. Training takes
    `steps`, or `epochs` passes. Rows come at the `checkpoints`, at step 0 and at the end. `line`, the two ends of a line of
    inputs in their own units, asks for predictions along it. `noise_var` is where the noise of standardised targets starts.
    Rows are put together by `label`; empty, it is the initialiser's name. Where `test_rows` are given only so many rows, evenly
    spaced, are tested. `outsiders` names a data set that should puzzle the model, as told by its entropy; `diagrams` keeps what
    a reliability diagram and histograms of entropy are drawn from. Images may `flip` and `shift` in training. With the precision
    `bfloat16` training goes on under autocast.

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
    kl_schedule: str = "constant"
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
    test_rows: int | None = None
    outsiders: str = ""
    diagrams: bool = False
    flip: bool = False
    shift: int = 0
    precision: str = "float32"
    device: str = "cpu"
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
        return (
            self.steps
            if self.steps is not None
            else (self.epochs or 0) * math.ceil(rows / self.batch)
        )

    def load(self, data_dir: str | Path | None = None) -> data.Dataset:
        """The data set that `dataset` names."""
        return (
            read_table(Path(self.dataset), self.target)
            if self.target
            else data.load(self.dataset, data_dir)
        )


def run(run: Run, data_dir: str | Path | None = None, unfinished: Path | None = None) -> list[Row]:
    """Train, and return a row for each evaluation; the last one is marked `last`.

    A run that breaks down on the way, a loss that is no longer finite for instance, ends in a row that says why in `failed`.
    In the folder `unfinished` its state is kept while it goes on; a process that was killed there is taken up where it was.

    Example:
        >>> [row["step"] for row in run(Run("toy", "mlp-1x20", "iblm", steps=3, checkpoints=(1, 2)))]
        [0, 1, 2, 3]
    """
    dataset = run.load(data_dir)
    outsiders = data.load(run.outsiders, data_dir) if run.outsiders else None
    keeper = None if unfinished is None else Keeper(unfinished / run.key, keep=1)
    _warm_up()
    rows: list[Row] = []
    with _alone(run):
        try:
            for row in _evaluations(run, dataset, outsiders, keeper):
                rows.append({**_heading(run), **row})
        except HeadstartError as error:
            rows.append(
                {
                    **_heading(run),
                    **(rows[-1] if rows else {"step": 0}),
                    "failed": str(error),
                    "nc": True,
                }
            )
    rows[-1]["last"] = True
    return rows


def _evaluations(
    run: Run, dataset: data.Dataset, outsiders: data.Dataset | None, keeper: Keeper | None
) -> Iterator[Row]:
    """Data, batches, likelihood, net, bayesianize, initialize_, steps, predict, evaluate."""
    task = TASKS[dataset.task]
    parts = prepare(run, dataset, task.standardize_targets)
    likelihood = task.likelihood(dataset, run.noise_var, run.learn_noise).to(run.device)
    net = create(run.model, tuple(dataset.x.shape[1:]), task.outputs(dataset)).to(run.device)
    method = make_inference(run.method)
    model = method.convert(net, posterior=run.posterior, prior=run.prior)
    state = _left(keeper, run)
    if state is None:
        report = initialize_(
            model, run.init, likelihood, parts.start, seed=run.seed, **run.init_options
        )
        state = {"rows": "[]", "init_seconds": report.seconds, "seconds": 0.0}
    look = Look(run, task, model, likelihood, parts, outsiders)
    training = Training(
        model,
        likelihood,
        parts.train,
        steps=run.total(parts.num_data),
        samples=run.samples,
        lr=run.lr,
        batch_size=run.batch,
        inference=method,
        temperature=run.kl_weight,
        kl_schedule=run.kl_schedule,
        precision=run.precision,
    )
    if "training" in state:
        training.load_state_(state["training"])
    rows: list[Row] = json.loads(state["rows"])
    yield from rows
    saved = time.perf_counter()

    def row() -> Row:
        timed = {
            "step": training.done,
            "seconds": state["seconds"],
            "init_seconds": state["init_seconds"],
        }
        rows.append(_finite({**timed, **look()}))
        return rows[-1]

    if not rows:
        yield row()
    start = time.perf_counter()
    for record in training:
        due = record.step in run.checkpoints or record.step == training.total
        if due or (keeper and time.perf_counter() - saved > SAVE_SECONDS):
            state["seconds"] += (
                time.perf_counter() - start
            )  # of training: looking and saving do not count
            training.check()
            if due:
                yield row()
            if keeper and record.step < training.total:
                with suppress(HeadstartError):  # a full disk must not end a run
                    keeper.save(
                        training.done,
                        {**state, "rows": json.dumps(rows), "training": training.state()},
                        {"run": run.key},
                    )
                saved = time.perf_counter()
            start = time.perf_counter()


def _left(keeper: Keeper | None, run: Run) -> dict[str, Any] | None:
    """What an earlier process has left, if it can be read: else the run begins anew."""
    try:
        return keeper.latest({"run": run.key}) if keeper else None
    except HeadstartError:
        return None


SAVE_SECONDS = 30.0
"""How much work may be lost, about, where a process is killed between two evaluations."""


@contextmanager
def _alone(run: Run) -> Iterator[None]:
    """The run's own random numbers and number of threads; the caller's come back afterwards."""
    threads = torch.get_num_threads()
    device = torch.device(run.device)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
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
        "versions": {
            "headstart": importlib.metadata.version("headstart"),
            "torch": torch.__version__,
        },
    }


def _finite(row: Row) -> Row:
    """JSON has no infinity: what is not finite is null."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
