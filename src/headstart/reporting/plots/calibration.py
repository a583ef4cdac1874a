"""Pictures of calibration: reliability diagrams, coverage of intervals, histograms of entropy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

from headstart.reporting.plots.axes import COLORS, SVG_STYLE, colors_of, to_svg


class ReliabilityBins(NamedTuple):
    """Bins of confidence: fraction of rows, mean confidence and accuracy of each, and the ECE."""

    fraction: Sequence[float]
    confidence: Sequence[float]
    accuracy: Sequence[float]
    ece: float


class EntropyBins(NamedTuple):
    """The fraction of rows in bins of predictive entropy from 0 to `top`.

    `in_distribution` counts test rows, `out_of_distribution` rows of another data set; `auroc` says
    how well the entropy tells them apart.
    """

    in_distribution: Sequence[float]
    out_of_distribution: Sequence[float]
    top: float
    auroc: float


def reliability_diagrams(panels: Mapping[str, Mapping[str, ReliabilityBins]]) -> str:
    """An svg picture of reliability diagrams, a column for each problem.

    Accuracy against confidence stands above, the fraction of rows in each bin below.
    """
    colors = colors_of(dict.fromkeys(name for found in panels.values() for name in found))
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
                bins = [b for b, fraction in enumerate(part.fraction) if fraction > 0]
                confidence, accuracy, fraction = (
                    [values[b] for b in bins]
                    for values in (part.confidence, part.accuracy, part.fraction)
                )
                above.plot(
                    confidence,
                    accuracy,
                    "o-",
                    color=colors[name],
                    label=f"{name}, ECE {part.ece:.3f}",
                )
                below.plot(confidence, fraction, "o-", color=colors[name], markersize=4)
            above.set(title=title.replace("$", r"\$"), ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
            above.legend(frameon=False, loc="upper left", fontsize=9)
            below.set(xlabel="confidence", ylabel="fraction of rows", yscale="log")
            for axes in (above, below):
                axes.grid(alpha=0.3)
        return to_svg(figure)


def entropy_histograms(
    panels: Mapping[str, Mapping[str, EntropyBins]], names: tuple[str, str]
) -> str:
    """An svg picture of histograms of predictive entropy, a panel for each method.

    `names` are those of the in-distribution and of the out-of-distribution data.
    """
    flat = {(title, name): part for title, found in panels.items() for name, part in found.items()}
    colors = colors_of(dict.fromkeys(name for _, name in flat))
    with matplotlib.rc_context(SVG_STYLE):
        figure, grid = plt.subplots(
            1, len(flat), figsize=(1 + 3.8 * len(flat), 3.4), squeeze=False, sharey=True
        )
        figure.set_layout_engine("constrained")
        for axes, ((_, name), part) in zip(grid.flat, flat.items(), strict=True):
            edges = np.linspace(0, part.top, len(part.in_distribution) + 1)
            axes.stairs(
                part.in_distribution, edges, color="#555555", fill=True, alpha=0.45, label=names[0]
            )
            axes.stairs(
                part.out_of_distribution,
                edges,
                color=colors[name],
                fill=True,
                alpha=0.6,
                label=names[1],
            )
            axes.set(
                title=f"{name}, AUROC {part.auroc:.3f}",
                xlabel="predictive entropy (nats)",
                xlim=(0, part.top),
            )
            axes.legend(frameon=False)
            axes.grid(alpha=0.3)
        grid[0, 0].set_ylabel("fraction of rows")
        return to_svg(figure)


def interval_coverage(
    coverage: Mapping[float, float],
    predicted: Sequence[float],
    sd: Sequence[float],
    true: Sequence[float],
) -> str:
    """An svg picture of how far intervals can be trusted: coverage, predictions, their distances.

    Args:
        coverage: The fraction of rows inside the central interval of each level.
        predicted: The predictive mean of some rows.
        sd: The predictive standard deviation of these rows.
        true: The values that these rows had.
    """
    levels = sorted(coverage)
    with matplotlib.rc_context(SVG_STYLE):
        figure, panels = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
        panels[0].plot([0, 1], [0, 1], ":", color="black", lw=0.8)
        panels[0].plot(
            levels, [coverage[level] for level in levels], "o-", ms=3, color=COLORS["iblm"]
        )
        panels[0].set(xlabel="interval", ylabel="fraction of rows inside", xlim=(0, 1), ylim=(0, 1))
        panels[1].plot(predicted, true, ".", ms=3, alpha=0.5, color=COLORS["orthogonal"])
        ends = [min(predicted), max(predicted)]
        panels[1].plot(ends, ends, ":", color="black", lw=0.8)
        panels[1].set(xlabel="predicted", ylabel="true")
        _draw_standardized_errors(
            panels[2], [(t - p) / s for p, s, t in zip(predicted, sd, true, strict=True)]
        )
        for panel in panels:
            panel.grid(alpha=0.3)
        return to_svg(figure)


def _draw_standardized_errors(axes: Any, z: Sequence[float]) -> None:
    """A histogram, what is beyond ±4.5 in its outermost bars, under the normal density."""
    axes.hist(
        [max(-4.5, min(4.5, value)) for value in z],
        bins=37,
        range=(-4.6, 4.6),
        density=True,
        color=COLORS["orthogonal"],
        alpha=0.6,
    )
    grid = [-4.5 + 0.05 * k for k in range(181)]
    density = [math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi) for x in grid]
    axes.plot(grid, density, color="black", lw=0.8)
    axes.set(xlabel="(true − predicted) / sd", ylabel="density")
