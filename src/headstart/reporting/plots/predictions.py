"""Pictures of predictions along a line of inputs, alone or above their learning curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from torch import Tensor

from headstart.reporting.plots.axes import SVG_STYLE, colors_of, to_svg
from headstart.reporting.plots.curves import Curve, Panel, draw_curves


class Band(NamedTuple):
    """A prediction along a line of inputs: its mean, the sd of the function and of the label."""

    x: Tensor
    mean: Tensor
    epistemic_std: Tensor
    std: Tensor


class Truth(NamedTuple):
    """What prediction_bands are drawn upon: the training rows, and the function they came from."""

    x: Tensor
    y: Tensor
    function: Callable[[Tensor], Tensor]


class Runner(Protocol):
    """What `draw_race` draws of each initializer."""

    name: str
    curve: list[tuple[int, float, float]]
    before: Band | None
    after: Band | None


def draw_race(
    runners: Sequence[Runner],
    train: tuple[Tensor, Tensor],
    truth: Callable[[Tensor], Tensor],
    path: Path,
) -> None:
    """Predictions after initialization, below it after training, and learning curves."""
    count = len(runners)
    figure = plt.figure(figsize=(2.7 * count, 9), layout="constrained")
    grid = figure.add_gridspec(3, 2 * count, height_ratios=(1, 1, 1.2))
    bands = {
        "after initialization": {runner.name: runner.before for runner in runners},
        "after training": {runner.name: runner.after for runner in runners},
    }
    _draw_predictions(figure, grid, bands, Truth(*train, truth), columns=2)
    for half, (index, label) in enumerate(((1, "test RMSE"), (2, "test MNLL (nats)"))):
        axes = figure.add_subplot(grid[2, half * count : (half + 1) * count])
        curves = {}
        for runner in runners:
            values = [point[index] for point in runner.curve]
            curves[runner.name] = Curve(
                [point[0] for point in runner.curve], values, values, values
            )
        draw_curves(
            axes, Panel("", label, "log" if index == 1 else "symlog", curves), colors_of(curves)
        )
        axes.set_xlabel("step")
    axes.legend(frameon=False, ncols=2)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def prediction_bands(rows: Mapping[str, Mapping[str, Band | None]], truth: Truth) -> str:
    """An svg picture of prediction_bands: a row for each moment, a column for each initializer."""
    count = max(len(bands) for bands in rows.values())
    with matplotlib.rc_context(SVG_STYLE):
        figure = plt.figure(figsize=(2.3 * count, 0.5 + 2.2 * len(rows)), layout="constrained")
        _draw_predictions(figure, figure.add_gridspec(len(rows), count), rows, truth)
        return to_svg(figure)


def _draw_predictions(
    figure: Any,
    grid: Any,
    rows: Mapping[str, Mapping[str, Band | None]],
    truth: Truth,
    columns: int = 1,
) -> None:
    """Each band in its own axes, `columns` columns of the grid wide, all with the same limits."""
    first: Any = None
    colors = colors_of(dict.fromkeys(name for bands in rows.values() for name in bands))
    for row, (moment, bands) in enumerate(rows.items()):
        for column, (name, band) in enumerate(bands.items()):
            axes = figure.add_subplot(
                grid[row, columns * column : columns * (column + 1)], sharex=first, sharey=first
            )
            first = first or axes
            if band is not None:
                _draw_band(axes, band, truth, colors[name])
            axes.set_ylim(-5.5, 5.5)
            axes.tick_params(labelleft=column == 0, labelbottom=row == len(rows) - 1)
            axes.set_xlabel("x" if row == len(rows) - 1 else "")
            if row == 0:
                axes.set_title(name)
            if column == 0:
                axes.set_ylabel(f"{moment}\ny")


def _draw_band(axes: Any, band: Band, truth: Truth, color: str) -> None:
    x, mean, function, label = (np.asarray(part.flatten()) for part in band)
    points = (np.asarray(part.flatten()) for part in (truth.x, truth.y))
    axes.scatter(*points, s=2, color="black", alpha=0.25, linewidths=0, rasterized=True)
    axes.plot(
        x, np.asarray(truth.function(band.x).flatten()), color="black", linewidth=0.8, linestyle=":"
    )
    for sd, alpha in ((label, 0.15), (function, 0.35)):
        axes.fill_between(x, mean - 2 * sd, mean + 2 * sd, color=color, alpha=alpha, linewidth=0)
    axes.plot(x, mean, color=color)
