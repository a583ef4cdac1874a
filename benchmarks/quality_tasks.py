"""The tasks of benchmarks/quality.py: rows, nets, and what a prediction scores."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from headstart import data, models

BATCH_ROWS = 64
TIME_BLOCKS = 20
"""Blocks of rows in time order; the rows of a block stay together."""


@dataclass(frozen=True)
class Task:
    """A net on a data set.

    Args:
        name: Of the task.
        dataset: One of `headstart.data.NAMES`.
        net: One of `headstart.models`.
        in_time: Whether rows are split in blocks of time.
        seconds: How long headstart may run, on one quiet core.
    """

    name: str
    dataset: str
    net: str
    in_time: bool = False
    seconds: float = 120.0


TASKS = {
    task.name: task
    for task in (
        Task("mlp-5x100/mnist", "mnist", "mlp-5x100", seconds=300),
        Task("lenet/mnist", "mnist", "lenet", seconds=300),
        Task("lenet/cifar10", "cifar10", "lenet", seconds=600),
        Task("protein", "protein", "mlp-1x100", seconds=300),
        Task("energy", "energy", "mlp-1x50", seconds=60),
        Task("eeg", "eeg", "mlp-2x100", in_time=True),
        Task("spam", "spam", "mlp-1x100"),
        Task("diabetes", "diabetes", "mlp-1x20", seconds=10),
    )
}
"""`diabetes` needs no files: it shows that all runs."""


@dataclass(frozen=True)
class Rows:
    """Standardized rows of a task: for training, for validation, for the test."""

    train: tuple[Tensor, Tensor]
    valid: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    classes: int
    """0 for real labels."""

    @property
    def outputs(self) -> int:
        return self.classes or self.train[1].shape[1]

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of training rows without end."""
        x, y = self.train
        while True:
            yield from ((x[some], y[some]) for some in torch.randperm(len(x)).split(BATCH_ROWS))


def table_of(name: str) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor] | None]:
    """Inputs, labels (whole numbers are classes), and the test rows where they are given."""
    if name in data.NAMES:
        dataset = data.load(name)
        classes = dataset.task == "classification"
        kind = torch.long if classes else torch.float32
        y = dataset.y.flatten() if classes else dataset.y.reshape(len(dataset.x), -1)
        return dataset.x.float(), y.to(kind), dataset.test
    path = Path(os.environ["HEADSTART_DATA"]) / name / "data.txt.gz"
    columns = torch.tensor(np.loadtxt(path), dtype=torch.float32)
    return columns[:, :-1], columns[:, -1:], None


def parts_of(task: Task, count: int, test_given: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Which rows are for training, for validation and for the test."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    tenth = count // 10
    if task.in_time:
        blocks = torch.arange(count).tensor_split(TIME_BLOCKS)
        kept = [block for index, block in enumerate(blocks) if index % 10 not in (4, 9)]
        return torch.cat(kept), torch.cat(blocks[9::10]), torch.cat(blocks[4::10])
    if test_given:
        return order[tenth:], order[:tenth], order[:0]
    return order[2 * tenth :], order[:tenth], order[tenth : 2 * tenth]


def read(task: Task) -> Rows:
    """The rows of a task, always the same ones, standardized by those for training."""
    x, y, given = table_of(task.dataset)
    train, valid, test = parts_of(task, len(x), given is not None)
    classes = 0 if y.is_floating_point() else int(y.max()) + 1
    axes = [0] if x.ndim == 2 else [0, 2, 3]
    center, scale = x[train].mean(axes, keepdim=True), x[train].std(axes, keepdim=True)
    known = y[train].float()

    def scaled(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        inputs = (inputs.float() - center) / torch.where(scale > 0, scale, 1.0)
        if classes:
            return inputs, labels.flatten().long()
        labels = labels.float().reshape(len(inputs), -1)
        return inputs, (labels - known.mean(0)) / known.std(0)

    last = (x[test], y[test]) if given is None else given
    return Rows(scaled(x[train], y[train]), scaled(x[valid], y[valid]), scaled(*last), classes)


def new_net(task: Task, rows: Rows) -> nn.Module:
    """The plain net of a task, with torch's own start."""
    shape = tuple(rows.train[0].shape[1:])
    return models.create(task.net, shape[0] if len(shape) == 1 else shape, rows.outputs)


def log_probs(f: Tensor, y: Tensor, log_noise: Tensor) -> Tensor:
    """log p(y | f) of each row: classes where labels are whole, else Gaussian."""
    if not y.is_floating_point():
        picked = f.log_softmax(-1).gather(-1, y.expand(f.shape[:-1]).unsqueeze(-1))
        return picked.squeeze(-1)
    squares = (y - f).square() * (-log_noise).exp()
    return -0.5 * (squares + log_noise + math.log(2 * math.pi)).sum(-1)


def nll(draws: Tensor) -> float:
    """The NLL per row of the average over draws of p(y), given its logarithms (S, rows)."""
    return -float((draws.double().logsumexp(0) - math.log(len(draws))).mean())
