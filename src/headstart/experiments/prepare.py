"""The data of a run as the model sees it: loaded, split, scaled, in batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from headstart import data
from headstart.batching import Data
from headstart.errors import unknown
from headstart.experiments.spec import Run
from headstart.experiments.tables import read_table
from headstart.initializers import BATCH_SIZE

NELBO_ROWS = 1024
"""Training rows, always the same ones, on which a row's NELBO is estimated."""
NEIGHBOR_ROWS = 256
"""Test rows whose distances to all training rows are computed at a time."""
SPLITS: dict[str, Callable[[data.Dataset, int], data.Split]] = {
    "rows": data.split,
    "time": data.split_in_time,
}
"""Ways to split a data set, by name."""


@dataclass(frozen=True, eq=False)
class PreparedData:
    """Training rows for the initializer and for training, test rows, and how they were scaled.

    Images stay bytes until they are in a batch.

    Args:
        start: The training rows as the initializer takes them.
        train: The training rows as training takes them.
        first: The first training rows, as floats, and their labels.
        y_train: All training labels.
        x_test: Test inputs.
        y_test: Test labels.
        scaling: How inputs and labels were scaled.
        test_to_train: Test rows per training row of a random split; 0 for a fixed test set.
    """

    start: Data
    train: Data
    first: tuple[Tensor, Tensor]
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    scaling: data.Scaling
    test_to_train: float

    @property
    def num_data(self) -> int:
        """The number of training rows."""
        return len(self.y_train)


def load_dataset(run: Run, data_dir: str | Path | None = None) -> data.Dataset:
    """The data set that a run names: a known one, or a csv file."""
    if run.target:
        return read_table(Path(run.dataset), run.target)
    return data.load(run.dataset, data_dir)


def split_of(run: Run, dataset: data.Dataset) -> data.Split:
    """The training and test rows of a run: at random, or a stretch of a series.

    Raises:
        HeadstartError: There is no such way to split.
    """
    if run.split_by not in SPLITS:
        raise unknown("way to split", run.split_by, SPLITS)
    return SPLITS[run.split_by](dataset, run.split)


def nearest_neighbor(parts: PreparedData) -> dict[str, float]:
    """The test error of the label of the nearest training row; nothing for quantities and images.

    What random splits leak of a series shows in it.
    """
    if not isinstance(parts.start, tuple) or parts.y_train.is_floating_point():
        return {}
    x, wrong = parts.start[0], 0
    for rows, labels in zip(
        parts.x_test.split(NEIGHBOR_ROWS), parts.y_test.split(NEIGHBOR_ROWS), strict=True
    ):
        nearest = torch.cdist(rows.double(), x.double()).argmin(1)
        wrong += int((parts.y_train[nearest] != labels).sum())
    return {"nearest_neighbor": wrong / len(parts.y_test)}


def prepare(run: Run, dataset: data.Dataset, targets: bool) -> PreparedData:
    """Split and scale; with `targets`, the labels too."""
    split = split_of(run, dataset)
    scaling = data.fit_scaling(split, targets)
    test = evenly_spaced(len(split.x_test), run.test_rows)
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
    return PreparedData(
        start=start,
        train=train,
        first=(scaling.inputs(x[:NELBO_ROWS]), y_train[:NELBO_ROWS]),
        y_train=y_train,
        x_test=scaling.inputs(split.x_test[test]),
        y_test=y_test,
        scaling=scaling,
        test_to_train=len(split.x_test) / len(x) if dataset.test is None else 0.0,
    )


def evenly_spaced(rows: int, limit: int | None) -> Tensor:
    """Which of so many rows to take: all, or `limit` of them, evenly spaced.

    Example:
        >>> evenly_spaced(10, None).tolist() == list(range(10)), evenly_spaced(10, 4).tolist()
        (True, [0, 2, 5, 7])
    """
    if limit is None or limit >= rows:
        return torch.arange(rows)
    return torch.arange(limit) * rows // limit
