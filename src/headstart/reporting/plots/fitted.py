"""Pictures of a fitted table, one pair of axes each, so that a phone shows one below another."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

from headstart.reporting.plots.axes import COLORS, SVG_STYLE, to_svg
from headstart.reporting.text import readably

SMALL = (4.6, 3.2)
"""Inches of a picture."""
MAIN, SECOND = COLORS["iblm"], COLORS["orthogonal"]
MAX_NAME = 22
"""Letters of a name that a picture shows."""


@contextmanager
def _one_panel(size: tuple[float, float] = SMALL) -> Iterator[tuple[Any, list[str]]]:
    """Axes to draw on, and a list that holds the picture in the end."""
    drawn: list[str] = []
    with matplotlib.rc_context(SVG_STYLE):
        figure, axes = plt.subplots(figsize=size, layout="constrained")
        axes.grid(alpha=0.3)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, place: readably(value, 6))
        yield axes, drawn
        drawn.append(to_svg(figure))


def shorten(name: str) -> str:
    """A name that fits, without what matplotlib would take for mathematics."""
    cut = name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"
    return cut.replace("$", r"\$")


def validation_curve(steps: Sequence[float], values: Sequence[float], label: str) -> str:
    """A score on validation rows against the step."""
    with _one_panel() as (axes, drawn):
        axes.plot(steps, values, "o-", ms=3, color=MAIN)
        axes.set(xlabel="step", ylabel=label)
    return drawn[0]


def coverage_curve(levels: Sequence[float], inside: Sequence[float]) -> str:
    """The fraction of rows inside the central interval of each level."""
    with _one_panel() as (axes, drawn):
        axes.plot([0, 1], [0, 1], ":", color="black", lw=0.8)
        axes.plot(levels, inside, "o-", ms=3, color=MAIN)
        axes.set(xlabel="interval", ylabel="fraction of rows inside", xlim=(0, 1), ylim=(0, 1))
    return drawn[0]


def truth_against_prediction(predicted: Sequence[float], true: Sequence[float]) -> str:
    """Points, on the dotted line where a prediction is right."""
    with _one_panel() as (axes, drawn):
        axes.plot(predicted, true, ".", ms=3, alpha=0.5, color=SECOND)
        ends = [min(predicted), max(predicted)]
        axes.plot(ends, ends, ":", color="black", lw=0.8)
        axes.set(xlabel="predicted", ylabel="true")
    return drawn[0]


def standardized_errors(z: Sequence[float]) -> str:
    """A histogram, what is beyond ±4.5 in its outermost bars, under the normal density."""
    with _one_panel() as (axes, drawn):
        axes.hist(
            [max(-4.5, min(4.5, value)) for value in z],
            bins=37,
            range=(-4.6, 4.6),
            density=True,
            color=SECOND,
            alpha=0.6,
        )
        grid = [-4.5 + 0.05 * k for k in range(181)]
        density = [math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi) for x in grid]
        axes.plot(grid, density, color="black", lw=0.8)
        axes.set(xlabel="(true − predicted) / sd", ylabel="density")
    return drawn[0]


def importance_bars(names: Sequence[str], values: Sequence[float], label: str) -> str:
    """A bar for each column, the longest above."""
    with _one_panel((SMALL[0], 0.8 + 0.24 * len(names))) as (axes, drawn):
        axes.barh(range(len(names)), values, color=SECOND, alpha=0.8)
        axes.set_yticks(range(len(names)), [shorten(name) for name in names])
        axes.invert_yaxis()
        axes.set_xlabel(label)
    return drawn[0]


def dependence_curve(
    name: str, values: Sequence[Any], mean: Sequence[float], sd: Sequence[float], label: str
) -> str:
    """The mean prediction along a column, with a band of two standard deviations."""
    low, high = (np.array(mean) + sign * 2 * np.array(sd) for sign in (-1, 1))
    with _one_panel() as (axes, drawn):
        if isinstance(values[0], str):
            places = np.arange(len(values))
            axes.errorbar(places, mean, 2 * np.array(sd), fmt="o", color=MAIN, capsize=3)
            axes.set_xticks(places, [shorten(value) for value in values], rotation=30, ha="right")
        else:
            axes.fill_between(values, low, high, color=MAIN, alpha=0.25, lw=0)
            axes.plot(values, mean, color=MAIN)
        axes.set(xlabel=shorten(name), ylabel=label)
    return drawn[0]


def risk_curve(coverage: Sequence[float], risk: Sequence[float], label: str) -> str:
    """The risk of the rows that are answered, against their fraction."""
    with _one_panel() as (axes, drawn):
        axes.plot(coverage, risk, "o-", ms=3, color=MAIN)
        axes.set(xlabel="fraction of rows that are answered", ylabel=label, xlim=(0, 1.02))
        axes.set_ylim(bottom=0)
    return drawn[0]


def interval_bars(
    predicted: Sequence[float], low: Sequence[float], high: Sequence[float], true: Sequence[float]
) -> str:
    """Intervals in the order of the prediction, and the truth; each says its numbers on hover."""
    width, height, left, top = 460, 260, 64, 10
    bottom, right = height - 28, width - 8
    ends = (min([*low, *true]), max([*high, *true]))
    span = (ends[1] - ends[0]) or 1.0

    def place(value: float) -> float:
        return bottom - (value - ends[0]) / span * (bottom - top)

    parts = [
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" '
        'xmlns="http://www.w3.org/2000/svg" font-size="12">'
    ]
    for value in np.linspace(*ends, 5):
        y = place(float(value))
        parts.append(
            f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" '
            f'opacity="0.15"/><text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">'
            f"{readably(float(value))}</text>"
        )
    step = (right - left) / max(1, len(predicted))
    rows = zip(predicted, low, high, true, strict=True)
    for at, (mean, below, above, truth) in enumerate(rows):
        x = left + (at + 0.5) * step
        inside = below <= truth <= above
        said = (
            f"predicted {readably(mean)}, 95 % between {readably(below)} and {readably(above)}, "
            f"truly {readably(truth)}"
        )
        parts.append(
            f"<g><title>{html.escape(said)}</title>"
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{place(below):.1f}" y2="{place(above):.1f}" '
            f'stroke="{SECOND}" stroke-width="{max(1.5, 0.5 * step):.1f}" opacity="0.5"/>'
            f'<circle cx="{x:.1f}" cy="{place(truth):.1f}" r="3" '
            f'fill="{"currentColor" if inside else MAIN}"/></g>'
        )
    parts.append(
        f'<text x="{(left + right) / 2:.0f}" y="{height - 6}" text-anchor="middle">'
        "test rows, by their prediction</text></svg>"
    )
    return "".join(parts)
