"""Pictures by kind: curves of metrics, predictions along a line, calibration."""

from headstart.reporting.plots.axes import COLORS, SVG_STYLE, to_svg
from headstart.reporting.plots.calibration import (
    EntropyBins,
    ReliabilityBins,
    entropy_histograms,
    reliability_diagrams,
)
from headstart.reporting.plots.curves import (
    Curve,
    Panel,
    Points,
    learning_curves,
    scores_against_rows,
    scores_against_time,
)
from headstart.reporting.plots.predictions import Band, Truth, draw_race, prediction_bands

__all__ = [
    "COLORS",
    "SVG_STYLE",
    "Band",
    "Curve",
    "EntropyBins",
    "Panel",
    "Points",
    "ReliabilityBins",
    "Truth",
    "draw_race",
    "entropy_histograms",
    "learning_curves",
    "prediction_bands",
    "reliability_diagrams",
    "scores_against_rows",
    "scores_against_time",
    "to_svg",
]
