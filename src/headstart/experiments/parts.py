"""The data of a run as the model sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headstart import data
from headstart.batching import Data
from headstart.initializers import BATCH_SIZE

if TYPE_CHECKING:
    from headstart.experiments.run import Run

NELBO_ROWS = 1024
"""Training rows, always the same ones, on which a row's NELBO is estimated."""


@dataclass(frozen=True, eq=False)
class Parts:
    """Training rows for the initialiser and for training, scaled test rows, and how they were scaled.

    Images stay bytes until they are in a batch; `first` are the first training rows, as floats.
    """

    start: Data
    train: Data
    first: tuple[Tensor, Tensor]
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    scaling: data.Scaling

    @property
    def num_data(self) -> int:
        """The number of training rows."""
        return len(self.y_train)


def prepare(run: Run, dataset: data.Dataset, targets: bool) -> Parts:
    """Split and scale; with `targets`, the labels too."""
    split = data.split(dataset, run.split)
    scaling = data.fit_scaling(split, targets)
    test = thin(len(split.x_test), run.test_rows)
    y_train, y_test = (scaling.targets(y) for y in (split.y_train, split.y_test[test]))
    x = split.x_train
    start: Data
    train: Data
    if x.dtype == torch.uint8:
        start = data.Images(x, y_train, scaling, batch_size=BATCH_SIZE, channels_last=True)
        train = data.Images(
            x, y_train, scaling, batch_size=run.batch, flip=run.flip, shift=run.shift
        )
    else:
        start = train = scaling.inputs(x), y_train
    first = scaling.inputs(x[:NELBO_ROWS]), y_train[:NELBO_ROWS]
    return Parts(start, train, first, y_train, scaling.inputs(split.x_test[test]), y_test, scaling)


def thin(rows: int, most: int | None) -> Tensor:
    """Which of so many rows to take: all, or `most` of them, evenly spaced.

    Example:
        >>> thin(10, None).tolist() == list(range(10)), thin(10, 4).tolist()
        (True, [0, 2, 5, 7])
    """
    return torch.arange(rows) if most is None or most >= rows else torch.arange(most) * rows // most
