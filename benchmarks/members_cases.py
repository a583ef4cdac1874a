"""The problems of `members_quality.py`: nets, budgets, rows, and images out of distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

import headstart as hs
from headstart import data
from headstart.experiments.prepare import evenly_spaced
from headstart.initializers import BATCH_SIZE

ALTERED_ROWS, UNSEEN_ROWS = 500, 2000
ALTERED = ("rotated", "shuffled", "noise")
Training = data.Images | tuple[Tensor, Tensor]
"""Training rows: images as bytes, or a table."""


class Problem(NamedTuple):
    """A net, its data and the budget of a comparison."""

    dataset: str
    model: str
    steps: int
    splits: int
    """Splits of a table; seeds where there is an official test set."""
    members: int = 4
    samples: int = 4
    eval_samples: int = 32
    rows: int | None = None
    """A bound on the rows of a table, before it is split."""
    test_rows: int = 2000
    validation: bool = False
    """Whether test rows are taken from the training rows."""
    unseen: str | None = None
    """Another data set, out of distribution: nothing is chosen on it."""


_MNIST = Problem("mnist", "lenet", 300, 2)
_TABLE = Problem("spam", "mlp-5x100", 300, 5)
SUITES = {
    "starts": (_MNIST._replace(splits=1, validation=True), _TABLE._replace(validation=True)),
    "small": (
        _MNIST._replace(unseen="notmnist"),
        _TABLE,
        _TABLE._replace(dataset="protein", rows=5000),
    ),
    "full": (
        Problem("mnist", "lenet-20-50", 2000, 1, members=5, test_rows=5000, unseen="notmnist"),
        Problem("cifar10", "lenet", 2000, 1, test_rows=5000),
    ),
}


@dataclass(frozen=True)
class Rows:
    """The rows of one split as a model sees them."""

    start: Training
    train: Training
    x_test: Tensor
    y_test: Tensor
    outside: dict[str, Tensor]
    """Out-of-distribution inputs by name."""
    classes: int | None
    log_scale: float
    """What is added to an NLL for the target's own units."""
    y_scale: float
    test_to_train: float

    @property
    def count(self) -> int:
        """How many training rows there are."""
        return len(self.start[1]) if isinstance(self.start, tuple) else len(self.start.y)

    def likelihood(self) -> hs.Likelihood:
        return hs.Gaussian() if self.classes is None else hs.Categorical(self.classes)

    def take(self, which: Tensor) -> Training:
        """Some of the rows of `start`, by their numbers."""
        if isinstance(self.start, tuple):
            return self.start[0][which], self.start[1][which]
        images = self.start
        return data.Images(
            images.x[which], images.y[which], images.scaling, batch_size=images.batch_size
        )


@lru_cache(maxsize=1)
def load(problem: Problem, index: int) -> Rows:
    """The rows of split number `index`."""
    dataset = data.load(problem.dataset)
    if problem.rows is not None:
        order = torch.randperm(len(dataset.x), generator=torch.Generator().manual_seed(0))
        some = order[: problem.rows]
        dataset = data.Dataset(**{**vars(dataset), "x": dataset.x[some], "y": dataset.y[some]})
    parts = data.split(dataset, index)
    if problem.validation:
        held = min(problem.test_rows, len(parts.x_train) // 10)
        parts = data.Split(
            parts.x_train[:-held],
            parts.y_train[:-held],
            parts.x_train[-held:],
            parts.y_train[-held:],
        )
    scaling = data.fit_scaling(parts, dataset.num_classes is None)
    test = evenly_spaced(len(parts.x_test), problem.test_rows)
    y, y_test = (scaling.targets(each) for each in (parts.y_train, parts.y_test[test]))
    start: Training
    train: Training
    if parts.x_train.dtype == torch.uint8:
        start = data.Images(parts.x_train, y, scaling, batch_size=BATCH_SIZE)
        train = data.Images(parts.x_train, y, scaling)
    else:
        start = train = scaling.inputs(parts.x_train), y
    scale = float(scaling.y_scale)
    return Rows(
        start,
        train,
        scaling.inputs(parts.x_test[test]),
        y_test,
        {name: scaling.inputs(x) for name, x in outside(problem, parts.x_test).items()},
        dataset.num_classes,
        math.log(scale),
        scale,
        len(parts.x_test) / len(parts.x_train) if dataset.test is None else 0.0,
    )


def outside(problem: Problem, images: Tensor) -> dict[str, Tensor]:
    """Images that are not like those of training; none for tables."""
    if images.dtype != torch.uint8:
        return {}
    generator = torch.Generator().manual_seed(0)
    some = images[evenly_spaced(len(images), ALTERED_ROWS)]
    order = torch.rand(len(some), some[0, 0].numel(), generator=generator).argsort(1)
    shuffled = some.flatten(2).gather(2, order.unsqueeze(1).expand(-1, some.shape[1], -1))
    found = {
        "rotated": some.rot90(1, (2, 3)),
        "shuffled": shuffled.view_as(some),
        "noise": torch.randint(256, some.shape, generator=generator, dtype=torch.uint8),
    }
    if problem.unseen is not None:
        unseen = data.load(problem.unseen).x
        found[problem.unseen] = unseen[evenly_spaced(len(unseen), UNSEEN_ROWS)]
    return found
