"""The pictures of a report, from rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from headstart import data
from headstart.experiments.evaluate import DISTRIBUTIONS
from headstart.experiments.results import Cell, Results, label_of
from headstart.experiments.spec import ResultRow
from headstart.reporting import plots
from headstart.reporting.document import Block, Figure

AXIS_SCALES = {"rmse": "log", "error": "linear", "mnll": "linear"}
AXIS_LIMITS = {"rmse": 2.0, "mnll": 4.0}
"""Where axes end: a start that is orders of magnitude off must not flatten the others."""
AXIS_LABELS = {
    "rmse": "test RMSE (standardized)",
    "error": "test error (fraction)",
    "mnll": "test MNLL (nats per row)",
}


def learning_figure(name: str, results: Results) -> list[Block]:
    """Error or RMSE above, MNLL below, against steps; a column for each problem.

    There is no figure where there was no training.
    """
    if all(len(results.steps(problem)) < 2 for problem in results.problems):
        return []
    rows = [
        [learning_panel(results, problem, results.metric(problem)) for problem in results.problems],
        [learning_panel(results, problem, "mnll") for problem in results.problems],
    ]
    if len(results.problems) == 1:
        rows = [[panel for row in rows for panel in row]]
    caption = (
        "Learning curves on the test part: the mean over splits, "
        "and between the lowest and the highest of them. "
        f"Axes end at an RMSE of {AXIS_LIMITS['rmse']:g} and an MNLL of {AXIS_LIMITS['mnll']:g}; "
        "what is worse lies above."
    )
    return [Figure(f"{name}-curves", plots.learning_curves(rows), caption)]


def toy_figure(name: str, results: Results) -> list[Block]:
    """Predictions of the first split along a line, after initialization and after any training."""
    first = min(row["split"] for row in results.rows)
    rows = [row for row in results.rows if "band" in row and row["split"] == first]
    if not rows:
        return []
    bands = {"after initialization": _bands(rows, results, lambda row: row["step"] == 0)}
    if any(row["step"] > 0 for row in rows):
        bands["after training"] = _bands(rows, results, lambda row: bool(row.get("last")))
    split = data.split(data.load("toy"), first)
    picture = plots.prediction_bands(
        bands, plots.Truth(split.x_train, split.y_train, data.toy_function)
    )
    caption = (
        "Predictions: mean, and two standard deviations of the function (dark) and of the label "
        "(light); dots are the training rows, dotted is the truth."
    )
    return [Figure(f"{name}-predictions", picture, caption)]


def _bands(
    rows: list[ResultRow], results: Results, chosen: Callable[[ResultRow], bool]
) -> dict[str, plots.Band]:
    """The bands of the chosen rows, by label."""
    found = {label_of(row): row["band"] for row in rows if chosen(row)}
    return {label: _band_of(found[label]) for label in results.labels if label in found}


def reliability_figure(name: str, results: Results) -> list[Block]:
    """Reliability diagrams at the end of the first split's runs, where rows keep them."""
    panels = _final_rows(results, "reliability")
    if not panels:
        return []
    diagrams = {
        problem: {label: _reliability_of(row) for label, row in found.items()}
        for problem, found in panels.items()
    }
    caption = (
        "Reliability at the end, first split: the accuracy of the test rows of each bin of "
        "confidence against their mean confidence (dotted: calibrated), "
        "and the fraction of rows in it."
    )
    return [Figure(f"{name}-reliability", plots.reliability_diagrams(diagrams), caption)]


def entropy_figure(name: str, results: Results) -> list[Block]:
    """Histograms of entropy at the end, first split: test rows and out-of-distribution ones."""
    panels = _final_rows(results, "entropies")
    if not panels:
        return []
    histograms = {
        problem: {label: _entropies_of(row) for label, row in found.items()}
        for problem, found in panels.items()
    }
    one = next(row for found in panels.values() for row in found.values())
    other = one.get("out_of_distribution") or one["outsiders"]
    picture = plots.entropy_histograms(histograms, ("/".join(panels), other))
    caption = (
        f"Predictive entropy at the end, first split: test rows, and {other}, "
        "of which no row was seen in training."
    )
    return [Figure(f"{name}-entropy", picture, caption)]


def _final_rows(results: Results, part: str) -> dict[str, dict[str, ResultRow]]:
    """The last rows of the first split that have `part`, by problem and label."""
    first = min(row["split"] for row in results.rows)
    found = {
        title: {
            label: row
            for label in results.labels
            for row in results.of(problem, label)
            if row.get("last") and row["split"] == first and part in row
        }
        for problem, title in results.names().items()
    }
    return {title: rows for title, rows in found.items() if rows}


def _reliability_of(row: ResultRow) -> plots.ReliabilityBins:
    found = row["reliability"]
    total = sum(found["rows"])
    return plots.ReliabilityBins(
        [rows / total for rows in found["rows"]], found["confidence"], found["accuracy"], row["ece"]
    )


def _entropies_of(row: ResultRow) -> plots.EntropyBins:
    found = row["entropies"]
    # Rows of version 0.1 say `inside` and `outside`.
    names = DISTRIBUTIONS if DISTRIBUTIONS[0] in found else ("inside", "outside")
    inside, outside = (found[name] for name in names)
    return plots.EntropyBins(inside, outside, found["top"], row["auroc"])


def _band_of(found: Mapping[str, Any]) -> plots.Band:
    return plots.Band(*(torch.tensor(found[part]).unsqueeze(1) for part in plots.Band._fields))


def curve_of_cells(cells: Mapping[int, Cell]) -> plots.Curve:
    """Cells along an axis as a curve, as far as they are finite."""
    found = {
        place: (cell.mean, cell.low, cell.high)
        for place, cell in cells.items()
        if cell.mean is not None
    }
    means, lows, highs = zip(*found.values(), strict=True) if found else ((), (), ())
    return plots.Curve(list(found), means, lows, highs)


def learning_panel(results: Results, problem: str, metric: str) -> plots.Panel:
    curves = {
        label: curve_of_cells(
            {step: results.at(problem, label, step, metric) for step in results.steps(problem)}
        )
        for label in results.labels
    }
    return plots.Panel(
        results.names()[problem],
        AXIS_LABELS[metric],
        AXIS_SCALES[metric],
        curves,
        AXIS_LIMITS.get(metric),
    )
