"""Pictures."""

from __future__ import annotations

import io
import itertools
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
    "mc-dropout": "#499894",
    "noisy-kfac": "#9c755f",
}
OTHER_COLOURS = ("#d7b5a6", "#76b7b2", "#f28e2b", "#333333", "#d37295", "#a0cbe8")
"""For names that have no colour of their own, in turn."""
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
    """A metric against steps or rows, with the lowest and highest of several runs."""

    x: Sequence[int]
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


class Points(NamedTuple):
    """Several runs as points, and their mean."""

    x: Sequence[float]
    y: Sequence[float]
    mean: tuple[float, float]


class Reliability(NamedTuple):
    """Bins of confidence: the share of rows in each, their mean confidence and accuracy, and the error that sums it up."""

    share: Sequence[float]
    confidence: Sequence[float]
    accuracy: Sequence[float]
    ece: float


class Entropies(NamedTuple):
    """The share of rows in bins of entropy up to `top`, of test rows and of outsiders, and how well it tells them apart."""

    inside: Sequence[float]
    outside: Sequence[float]
    top: float
    auroc: float


class Runner(Protocol):
    """What `race` draws of each initialiser."""

    name: str
    curve: list[tuple[int, float, float]]
    before: Band | None
    after: Band | None


def race(
    runners: Sequence[Runner],
    train: tuple[Tensor, Tensor],
    truth: Callable[[Tensor], Tensor],
    path: Path,
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
            curves[runner.name] = Curve(
                [point[0] for point in runner.curve], values, values, values
            )
        _draw_curves(
            axes, Panel("", label, "log" if index == 1 else "symlog", curves), _colours(curves)
        )
        axes.set_xlabel("step")
    axes.legend(frameon=False, ncols=2)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def predictions(rows: Mapping[str, Mapping[str, Band | None]], truth: Truth) -> str:
    """An svg picture of predictions: a row for each moment, a column for each initialiser."""
    count = max(len(bands) for bands in rows.values())
    with matplotlib.rc_context(SVG_STYLE):
        figure = plt.figure(figsize=(2.3 * count, 0.5 + 2.2 * len(rows)), layout="constrained")
        _draw_predictions(figure, figure.add_gridspec(len(rows), count), rows, truth)
        return to_svg(figure)


def learning_curves(panels: Iterable[Sequence[Panel]]) -> str:
    """An svg picture of learning curves: one row of panels after the other, steps on a logarithmic axis."""

    def axis(axes: Any, steps: list[int]) -> None:
        axes.set_xscale("symlog", linthresh=max(1, *steps[:2]))
        axes.set_xlabel("step")
        axes.set_xlim(0, max(steps))

    return _panels(panels, axis)


def against_rows(panels: Iterable[Sequence[Panel]]) -> str:
    """An svg picture of metrics against the rows of a batch, these on a logarithmic axis."""

    def axis(axes: Any, rows: list[int]) -> None:
        axes.set_xscale("log", base=2)
        axes.set_xlabel("rows of a batch")

    return _panels(panels, axis)


def reliabilities(panels: Mapping[str, Mapping[str, Reliability]]) -> str:
    """An svg picture of reliability diagrams: accuracy against confidence above, how many rows below; a column for each problem."""
    colours = _colours(dict.fromkeys(name for found in panels.values() for name in found))
    with matplotlib.rc_context(SVG_STYLE):
        figure, grid = plt.subplots(
            2,
            len(panels),
            figsize=(1 + 3.8 * len(panels), 5.2),
            squeeze=False,
            height_ratios=(3, 1),
            sharex=True,
        )
        figure.set_layout_engine("constrained")
        for (above, below), (title, found) in zip(grid.T, panels.items(), strict=True):
            above.plot([0, 1], [0, 1], color="black", linewidth=0.8, linestyle=":")
            for name, part in found.items():
                bins = [b for b, share in enumerate(part.share) if share > 0]
                confidence, accuracy, share = (
                    [values[b] for b in bins]
                    for values in (part.confidence, part.accuracy, part.share)
                )
                above.plot(
                    confidence,
                    accuracy,
                    "o-",
                    color=colours[name],
                    label=f"{name}, ECE {part.ece:.3f}",
                )
                below.plot(confidence, share, "o-", color=colours[name], markersize=4)
            above.set(title=title.replace("$", r"\$"), ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
            above.legend(frameon=False, loc="upper left", fontsize=9)
            below.set(xlabel="confidence", ylabel="share of rows", yscale="log")
            for axes in (above, below):
                axes.grid(alpha=0.3)
        return to_svg(figure)


def entropies(panels: Mapping[str, Mapping[str, Entropies]], names: tuple[str, str]) -> str:
    """An svg picture of histograms of predictive entropy, rows of test data and outsiders: a panel for each method."""
    flat = {(title, name): part for title, found in panels.items() for name, part in found.items()}
    colours = _colours(dict.fromkeys(name for _, name in flat))
    with matplotlib.rc_context(SVG_STYLE):
        figure, grid = plt.subplots(
            1, len(flat), figsize=(1 + 3.8 * len(flat), 3.4), squeeze=False, sharey=True
        )
        figure.set_layout_engine("constrained")
        for axes, ((_, name), part) in zip(grid.flat, flat.items(), strict=True):
            edges = np.linspace(0, part.top, len(part.inside) + 1)
            axes.stairs(part.inside, edges, color="#555555", fill=True, alpha=0.45, label=names[0])
            axes.stairs(
                part.outside, edges, color=colours[name], fill=True, alpha=0.6, label=names[1]
            )
            axes.set(
                title=f"{name}, AUROC {part.auroc:.3f}",
                xlabel="predictive entropy (nats)",
                xlim=(0, part.top),
            )
            axes.legend(frameon=False)
            axes.grid(alpha=0.3)
        grid[0, 0].set_ylabel("share of rows")
        return to_svg(figure)


def times(groups: Mapping[str, Points], front: Sequence[str], label: str) -> str:
    """An svg picture of runs over the time they took: each a light dot, their mean marked and named, the front a stair."""
    colours = _colours(groups)
    with matplotlib.rc_context(SVG_STYLE):
        figure, axes = plt.subplots(figsize=(8.5, 5.2), layout="constrained")
        for name, points in groups.items():
            axes.scatter(points.x, points.y, s=14, color=colours[name], alpha=0.35, linewidths=0)
            axes.plot(
                *points.mean, marker="o", markersize=7, color=colours[name], markeredgecolor="black"
            )
        axes.set_xscale("log")
        axes.set_yscale(
            "log" if min(y for points in groups.values() for y in points.y) > 0 else "symlog"
        )
        axes.set_xlabel("time of initialisation (seconds)")
        axes.set_ylabel(label)
        _axis_in_plain_numbers(axes)
        axes.margins(x=0.12)
        x, y = zip(*(groups[name].mean for name in front), strict=True)
        right, top = axes.get_xlim()[1], axes.get_ylim()[1]
        axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
        axes.step(
            [x[0], *x, right],
            [top, *y, y[-1]],
            where="post",
            color="black",
            linewidth=1,
            linestyle="--",
            zorder=0,
        )
        _name(figure, axes, {name: points.mean for name, points in groups.items()})
        return to_svg(figure)


def _name(
    figure: Any, axes: Any, places: Mapping[str, tuple[float, float]], height: float = 13
) -> None:
    """Write names above and to the right of their points, further up where they would cover another name."""
    figure.draw_without_rendering()
    paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5}
    boxes: list[tuple[float, float, float]] = []
    for name, place in sorted(places.items(), key=lambda item: item[1][1]):
        x, y = axes.transData.transform(place) * 72 / figure.dpi
        left, right, low = x + 6, x + 6 + 6 * len(name), y + 5
        for other_left, other_right, other_low in sorted(boxes, key=lambda box: box[2]):
            if left < other_right and other_left < right and abs(low - other_low) < height:
                low = other_low + height
        boxes.append((left, right, low))
        line = (
            {"arrowstyle": "-", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 4}
            if low - y > height
            else None
        )
        axes.annotate(
            name,
            place,
            (6, low - y),
            textcoords="offset points",
            fontsize=9,
            arrowprops=line,
            bbox=paper,
            zorder=3,
        )


def _panels(panels: Iterable[Sequence[Panel]], axis: Callable[[Any, list[int]], None]) -> str:
    """Rows of panels, a tick at every place where a curve has a point, one legend."""
    rows = list(panels)
    colours = _colours(
        dict.fromkeys(name for row in rows for panel in row for name in panel.curves)
    )
    with matplotlib.rc_context(SVG_STYLE):
        figure, grid = plt.subplots(
            len(rows),
            len(rows[0]),
            figsize=(1 + 3.3 * len(rows[0]), 0.6 + 2.7 * len(rows)),
            squeeze=False,
        )
        figure.set_layout_engine("constrained")
        handles: dict[str, Any] = {}
        for axes, panel in zip(grid.flat, (panel for row in rows for panel in row), strict=True):
            _draw_curves(axes, panel, colours)
            places = sorted({place for curve in panel.curves.values() for place in curve.x})
            if places:
                axis(axes, places)
                axes.set_xticks(places, [str(place) for place in places], rotation=45)
                axes.set_xticks([], minor=True)
            handles |= {line.get_label(): line for line in axes.get_lines()}
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=len(handles),
            frameon=False,
        )
        return to_svg(figure)


def _colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name."""
    others = itertools.cycle(OTHER_COLOURS)
    return {name: COLOURS.get(name) or next(others) for name in names}


def _draw_predictions(
    figure: Any,
    grid: Any,
    rows: Mapping[str, Mapping[str, Band | None]],
    truth: Truth,
    columns: int = 1,
) -> None:
    """Each band in its own axes, `columns` columns of the grid wide, all with the same limits."""
    first: Any = None
    colours = _colours(dict.fromkeys(name for bands in rows.values() for name in bands))
    for row, (moment, bands) in enumerate(rows.items()):
        for column, (name, band) in enumerate(bands.items()):
            axes = figure.add_subplot(
                grid[row, columns * column : columns * (column + 1)], sharex=first, sharey=first
            )
            first = first or axes
            if band is not None:
                _draw_band(axes, band, truth, colours[name])
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
    axes.plot(
        x, np.asarray(truth.function(band.x).flatten()), color="black", linewidth=0.8, linestyle=":"
    )
    for sd, alpha in ((label, 0.15), (function, 0.35)):
        axes.fill_between(x, mean - 2 * sd, mean + 2 * sd, color=colour, alpha=alpha, linewidth=0)
    axes.plot(x, mean, color=colour)


def _draw_curves(axes: Any, panel: Panel, colours: Mapping[str, str]) -> None:
    for name, curve in panel.curves.items():
        if curve.x:
            axes.plot(
                curve.x,
                curve.mean,
                label=name,
                color=colours[name],
                linewidth=2.4 if name == "iblm" else 1.5,
            )
            axes.fill_between(
                curve.x, curve.low, curve.high, color=colours[name], alpha=0.2, linewidth=0
            )
    axes.set_title(panel.title.replace("$", r"\$"))  # a name, not mathematics
    axes.set_ylabel(panel.label)
    axes.set_yscale(panel.scale)
    lowest = min((low for curve in panel.curves.values() for low in curve.low), default=math.inf)
    if panel.top is not None and lowest < panel.top < axes.get_ylim()[1]:
        axes.set_ylim(
            lowest - 0.05 * (abs(lowest) if panel.scale == "log" else panel.top - lowest), panel.top
        )
    _axis_in_plain_numbers(axes)


def _axis_in_plain_numbers(axes: Any) -> None:
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3)


def to_svg(figure: Any) -> str:
    """The picture as an svg element, to stand in a page or a file of its own."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None}, dpi=72)
    plt.close(figure)
    return buffer.getvalue()[buffer.getvalue().index("<svg") :]
