"""Pictures of a fitted table, one pair of axes each, so that a phone shows one below another."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from headstart.reporting.svg import WIDTH, Axes, Range, Ticks, shorten, spanned, ticks_of
from headstart.reporting.text import readably

MAIN, SECOND = "#e15759", "#4e79a7"
"""The color of what the model says, and of rows."""
WHOLE = (0.0, 1.0)
"""The range of a fraction."""


def validation_curve(steps: Sequence[float], values: Sequence[float], label: str) -> str:
    """A score on validation rows against the step."""
    axes = Axes(spanned(steps), spanned(values), "step", label)
    axes.line(steps, values, MAIN)
    axes.dots(steps, values, MAIN)
    return axes.svg()


def coverage_curve(levels: Sequence[float], inside: Sequence[float]) -> str:
    """The fraction of rows inside the central interval of each level."""
    axes = Axes(WHOLE, WHOLE, "interval", "fraction of rows inside")
    axes.line(WHOLE, WHOLE, "currentColor", dotted=True)
    axes.line(levels, inside, MAIN)
    axes.dots(levels, inside, MAIN)
    return axes.svg()


def confidence_curve(
    confidence: Sequence[float], accuracy: Sequence[float], fractions: Sequence[float]
) -> str:
    """How many predictions of some confidence were right, above the fraction of rows in each bin.

    Args:
        confidence: The mean probability of the predicted class in each bin.
        accuracy: The fraction of right predictions in each bin.
        fractions: The fraction of rows in each bin.
    """
    axes = Axes(WHOLE, WHOLE, "probability of the predicted class", "fraction that was right")
    axes.line(WHOLE, WHOLE, "currentColor", dotted=True)
    filled = [bin_ for bin_ in zip(confidence, accuracy, fractions, strict=True) if bin_[2] > 0]
    for at, right, fraction in filled:
        ends = max(0.0, at - 0.015), min(1.0, at + 0.015)
        said = f"{fraction:.1%} of the rows: predicted {at:.3f}, right {right:.3f}"
        axes.box(ends, (0.0, fraction), SECOND, said, opacity=0.35)
    shown = [at for at, _, _ in filled], [right for _, right, _ in filled]
    axes.line(*shown, MAIN)
    axes.dots(*shown, MAIN)
    return axes.svg()


def truth_against_prediction(predicted: Sequence[float], true: Sequence[float]) -> str:
    """Points, on the dotted line where a prediction is right."""
    axes = Axes(spanned(predicted), spanned([*predicted, *true]), "predicted", "true")
    axes.line(spanned(predicted, 0.0), spanned(predicted, 0.0), "currentColor", dotted=True)
    axes.dots(predicted, true, SECOND, radius=2, opacity=0.6)
    return axes.svg()


def standardized_errors(z: Sequence[float]) -> str:
    """A histogram, what is beyond ±4.5 in its outermost bars, under the normal density."""
    clipped = np.clip(np.asarray(z, dtype=float), -4.5, 4.5)
    heights, edges = np.histogram(clipped, bins=37, range=(-4.6, 4.6), density=len(clipped) > 0)
    top = max(0.42, 1.05 * float(heights.max()))
    axes = Axes((-4.7, 4.7), (0.0, top), "(true − predicted) / sd", "density")
    for height, left, right in zip(heights, edges[:-1], edges[1:], strict=True):
        if height:
            axes.box((left, right), (0.0, height), SECOND, opacity=0.6)
    grid = [-4.5 + 0.05 * k for k in range(181)]
    density = [math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi) for x in grid]
    axes.line(grid, density, "currentColor")
    return axes.svg()


def importance_bars(names: Sequence[str], values: Sequence[float], label: str) -> str:
    """A bar for each column, the longest above."""
    count, values = len(names), [value if math.isfinite(value) else 0.0 for value in values]
    span = (0.0, max([*values, 0.0]) * 1.04 or 1.0)
    axes = Axes(
        span,
        (count - 0.5, -0.5),
        label,
        y_ticks={place: shorten(name) for place, name in enumerate(names)},
        height=int(60 + 22 * count),
    )
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        said = f"{name}: {readably(value, 4)}"
        axes.box((0.0, value), (place - 0.38, place + 0.38), SECOND, said)
    return axes.svg()


def dependence_curve(
    name: str,
    values: Sequence[Any],
    mean: Sequence[float],
    sd: Sequence[float],
    label: str,
    bounds: Range = (-math.inf, math.inf),
) -> str:
    """The mean prediction along a column, with a band of two standard deviations.

    Args:
        name: The column.
        values: Its values, numbers or words.
        mean: The mean prediction at each of them.
        sd: Its standard deviation.
        label: What is predicted.
        bounds: What a prediction can be: the band ends there.
    """
    low, high = (np.clip(np.array(mean) + sign * 2 * np.array(sd), *bounds) for sign in (-1, 1))
    span = spanned([*low, *high])
    if not isinstance(values[0], str):
        axes = Axes(spanned(values, 0.0), span, shorten(name), shorten(label))
        axes.band(values, low.tolist(), high.tolist(), MAIN)
        axes.line(values, mean, MAIN)
        return axes.svg()
    places = list(range(len(values)))
    words: Ticks = {place: shorten(value) for place, value in enumerate(values)}
    ends: Range = (-0.5, len(values) - 0.5)
    axes = Axes(ends, span, shorten(name), shorten(label), x_ticks=words, slanted=True)
    for place, below, above in zip(places, low, high, strict=True):
        axes.box((place - 0.06, place + 0.06), (below, above), MAIN, opacity=0.35)
    axes.dots(places, mean, MAIN, radius=4)
    return axes.svg()


def risk_curve(coverage: Sequence[float], risk: Sequence[float | None], label: str) -> str:
    """The risk of the rows that are answered, against their fraction."""
    # A file has no infinite number: what was one is null there.
    known = [math.nan if value is None else value for value in risk]
    top = max([value for value in known if math.isfinite(value)], default=0.0)
    axes = Axes((0.0, 1.02), (0.0, 1.05 * top or 1.0), "fraction of rows that are answered", label)
    axes.line(coverage, known, MAIN)
    axes.dots(coverage, known, MAIN)
    return axes.svg()


def interval_bars(
    predicted: Sequence[float], low: Sequence[float], high: Sequence[float], true: Sequence[float]
) -> str:
    """Intervals in the order of the prediction, and the truth; each says its numbers on hover."""
    count = len(predicted)
    span = spanned([*low, *high, *true], 0.02)
    ends = (0.0, float(max(1, count)))
    axes = Axes(ends, span, "test rows, by their prediction", x_ticks={}, y_ticks=ticks_of(span))
    width = max(1.5, 0.5 * (WIDTH - axes.left) / ends[1])
    rows = zip(predicted, low, high, true, strict=True)
    for at, (mean, below, above, truth) in enumerate(rows):
        x = axes.across(at + 0.5)
        said = (
            f"predicted {readably(mean)}, 95 % between {readably(below)} and {readably(above)}, "
            f"truly {readably(truth)}"
        )
        inside = below <= truth <= above
        # An interval without an end is drawn to the edge.
        foot, head = (axes.up(min(max(end, span[0]), span[1])) for end in (below, above))
        axes.parts.append(
            f"<g><title>{html.escape(said)}</title>"
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{foot:.1f}" y2="{head:.1f}" '
            f'stroke="{SECOND}" stroke-width="{width:.1f}" opacity="0.5"/>'
            f'<circle cx="{x:.1f}" cy="{axes.up(truth):.1f}" r="3" '
            f'fill="{"currentColor" if inside else MAIN}"/></g>'
        )
    return axes.svg()
