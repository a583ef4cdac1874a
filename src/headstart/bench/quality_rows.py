"""Tasks of time to quality: their rows, their nets, and what a prediction scores."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits, make_friedman1
from torch import Tensor, nn

from headstart import data, models
from headstart.errors import HeadstartError, unknown

BATCH_ROWS, TIME_BLOCKS = 64, 100
"""Rows of a batch; blocks of rows in time order, whose rows stay together.

Of EEG a block is a bit more than a second. With half as many blocks, validation rows are predicted
best by an ensemble before its first step: there is nothing to reach.
"""
MAX_SCORED_ROWS = 2000
"""Images of validation, and of the test: to score all would take longer than to train."""
LabeledRows = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class QualityTask:
    """A net on a data set.

    Args:
        name: Of the task.
        dataset: One of scikit-learn's, of `headstart.data.NAMES`, or a folder of HEADSTART_DATA.
        net: One of `headstart.models`.
        seconds: The most that a run may take.
        in_time: Whether rows are split in blocks of time.
    """

    name: str
    dataset: str
    net: str
    seconds: float = 20.0
    in_time: bool = False


QUALITY_TASKS = {
    task.name: task
    for task in (
        QualityTask("friedman", "friedman", "mlp-1x50", 15),
        QualityTask("digits", "digits", "mlp-2x50", 15),
        QualityTask("energy", "energy", "mlp-1x50", 30),
        QualityTask("spam", "spam", "mlp-1x100"),
        QualityTask("protein", "protein", "mlp-1x100", 30),
        QualityTask("eeg", "eeg", "mlp-2x100", in_time=True),
        QualityTask("mlp-5x100/mnist", "mnist", "mlp-5x100", 150),
        QualityTask("lenet/mnist", "mnist", "lenet", 150),
        QualityTask("lenet/cifar10", "cifar10", "lenet", 700),
    )
}
SMALL_TASKS = ("friedman", "digits")
"""Those whose rows scikit-learn carries or makes."""


def quality_task(name: str) -> QualityTask:
    """A task by name."""
    if name not in QUALITY_TASKS:
        raise unknown("task", name, QUALITY_TASKS)
    return QUALITY_TASKS[name]


@dataclass(frozen=True)
class QualityRows:
    """Standardized rows of a task: for training, for validation, for the test.

    Args:
        train: Inputs and labels to learn from.
        valid: Those that choose settings and targets.
        test: Those that are reported.
        classes: How many; 0 for real labels.
    """

    train: LabeledRows
    valid: LabeledRows
    test: LabeledRows
    classes: int

    @property
    def outputs(self) -> int:
        return self.classes or self.train[1].shape[1]

    @property
    def images(self) -> bool:
        return self.train[0].ndim > 2

    def stream(self) -> Iterator[LabeledRows]:
        """Batches of training rows, pass after pass."""
        x, y = self.train
        while True:
            yield from ((x[some], y[some]) for some in torch.randperm(len(x)).split(BATCH_ROWS))


def _small_digits() -> LabeledRows:
    x, y = load_digits(return_X_y=True)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.long)


def _friedman() -> LabeledRows:
    """Friedman's first function of five of ten inputs, with noise."""
    x, y = make_friedman1(4000, noise=1.0, random_state=0)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32).unsqueeze(1)


_CARRIED = {"digits": _small_digits, "friedman": _friedman}


def _folder_table(name: str) -> LabeledRows:
    """A table without a header, whose last column is the label."""
    path = Path(os.environ.get("HEADSTART_DATA", "")) / name / "data.txt.gz"
    if not path.is_file():
        raise HeadstartError(f"There is no {path}: HEADSTART_DATA must name the folder of {name}.")
    columns = torch.tensor(np.loadtxt(path), dtype=torch.float32)
    return columns[:, :-1], columns[:, -1:]


def _labeled(name: str) -> tuple[Tensor, Tensor, LabeledRows | None]:
    """Inputs, labels (whole numbers are classes), and the test rows where they are given."""
    if name in _CARRIED:
        return *_CARRIED[name](), None
    if name not in data.NAMES:
        return *_folder_table(name), None
    found = data.load(name)
    if found.task == "classification":
        return found.x.float(), found.y.flatten().long(), found.test
    return found.x.float(), found.y.float().reshape(len(found.x), -1), found.test


def split_uses(task: QualityTask, count: int, test_given: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Which rows are for training, for validation and for the test.

    Args:
        task: Says whether rows are in time order.
        count: How many rows there are.
        test_given: Whether the test rows stand elsewhere.

    Returns:
        Three sets of indices without a common row.
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    tenth = count // 10
    if task.in_time:
        blocks = torch.arange(count).tensor_split(TIME_BLOCKS)
        kept = [block for index, block in enumerate(blocks) if index % 10 not in (4, 9)]
        return torch.cat(kept), torch.cat(blocks[9::10]), torch.cat(blocks[4::10])
    if test_given:
        return order[tenth:], order[:tenth], order[:0]
    return order[2 * tenth :], order[:tenth], order[tenth : 2 * tenth]


def read_rows(task: QualityTask) -> QualityRows:
    """The rows of a task, always the same ones, standardized by those for training.

    Example:
        >>> rows = read_rows(QUALITY_TASKS["friedman"])
        >>> rows.outputs, [len(part[0]) for part in (rows.train, rows.valid, rows.test)]
        (1, [3200, 400, 400])
    """
    x, y, given = _labeled(task.dataset)
    train, valid, test = split_uses(task, len(x), given is not None)
    classes = 0 if y.is_floating_point() else int(y.max()) + 1
    axes = [0] if x.ndim == 2 else [0, 2, 3]
    center, scale = x[train].mean(axes, keepdim=True), x[train].std(axes, keepdim=True)
    known = y[train].float()

    def scaled(inputs: Tensor, labels: Tensor, most: int = 0) -> LabeledRows:
        # Some that are spread over all, where there are too many.
        every = max(1, len(inputs) // most) if most else 1
        inputs, labels = inputs[::every][: most or None], labels[::every][: most or None]
        inputs = (inputs.float() - center) / torch.where(scale > 0, scale, 1.0)
        # A net of dense layers reads an image row by row.
        inputs = inputs if task.net.startswith("lenet") else inputs.flatten(1)
        if classes:
            return inputs, labels.flatten().long()
        labels = labels.float().reshape(len(inputs), -1)
        return inputs, (labels - known.mean(0)) / known.std(0)

    last = (x[test], y[test]) if given is None else given
    most = MAX_SCORED_ROWS if x.ndim > 2 else 0
    return QualityRows(
        scaled(x[train], y[train]),
        scaled(x[valid], y[valid], most),
        scaled(*last, most),
        classes,
    )


def plain_net(task: QualityTask, rows: QualityRows) -> nn.Module:
    """The plain net of a task, with torch's own start."""
    shape = tuple(rows.train[0].shape[1:])
    return models.create(task.net, shape[0] if len(shape) == 1 else shape, rows.outputs)


def label_log_probs(f: Tensor, y: Tensor, log_noise: Tensor) -> Tensor:
    """log p(y | f) of each row: classes where labels are whole, else Gaussian."""
    if not y.is_floating_point():
        picked = f.log_softmax(-1).gather(-1, y.expand(f.shape[:-1]).unsqueeze(-1))
        return picked.squeeze(-1)
    squares = (y - f).square() * (-log_noise).exp()
    return -0.5 * (squares + log_noise + math.log(2 * math.pi)).sum(-1)


def averaged_nll(draws: Tensor) -> float:
    """The NLL per row of the average over draws of p(y), given its logarithms (S, rows)."""
    return -float((draws.double().logsumexp(0) - math.log(len(draws))).mean())
