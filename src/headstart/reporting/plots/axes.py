"""What all pictures have in common: colors, the svg style, axes with plain numbers."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter

COLORS = {
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
OTHER_COLORS = ("#d7b5a6", "#76b7b2", "#f28e2b", "#333333", "#d37295", "#a0cbe8")
"""For names that have no color of their own, in turn."""
# Text stays text, and the same picture has the same bytes.
SVG_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "headstart"}


def colors_of(names: Iterable[str]) -> dict[str, str]:
    """A color for each name."""
    others = itertools.cycle(OTHER_COLORS)
    return {name: COLORS.get(name) or next(others) for name in names}


def label_y_axis_plainly(axes: Any) -> None:
    """Ticks at 1, 2 and 5 on a logarithmic axis, and numbers without powers of ten."""
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
