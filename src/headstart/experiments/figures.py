"""The pictures of a report, from rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from headstart import data
from headstart.experiments.summary import Cell, Results, Row, label_of
from headstart.reporting import plots
from headstart.reporting.document import Block, Figure

SCALES = {"rmse": "log", "error": "linear", "mnll": "linear"}
TOPS = {"rmse": 2.0, "mnll": 4.0}
"""Where axes end: a start that is orders of magnitude off must not flatten the others."""
LABELS = {
    "rmse": "test RMSE (standardised)",
    "error": "test error (share)",
    "mnll": "test MNLL (nats per row)",
}


def learning(name: str, results: Results) -> list[Block]:
    """Error or RMSE above, MNLL below, against steps; a column for each problem. Nothing where there was no training."""
    if all(len(results.steps(problem)) < 2 for problem in results.problems):
        return []
    rows = [
        [_panel(results, problem, results.metric(problem)) for problem in results.problems],
        [_panel(results, problem, "mnll") for problem in results.problems],
    ]
    if len(results.problems) == 1:
        rows = [[panel for row in rows for panel in row]]
    caption = (
        "Learning curves on the test part: the mean over splits, and between the lowest and the highest of them. "
        f"Axes end at an RMSE of {TOPS['rmse']:g} and an MNLL of {TOPS['mnll']:g}; what is worse lies above."
    )
    return [Figure(f"{name}-curves", plots.learning_curves(rows), caption)]


def toy(name: str, results: Results) -> list[Block]:
    """Predictions along a line after initialisation, and after training where there was any: the first split's."""
    first = min(row["split"] for row in results.rows)
    rows = [row for row in results.rows if "band" in row and row["split"] == first]
    if not rows:
        return []
    moments = {
        "after initialisation": {label_of(row): row["band"] for row in rows if row["step"] == 0}
    }
    if any(row["step"] > 0 for row in rows):
        moments["after training"] = {label_of(row): row["band"] for row in rows if row.get("last")}
    bands = {
        moment: {label: _band(found[label]) for label in results.labels if label in found}
        for moment, found in moments.items()
    }
    split = data.split(data.load("toy"), first)
    picture = plots.prediction_bands(
        bands, plots.Truth(split.x_train, split.y_train, data.toy_function)
    )
    caption = (
        "Predictions: mean, and two standard deviations of the function (dark) and of the label (light); dots are the "
        "training rows, dotted is the truth."
    )
    return [Figure(f"{name}-predictions", picture, caption)]


def reliability(name: str, results: Results) -> list[Block]:
    """Reliability diagrams at the end of the first split's runs, where rows keep them."""
    panels = _last(results, "reliability")
    if not panels:
        return []
    diagrams = {
        problem: {label: _reliability(row) for label, row in found.items()}
        for problem, found in panels.items()
    }
    caption = (
        "Reliability at the end, first split: the accuracy of the test rows of each bin of confidence against their mean "
        "confidence (dotted: calibrated), and the share of rows in it."
    )
    return [Figure(f"{name}-reliability", plots.reliability_diagrams(diagrams), caption)]


def entropies(name: str, results: Results) -> list[Block]:
    """Histograms of entropy at the end of the first split's runs, where rows keep them: test rows and outsiders."""
    panels = _last(results, "entropies")
    if not panels:
        return []
    histograms = {
        problem: {label: _entropies(row) for label, row in found.items()}
        for problem, found in panels.items()
    }
    outsiders = next(row["outsiders"] for found in panels.values() for row in found.values())
    picture = plots.entropy_histograms(histograms, ("/".join(panels), outsiders))
    caption = f"Predictive entropy at the end, first split: test rows, and {outsiders}, of which no row was seen in training."
    return [Figure(f"{name}-entropy", picture, caption)]


def _last(results: Results, part: str) -> dict[str, dict[str, Row]]:
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


def _reliability(row: Row) -> plots.ReliabilityBins:
    found = row["reliability"]
    total = sum(found["rows"])
    return plots.ReliabilityBins(
        [rows / total for rows in found["rows"]], found["confidence"], found["accuracy"], row["ece"]
    )


def _entropies(row: Row) -> plots.EntropyBins:
    found = row["entropies"]
    return plots.EntropyBins(found["inside"], found["outside"], found["top"], row["auroc"])


def _band(found: Mapping[str, Any]) -> plots.Band:
    return plots.Band(*(torch.tensor(found[part]).unsqueeze(1) for part in plots.Band._fields))


def curve(cells: Mapping[int, Cell]) -> plots.Curve:
    """Cells along an axis as a curve, as far as they are finite."""
    found = {
        place: (cell.mean, cell.low, cell.high)
        for place, cell in cells.items()
        if cell.mean is not None
    }
    means, lows, highs = zip(*found.values(), strict=True) if found else ((), (), ())
    return plots.Curve(list(found), means, lows, highs)


def _panel(results: Results, problem: str, metric: str) -> plots.Panel:
    curves = {
        label: curve(
            {step: results.at(problem, label, step, metric) for step in results.steps(problem)}
        )
        for label in results.labels
    }
    return plots.Panel(
        results.names()[problem], LABELS[metric], SCALES[metric], curves, TOPS.get(metric)
    )
