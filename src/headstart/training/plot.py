"""The picture of a fit: the NELBO of every step, and the validation score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headstart.errors import HeadstartError
from headstart.metrics import score_metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMOOTHED = 50
"""The smoothed course is an average over a window of one part in so many of the steps."""


def draw_training(
    nelbo: Sequence[float],
    scores: Mapping[int, float],
    *,
    metric: str,
    title: str,
    best_step: int | None = None,
) -> Figure:
    """Draw the course of a training; nothing is shown on a screen.

    Args:
        nelbo: The NELBO of every step.
        scores: The metric of the validation rows by step; none: it is not drawn.
        metric: What these scores are.
        title: What the picture says of the training.
        best_step: A step to mark among the scores.

    Returns:
        The figure.

    Raises:
        HeadstartError: There is no step to draw, or matplotlib is not installed.
    """
    if not nelbo:
        raise HeadstartError("The history has no steps, so there is nothing to draw.")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise HeadstartError("A plot needs matplotlib: pip install matplotlib.") from error
    figure = Figure(figsize=(12.8 if scores else 6.4, 4.0), layout="constrained")
    left, *rest = figure.subplots(1, 2 if scores else 1, squeeze=False)[0]
    window = max(1, len(nelbo) // SMOOTHED)
    smooth = np.convolve(nelbo, np.full(window, 1 / window), "valid")
    left.plot(range(1, len(nelbo) + 1), nelbo, color="#a0cbe8", linewidth=0.6, label="each step")
    left.plot(
        range(window, len(nelbo) + 1), smooth, color="#4e79a7", label=f"mean of {window} steps"
    )
    left.set(xlabel="step", ylabel="NELBO (nats)", title=title)
    # The first steps of a poor start would flatten all that follows.
    low, high = np.quantile(nelbo, [0.0, 0.98])
    margin = 0.05 * (high - low) or 1.0
    left.set_ylim(low - margin, high + margin)
    left.legend()
    for axes in rest:
        axes.plot(*zip(*scores.items(), strict=True), marker="o", markersize=3, color="#e15759")
        if best_step is not None:
            axes.axvline(best_step, color="#333333", linewidth=0.8, linestyle="--")
        better = "higher" if score_metric(metric).better > 0 else "lower"
        axes.set(xlabel="step", ylabel=metric, title=f"validation rows ({better} is better)")
    for axes in (left, *rest):
        axes.grid(alpha=0.3)
    return figure
