"""Pictures."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import matplotlib
import numpy as np
from torch import Tensor

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter

COLOURS = {
    "uninformative": "#8c8c8c",
    "heuristic": "#b07aa1",
    "xavier": "#edc948",
    "orthogonal": "#4e79a7",
    "lsuv": "#59a14f",
    "iblm": "#e15759",
    "iblm-paper": "#ff9da7",
}
OTHER_COLOUR = "#333333"
# Text stays text, and the same picture has the same bytes.
SVG_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "headstart"}


class Band(NamedTuple):
    """A prediction along a line of inputs: its mean, and the sds of the function and of the label."""

    x: Tensor
    mean: Tensor
    epistemic_std: Tensor
    std: Tensor


class Truth(NamedTuple):
    """What predictions are drawn upon: the training rows, and the function they came from."""

    x: Tensor
    y: Tensor
    function: Callable[[Tensor], Tensor]


class Curve(NamedTuple):
    """A metric against steps, with the lowest and highest of several runs."""

    steps: Sequence[int]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


class Panel(NamedTuple):
    """Learning curves in one pair of axes, one for each initialiser; higher than `top` is out of sight."""

    title: str
    label: str
    scale: str
    curves: Mapping[str, Curve]
    top: float | None = None


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
    bands = {
        "after initialisation": {runner.name: runner.before for runner in runners},
        "after training": {runner.name: runner.after for runner in runners},
    }
    _draw_predictions(figure, grid, bands, Truth(*train, truth), columns=2)
    for half, (index, label) in enumerate(((1, "test RMSE"), (2, "test MNLL (nats)"))):
        axes = figure.add_subplot(grid[2, half * count : (half + 1) * count])
        curves = {}
        for runner in runners:
            values = [point[index] for point in runner.curve]
            curves[runner.name] = Curve([point[0] for point in runner.curve], values, values, values)
        _draw_curves(axes, Panel("", label, "log" if index == 1 else "symlog", curves))
    axes.legend(frameon=False, ncols=2)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def predictions(rows: Mapping[str, Mapping[str, Band | None]], truth: Truth) -> str:
    """An svg picture of predictions: a row for each moment, a column for each initialiser."""
    count = max(len(bands) for bands in rows.values())
    with matplotlib.rc_context(SVG_STYLE):
        figure = plt.figure(figsize=(2.3 * count, 0.5 + 2.2 * len(rows)), layout="constrained")
        _draw_predictions(figure, figure.add_gridspec(len(rows), count), rows, truth)
        return _svg(figure)


def learning_curves(panels: Iterable[Sequence[Panel]]) -> str:
    """An svg picture of learning curves: one row of panels after the other, steps on a logarithmic axis."""
    rows = list(panels)
    with matplotlib.rc_context(SVG_STYLE):
        figure, grid = plt.subplots(
            len(rows), len(rows[0]), figsize=(1 + 3.3 * len(rows[0]), 0.6 + 2.7 * len(rows)), squeeze=False
        )
        figure.set_layout_engine("constrained")
        for axes, panel in zip(grid.flat, (panel for row in rows for panel in row), strict=True):
            _draw_curves(axes, panel)
            steps = sorted({step for curve in panel.curves.values() for step in curve.steps})
            axes.set_xscale("symlog", linthresh=max(1, *steps[:2]))
            axes.set_xticks(steps, [str(step) for step in steps], rotation=45)
            axes.set_xticks([], minor=True)
            axes.set_xlim(0, max(steps))
        handles, names = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
        return _svg(figure)


def _draw_predictions(
    figure: Any, grid: Any, rows: Mapping[str, Mapping[str, Band | None]], truth: Truth, columns: int = 1
) -> None:
    """Each band in its own axes, `columns` columns of the grid wide, all with the same limits."""
    first: Any = None
    for row, (moment, bands) in enumerate(rows.items()):
        for column, (name, band) in enumerate(bands.items()):
            axes = figure.add_subplot(grid[row, columns * column : columns * (column + 1)], sharex=first, sharey=first)
            first = first or axes
            if band is not None:
                _draw_band(axes, band, truth, COLOURS.get(name, OTHER_COLOUR))
            axes.set_ylim(-5.5, 5.5)
            axes.tick_params(labelleft=column == 0, labelbottom=row == len(rows) - 1)
            axes.set_xlabel("x" if row == len(rows) - 1 else "")
            if row == 0:
                axes.set_title(name)
            if column == 0:
                axes.set_ylabel(f"{moment}\ny")


def _draw_band(axes: Any, band: Band, truth: Truth, colour: str) -> None:
    x, mean, function, label = (np.asarray(part.flatten()) for part in band)
    points = (np.asarray(part.flatten()) for part in (truth.x, truth.y))
    axes.scatter(*points, s=2, color="black", alpha=0.25, linewidths=0, rasterized=True)
    axes.plot(x, np.asarray(truth.function(band.x).flatten()), color="black", linewidth=0.8, linestyle=":")
    for sd, alpha in ((label, 0.15), (function, 0.35)):
        axes.fill_between(x, mean - 2 * sd, mean + 2 * sd, color=colour, alpha=alpha, linewidth=0)
    axes.plot(x, mean, color=colour)


def _draw_curves(axes: Any, panel: Panel) -> None:
    for name, curve in panel.curves.items():
        colour = COLOURS.get(name, OTHER_COLOUR)
        axes.plot(curve.steps, curve.mean, label=name, color=colour, linewidth=2.4 if name == "iblm" else 1.5)
        axes.fill_between(curve.steps, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
    axes.set_title(panel.title.replace("$", r"\$"))  # a name, not mathematics
    axes.set_xlabel("step")
    axes.set_ylabel(panel.label)
    axes.set_yscale(panel.scale)
    lowest = min((low for curve in panel.curves.values() for low in curve.low), default=math.inf)
    if panel.top is not None and lowest < panel.top < axes.get_ylim()[1]:
        axes.set_ylim(lowest - 0.05 * (abs(lowest) if panel.scale == "log" else panel.top - lowest), panel.top)
    if panel.scale == "log":
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3)


def _svg(figure: Any) -> str:
    """The picture as an svg element, to stand in a page or a file of its own."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None}, dpi=72)
    plt.close(figure)
    return buffer.getvalue()[buffer.getvalue().index("<svg") :]
