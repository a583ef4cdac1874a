"""One training run, from data to rows."""

from __future__ import annotations

import importlib.metadata
import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from headstart import data
from headstart.errors import HeadstartError
from headstart.experiments.code import code_hash
from headstart.experiments.evaluate import Evaluation
from headstart.experiments.prepare import load_dataset, nearest_neighbor, prepare
from headstart.experiments.spec import ResultRow, Run
from headstart.experiments.start import start_run_
from headstart.experiments.tasks import EXPERIMENT_TASKS
from headstart.inference import Inference, make_inference
from headstart.kernels.random_state import seeded
from headstart.models import create
from headstart.storage.checkpoints import Keeper
from headstart.training.loop import Training

SAVE_SECONDS = 30.0
"""How much work may be lost, about, where a process is killed between two evaluations."""


def run_experiment(
    run: Run, data_dir: str | Path | None = None, unfinished: Path | None = None
) -> list[ResultRow]:
    """Train, and return a row for each evaluation; the last one is marked `last`.

    A run that breaks down on the way, by a non-finite loss for instance, ends in a row that says
    why in `failed`.

    Args:
        run: What to run.
        data_dir: Where the data sets are.
        unfinished: A folder for the run's state while it goes on; a killed run is resumed there.

    Returns:
        The rows, step by step.

    Raises:
        HeadstartError: The run was planned by other code than that of this process.

    Example:
        >>> small = Run("toy", "mlp-1x20", "iblm", steps=3, checkpoints=(1, 2))
        >>> [row["step"] for row in run_experiment(small)]
        [0, 1, 2, 3]
    """
    if run.code != code_hash():
        raise HeadstartError(
            f"The run was planned by code {run.code}, and this process has {code_hash()}: "
            "start again."
        )
    dataset = load_dataset(run, data_dir)
    other = run.out_of_distribution
    out_of_distribution = data.load(other, data_dir) if other else None
    keeper = None if unfinished is None else Keeper(unfinished / run.key, keep=1)
    _warm_up()
    rows: list[ResultRow] = []
    with _isolated(run):
        try:
            for row in _evaluations(run, dataset, out_of_distribution, keeper):
                rows.append({**_identity(run), **row})
        except HeadstartError as error:
            last = rows[-1] if rows else {"step": 0}
            rows.append({**_identity(run), **last, "failed": str(error), "nc": True})
    rows[-1]["last"] = True
    return rows


def _evaluations(
    run: Run,
    dataset: data.Dataset,
    out_of_distribution: data.Dataset | None,
    keeper: Keeper | None,
) -> Iterator[ResultRow]:
    """Data, batches, likelihood, net, bayesianize, initialize_, steps, predict, evaluate."""
    task = EXPERIMENT_TASKS[dataset.task]
    parts = prepare(run, dataset, task.standardize_targets)
    likelihood = task.likelihood(dataset, run.noise_var, run.learn_noise).to(run.device)
    net = create(run.model, tuple(dataset.x.shape[1:]), task.outputs(dataset)).to(run.device)
    method = make_inference(run.method)
    model = method.convert(net, posterior=run.posterior, prior=run.prior, members=run.members)
    state = _left_state(keeper, run)
    if state is None:
        seconds = start_run_(run, model, likelihood, parts)
        state = {"rows": "[]", "init_seconds": seconds, "seconds": 0.0}
    evaluate = Evaluation(run, task, model, likelihood, parts, out_of_distribution)
    training = Training(
        model,
        likelihood,
        parts.train,
        steps=run.total_steps(parts.num_data),
        samples=run.samples,
        lr=run.lr,
        optimizer=_optimizer(run, method),
        batch_size=run.batch,
        inference=method,
        temperature=run.kl_weight,
        kl_schedule=run.kl_schedule,
        precision=run.precision,
    )
    if "training" in state:
        training.load_state_(state["training"])
    rows: list[ResultRow] = json.loads(state["rows"])
    yield from rows

    def row(**more: Any) -> ResultRow:
        about = {
            "step": training.done,
            "seconds": state["seconds"],
            "init_seconds": state["init_seconds"],
            "test_to_train": parts.test_to_train,
            **more,
        }
        rows.append(_finite({**about, **evaluate()}))
        return rows[-1]

    if not rows:
        yield row(**nearest_neighbor(parts))
    start = saved = time.perf_counter()
    for record in training:
        due = record.step in run.checkpoints or record.step == training.total
        if due or (keeper and time.perf_counter() - saved > SAVE_SECONDS):
            # Seconds are those of training: evaluating and saving do not count.
            state["seconds"] += time.perf_counter() - start
            training.check()
            if due:
                yield row()
            if keeper and record.step < training.total:
                _keep(keeper, training, {**state, "rows": json.dumps(rows)}, run)
                saved = time.perf_counter()
            start = time.perf_counter()


def _optimizer(run: Run, method: Inference) -> str | None:
    """The optimizer of the run, but for methods that have their own."""
    return run.optimizer if method.optimizers else None


def _keep(keeper: Keeper, training: Training, state: dict[str, Any], run: Run) -> None:
    """Save the state of a run; a full disk must not end it."""
    with suppress(HeadstartError):
        keeper.save(training.done, {**state, "training": training.state()}, {"run": run.key})


def _left_state(keeper: Keeper | None, run: Run) -> dict[str, Any] | None:
    """What an earlier process has left, if it can be read: else the run begins anew."""
    try:
        return keeper.latest({"run": run.key}) if keeper else None
    except HeadstartError:
        return None


@contextmanager
def _isolated(run: Run) -> Iterator[None]:
    """The run's own random numbers and number of threads; the caller's come back afterwards."""
    threads = torch.get_num_threads()
    device = torch.device(run.device)
    with seeded(run.seed, device):
        torch.set_num_threads(run.threads)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _warm_up() -> None:
    """Torch imports its compiler at the first optimizer step: seconds that are no run's own."""
    torch.optim.Adam([torch.zeros(1, requires_grad=True)]).zero_grad()


def _identity(run: Run) -> ResultRow:
    """What every row of a run says about it."""
    versions = {
        "headstart": importlib.metadata.version("headstart"),
        "torch": torch.__version__,
    }
    return {"run": run.key, **asdict(run), "versions": versions}


def _finite(row: ResultRow) -> ResultRow:
    """JSON has no infinity: what is not finite is null."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
