"""Train/test splits, and scaling fitted on the training part alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headstart.data.datasets import Dataset
from headstart.errors import HeadstartError


@dataclass(frozen=True, eq=False)
class Split:
    """Training and test parts of a data set.

    Args:
        x_train: Inputs to learn from.
        y_train: Their targets.
        x_test: Inputs to test on.
        y_test: Their targets.
    """

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor


@dataclass(frozen=True, eq=False)
class Scaling:
    """The affine maps of `standardize`, in float64: (x − x_mean) / x_scale, (y − y_mean) / y_scale.

    For images x is in [0, 1], its bytes divided by 255. Targets that were left alone have mean 0
    and scale 1. In target units, a root mean square error is `y_scale` times and a mean negative
    log-likelihood log `y_scale` more than on standardized targets.

    Args:
        x_mean: The mean of each column, or of each channel (C, 1, 1).
        x_scale: Its standard deviation; 1 where it is constant.
        y_mean: The mean of the targets.
        y_scale: Their standard deviation.
    """

    x_mean: Tensor
    x_scale: Tensor
    y_mean: Tensor
    y_scale: Tensor

    def inputs(self, x: Tensor) -> Tensor:
        """Inputs as the model sees them: floats keep their type, bytes become float32.

        Args:
            x: Rows of a table, or images as bytes.
        """
        # Bytes without a copy in float64.
        if x.dtype == torch.uint8:
            return x.float().div_(255.0).sub_(self.x_mean.float()).div_(self.x_scale.float())
        return ((x.double() - self.x_mean) / self.x_scale).to(x.dtype)

    def targets(self, y: Tensor) -> Tensor:
        """Targets as the model sees them; labels as they are.

        Args:
            y: Targets in their own units.
        """
        return (
            ((y.double() - self.y_mean) / self.y_scale).to(y.dtype) if y.is_floating_point() else y
        )

    def in_units(self, y: Tensor) -> Tensor:
        """Standardized targets or predictions, back in target units.

        Args:
            y: What `targets` gave, or a prediction of it.
        """
        return (y.double() * self.y_scale + self.y_mean).to(y.dtype)

    def apply(self, split: Split) -> Split:
        """Both parts as the model sees them.

        Args:
            split: Parts in their own units.
        """
        x_train, x_test = (self.inputs(x) for x in (split.x_train, split.x_test))
        y_train, y_test = (self.targets(y) for y in (split.y_train, split.y_test))
        return Split(x_train, y_train, x_test, y_test)


def split(dataset: Dataset, index: int, *, fraction: float = 0.1, seed: int = 0) -> Split:
    """Split number `index`: the official test set where there is one, else some rows at random.

    Rows are ordered by raw PCG64 draws, a stream that numpy keeps the same on every platform and in
    every version.

    Args:
        dataset: What to split.
        index: The number of the split, from 0; official test sets have one split only.
        fraction: Of the rows to test on.
        seed: Another seed gives other splits.

    Raises:
        HeadstartError: If the fraction leaves no row on one side.

    Example:
        >>> from headstart.data import load
        >>> parts = split(load("toy"), 0)
        >>> len(parts.x_train), len(parts.x_test)
        (461, 51)
    """
    if dataset.test is not None:
        return Split(dataset.x, dataset.y, *dataset.test)
    n = len(dataset.x)
    test_rows = round(fraction * n)
    if not 0 < test_rows < n:
        raise HeadstartError(
            f"A fraction of {fraction} leaves {test_rows} of {n} rows for testing: "
            "choose another one."
        )
    if index < 0 or seed < 0:
        raise HeadstartError(
            f"Splits are numbered from 0, and so are seeds: got index {index}, seed {seed}."
        )
    # A key of its own: rows that were themselves drawn from PCG64(seed) would come out sorted.
    draws = np.random.PCG64(np.random.SeedSequence([seed, index], spawn_key=(1,))).random_raw(n)
    order = torch.from_numpy(np.argsort(draws, kind="stable"))
    test, train = order[:test_rows], order[test_rows:]
    return Split(dataset.x[train], dataset.y[train], dataset.x[test], dataset.y[test])


def split_in_time(dataset: Dataset, index: int, *, blocks: int = 10) -> Split:
    """Split number `index` of a series: one of `blocks` stretches of it is the test part.

    A random split of a series has the neighbors in time of every test row among its training rows;
    here only those at the two ends of the stretch have any.
    The first half of the splits tests on every other stretch, so that a few of them cover the
    series.

    Args:
        dataset: A series, its rows in the order of time.
        index: The number of the split, from 0.
        blocks: How many stretches there are.

    Raises:
        HeadstartError: There is no such stretch, or the data set has an official test set.

    Example:
        >>> from headstart.data import load
        >>> series = load("diabetes")
        >>> parts = split_in_time(series, 0)
        >>> bool((parts.x_test == series.x[44:88]).all()), len(parts.x_train)
        (True, 398)
    """
    n = len(dataset.x)
    if dataset.test is not None:
        raise HeadstartError(f"{dataset.name} has an official test set: it is not split in time.")
    if not 0 <= index < blocks or not 1 < blocks <= n:
        raise HeadstartError(
            f"{n} rows in {blocks} stretches have splits 0 to {blocks - 1}, not {index}."
        )
    place = [*range(1, blocks, 2), *range(0, blocks, 2)][index]
    first, last = place * n // blocks, (place + 1) * n // blocks
    train = torch.cat([torch.arange(first), torch.arange(last, n)])
    return Split(dataset.x[train], dataset.y[train], dataset.x[first:last], dataset.y[first:last])


def standardize(split: Split, targets: bool) -> tuple[Split, Scaling]:
    """Zero mean and unit (population) variance by the training part.

    Columns of tables and channels of images are scaled each for itself; a constant one becomes 0,
    with scale 1.

    Args:
        split: Parts in their own units.
        targets: Whether y is scaled too.

    Returns:
        The parts as a model sees them, and the way back.

    Example:
        >>> x = torch.tensor([[1.0, 7.0], [3.0, 7.0]])
        >>> parts, scaling = standardize(Split(x, 10 * x[:, :1], x, 10 * x[:, :1]), targets=True)
        >>> parts.x_train.tolist(), parts.y_train.tolist(), scaling.y_scale.tolist()
        ([[-1.0, 0.0], [1.0, 0.0]], [[-1.0], [1.0]], [10.0])
    """
    scaling = fit_scaling(split, targets)
    return scaling.apply(split), scaling


def fit_scaling(split: Split, targets: bool) -> Scaling:
    """The scaling of `standardize`, before it is applied to anything.

    Args:
        split: Parts in their own units, of which the training part counts.
        targets: Whether y is scaled too.
    """
    if targets and not split.y_train.is_floating_point():
        raise HeadstartError("Class labels cannot be standardized: pass targets=False.")
    x_mean, x_scale = (_byte_moments if split.x_train.dtype == torch.uint8 else _column_moments)(
        split.x_train
    )
    if targets:
        y_mean, y_scale = _column_moments(split.y_train)
    else:
        y_mean, y_scale = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    return Scaling(x_mean, x_scale, y_mean, y_scale)


def _column_moments(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column; one that is constant to the bit has scale 1."""
    values = values.double()
    if bad := torch.nonzero(~values.isfinite().all(dim=0)).flatten().tolist():
        raise HeadstartError(
            f"Missing or infinite values in column {', '.join(map(str, bad))}: "
            "fill or drop them first."
        )
    constant = (values == values[0]).all(dim=0)
    mean = torch.where(constant, values[0], values.mean(dim=0))
    scale = torch.where(constant, 1.0, values.std(dim=0, correction=0))
    return mean, scale


def _byte_moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and sd (C, 1, 1) of each channel over 255, exactly, from counts of the 256 values."""
    values = torch.arange(256, dtype=torch.float64)
    counts = torch.stack(
        [channel.flatten().bincount(minlength=256) for channel in images.unbind(dim=1)]
    ).double()
    total = counts.sum(dim=1, keepdim=True)
    mean = (counts * values).sum(dim=1, keepdim=True) / total
    var = (counts * (values - mean) ** 2).sum(dim=1, keepdim=True) / total
    scale = torch.where(var == 0, 1.0, var.sqrt() / 255.0)
    return mean[..., None] / 255.0, scale[..., None]
