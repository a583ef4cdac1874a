"""Pictures of calibration: reliability diagrams, histograms of entropy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

from headstart.reporting.plots.axes import SVG_STYLE, colors_of, to_svg


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
