"""Pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import matplotlib
import numpy as np
from torch import Tensor

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {
    "uninformative": "#8c8c8c",
    "heuristic": "#b07aa1",
    "xavier": "#edc948",
    "orthogonal": "#4e79a7",
    "lsuv": "#59a14f",
    "iblm": "#e15759",
    "iblm-paper": "#ff9da7",
}


class Band(NamedTuple):
    """A prediction along a line of inputs: its mean, and the sds of the function and of the label."""

    x: Tensor
    mean: Tensor
    epistemic_std: Tensor
    std: Tensor


class Runner(Protocol):
    """What `race` draws of each initialiser."""

    name: str
    curve: list[tuple[int, float, float]]
    before: Band | None
    after: Band | None


def race(
    runners: Sequence[Runner], train: tuple[Tensor, Tensor], truth: Callable[[Tensor], Tensor], path: Path
) -> None:
    """Predictions after initialisation above, after training in the middle, learning curves below."""
    count = len(runners)
    figure = plt.figure(figsize=(2.7 * count, 9), layout="constrained")
    grid = figure.add_gridspec(3, 2 * count, height_ratios=(1, 1, 1.2))
    first: Any = None
    for column, runner in enumerate(runners):
        for row, band in enumerate((runner.before, runner.after)):
            axes = figure.add_subplot(grid[row, 2 * column : 2 * column + 2], sharex=first, sharey=first)
            first = first or axes
            if band is not None:
                _draw_band(axes, band, train, truth, COLOURS[runner.name])
            axes.set_ylim(-5.5, 5.5)
            axes.tick_params(labelleft=column == 0, labelbottom=row == 1)
            axes.set_xlabel("x" if row == 1 else "")
            if row == 0:
                axes.set_title(runner.name)
            if column == 0:
                axes.set_ylabel(("after initialisation", "after training")[row] + "\ny")
    for half, (index, label) in enumerate(((1, "test RMSE"), (2, "test MNLL (nats)"))):
        axes = figure.add_subplot(grid[2, half * count : (half + 1) * count])
        for runner in runners:
            axes.plot(
                [p[0] for p in runner.curve],
                [p[index] for p in runner.curve],
                label=runner.name,
                color=COLOURS[runner.name],
            )
        axes.set_xlabel("step")
        axes.set_ylabel(label)
        axes.set_yscale("log" if index == 1 else "symlog")
        axes.grid(alpha=0.3)
    axes.legend(frameon=False, ncols=2)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_band(
    axes: Any, band: Band, train: tuple[Tensor, Tensor], truth: Callable[[Tensor], Tensor], colour: str
) -> None:
    x, mean, function, label = (np.asarray(part.flatten()) for part in band)
    axes.scatter(*(np.asarray(part.flatten()) for part in train), s=2, color="black", alpha=0.25, linewidths=0)
    axes.plot(x, np.asarray(truth(band.x).flatten()), color="black", linewidth=0.8, linestyle=":")
    for sd, alpha in ((label, 0.15), (function, 0.35)):
        axes.fill_between(x, mean - 2 * sd, mean + 2 * sd, color=colour, alpha=alpha, linewidth=0)
    axes.plot(x, mean, color=colour)
