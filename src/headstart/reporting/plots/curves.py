"""Pictures of metrics against steps, against the rows of a batch, and against time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import matplotlib.pyplot as plt

from headstart.reporting.plots.axes import (
    SVG_STYLE,
    colors_of,
    label_y_axis_plainly,
    to_svg,
)

MIN_TICK_DISTANCE = 0.055
"""Labels of the horizontal axis nearer than this fraction of it cover each other."""

KEY_WIDTH, LETTER_WIDTH = 0.55, 0.078
"""Inches of the line beside a name of a legend, with its margins, and of a letter."""


class Curve(NamedTuple):
    """A metric against steps or rows, with the lowest and highest of several runs."""

    x: Sequence[int]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


class Panel(NamedTuple):
    """Learning curves in one pair of axes, one for each name; values above `top` are cut off."""

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


def learning_curves(panels: Iterable[Sequence[Panel]]) -> str:
    """An svg picture of learning curves, row by row, with steps on a logarithmic axis."""

    def axis(axes: Any, steps: list[int]) -> None:
        axes.set_xscale("symlog", linthresh=max(1, *steps[:2]))
        axes.set_xlabel("step")
        axes.set_xlim(0, max(steps))

    return _grid_of_panels(panels, axis)


def scores_against_rows(panels: Iterable[Sequence[Panel]]) -> str:
    """An svg picture of metrics against the rows of a batch, these on a logarithmic axis."""

    def axis(axes: Any, rows: list[int]) -> None:
        axes.set_xscale("log", base=2)
        axes.set_xlabel("rows of a batch")

    return _grid_of_panels(panels, axis)


def scores_against_time(groups: Mapping[str, Points], front: Sequence[str], label: str) -> str:
    """An svg picture of runs over the time they took.

    A run is a light dot, the mean of a group is marked and named, the Pareto front is dashed.
    """
    colors = colors_of(groups)
    with matplotlib.rc_context(SVG_STYLE):
        figure, axes = plt.subplots(figsize=(8.5, 5.2), layout="constrained")
        for name, points in groups.items():
            axes.scatter(points.x, points.y, s=14, color=colors[name], alpha=0.35, linewidths=0)
            axes.plot(
                *points.mean, marker="o", markersize=7, color=colors[name], markeredgecolor="black"
            )
        axes.set_xscale("log")
        axes.set_yscale(
            "log" if min(y for points in groups.values() for y in points.y) > 0 else "symlog"
        )
        axes.set_xlabel("time of initialization (seconds)")
        axes.set_ylabel(label)
        label_y_axis_plainly(axes)
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
        _write_names(figure, axes, {name: points.mean for name, points in groups.items()})
        return to_svg(figure)


def draw_curves(axes: Any, panel: Panel, colors: Mapping[str, str]) -> None:
    for name, curve in panel.curves.items():
        if curve.x:
            axes.plot(
                curve.x,
                curve.mean,
                label=name,
                color=colors[name],
                linewidth=2.4 if name == "iblm" else 1.5,
            )
            axes.fill_between(
                curve.x, curve.low, curve.high, color=colors[name], alpha=0.2, linewidth=0
            )
    # A dollar in a name is no mathematics.
    axes.set_title(panel.title.replace("$", r"\$"))
    axes.set_ylabel(panel.label)
    axes.set_yscale(panel.scale)
    lowest = min((low for curve in panel.curves.values() for low in curve.low), default=math.inf)
    if panel.top is not None and lowest < panel.top < axes.get_ylim()[1]:
        axes.set_ylim(
            lowest - 0.05 * (abs(lowest) if panel.scale == "log" else panel.top - lowest), panel.top
        )
    label_y_axis_plainly(axes)


def _grid_of_panels(
    panels: Iterable[Sequence[Panel]], axis: Callable[[Any, list[int]], None]
) -> str:
    """Rows of panels, a tick at every place where a curve has a point, one legend."""
    rows = list(panels)
    colors = colors_of(
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
            draw_curves(axes, panel, colors)
            places = sorted({place for curve in panel.curves.values() for place in curve.x})
            if places:
                axis(axes, places)
                axes.set_xticks(places, _tick_labels(axes, places), rotation=45)
                axes.set_xticks([], minor=True)
            handles |= {line.get_label(): line for line in axes.get_lines()}
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=_legend_columns(handles, figure.get_figwidth()),
            frameon=False,
        )
        return to_svg(figure)


def _legend_columns(names: Iterable[str], width: float) -> int:
    """How many names stand beside each other in a picture of so many inches.

    Example:
        >>> _legend_columns(["iblm", "lsuv"], 4.3)
        2
        >>> _legend_columns(["iblm", "headstart, defaults", "lsuv"], 4.3)
        2
    """
    names = list(names)
    longest = max((len(name) for name in names), default=0)
    return max(1, min(len(names), int(width / (KEY_WIDTH + LETTER_WIDTH * longest))))


def _tick_labels(axes: Any, places: Sequence[int]) -> list[str]:
    """The places in words, from the right; none where the last one written would cover it."""
    along = axes.xaxis.get_transform().transform([float(place) for place in places])
    room = MIN_TICK_DISTANCE * (along[-1] - along[0])
    labels, right = list[str](), math.inf
    for place, at in zip(reversed(places), reversed(along), strict=True):
        fits = right - at >= room
        labels.append(str(place) if fits else "")
        right = at if fits else right
    return labels[::-1]


def _write_names(
    figure: Any, axes: Any, places: Mapping[str, tuple[float, float]], height: float = 13
) -> None:
    """Write names above and to the right of their points, higher where they would cover another."""
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
