"""What a report says beyond scores: what drives the model, where it errs, beside whom it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headstart.predictive import Predictive
from headstart.tabular.baselines import baseline_losses
from headstart.tabular.checks import (
    Check,
    check_baselines,
    check_count,
    check_coverage,
    check_leaks,
    check_probabilities,
    check_segments,
    check_skill,
)
from headstart.tabular.columns import Matrix
from headstart.tabular.decisions import decisions
from headstart.tabular.explain import evenly, explanation
from headstart.tabular.run import TableRun

MAX_SHOWN_ROWS = 5000
"""Test rows beyond which nothing would be more certain, and much would be slower."""
FIFTHS, MIN_PART_ROWS = 5, 20
"""Parts of the rows by their prediction, and the fewest rows of a part that is looked at."""
MAX_GROUP_LEVELS, MAX_GROUP_COLUMNS = 6, 3
"""Levels of a category by which coverage is shown, and such categories."""
MAX_INTERVALS = 60
"""Test rows whose intervals are drawn."""


def insights(
    run: TableRun, learned: pd.DataFrame, tested: pd.DataFrame, labels: tuple[Tensor, Tensor]
) -> dict[str, Any]:
    """What a report shows of the test rows, and the tests behind its verdict.

    Args:
        run: What predicts.
        learned: The training rows.
        tested: The test rows; without any there is nothing to show.
        labels: The labels of both.
    """
    if not len(tested):
        return {}
    tested, y = evenly(tested, labels[1], MAX_SHOWN_ROWS)
    assert y is not None
    pred, target = run.predict(tested), run.schema.target
    ours = row_losses(pred, y, bool(target.classes))
    others = baseline_losses(run.schema, learned, tested, labels[0], y)
    trivial = trivial_name(others)
    about = _show_classes(run, pred, y) if target.classes else _show_quantity(run, pred, y, tested)
    checks = [
        check_count(len(y)),
        check_skill(ours, others[trivial], trivial),
        check_baselines(ours, {name: loss for name, loss in others.items() if name != trivial}),
        *_checks_of(run, pred, y, tested, about),
    ]
    return {
        "explanation": explanation(run, tested, y),
        "decisions": decisions(pred, y, target),
        "baselines": [_score("this model", ours, bool(target.classes))]
        + [_score(name, loss, bool(target.classes)) for name, loss in others.items()],
        "checks": [vars(check) for check in checks],
        **about,
    }


def with_leaks(found: dict[str, Any], warnings: Sequence[str]) -> dict[str, Any]:
    """The same, with the test of leaks, which concerns the whole table."""
    if "checks" not in found:
        return found
    return {**found, "checks": [*found["checks"], vars(check_leaks(warnings))]}


def trivial_name(losses: Mapping[str, Matrix]) -> str:
    """Which of the baselines is the answer that is always the same."""
    return next(name for name in losses if "linear" not in name and "boosting" not in name)


def row_losses(pred: Predictive, y: Tensor, classes: bool) -> Matrix:
    """Squared errors, or −log probabilities."""
    if classes:
        return -pred.probs.gather(1, y.unsqueeze(1))[:, 0].clamp_min(1e-12).log().double().numpy()
    return (pred.mean[:, 0] - y).square().double().numpy()


def _score(name: str, loss: Matrix, classes: bool) -> dict[str, Any]:
    """A mean loss, or the root of it, with its standard error."""
    mean, error = float(loss.mean()), float(loss.std() / np.sqrt(len(loss)))
    # Losses that are all alike differ by rounding.
    error = error if error > 1e-12 * abs(mean) else 0.0
    if classes:
        return {"name": name, "score": mean, "error": error}
    root = mean**0.5
    return {"name": name, "score": root, "error": error / (2 * root) if root else 0.0}


def _checks_of(
    run: TableRun, pred: Predictive, y: Tensor, tested: pd.DataFrame, about: dict[str, Any]
) -> list[Check]:
    if run.schema.target.classes:
        best = pred.probs.max(1)
        right = (best.indices == y).double().numpy()
        return [check_probabilities(best.values.double().numpy(), right)]
    counts = run.likelihood.has_counts
    found = [check_coverage(_in_interval(run, pred, y, tested), counts=counts)]
    if about["segments"]:
        found.append(check_segments(about["segments"], counts=counts))
    return found


def _in_interval(run: TableRun, pred: Predictive, y: Tensor, tested: pd.DataFrame) -> Matrix:
    low, high = run.intervals(tested, pred, [0.95])[0.95]
    return ((y >= low) & (y <= high)).double().numpy()


def _show_quantity(
    run: TableRun, pred: Predictive, y: Tensor, tested: pd.DataFrame
) -> dict[str, Any]:
    """Intervals to draw, and coverage by the size of the prediction and by group."""
    mean = pred.mean[:, 0]
    low, high = run.intervals(tested, pred, [0.95])[0.95]
    order = mean[:MAX_INTERVALS].argsort()
    inside = _in_interval(run, pred, y, tested)
    errors, widths = (mean - y).square().numpy(), (high - low).numpy()
    segments = []
    if len(y) >= FIFTHS * MIN_PART_ROWS:
        words = ("the lowest", "the second", "the middle", "the fourth", "the highest")
        for name, rows in zip(words, np.array_split(mean.argsort().numpy(), FIFTHS), strict=True):
            title = f"in {name} fifth of predictions"
            segments.append(_describe_part(title, rows, inside, errors, widths))
    for name, rows in _rows_by_level(run, tested):
        segments.append(_describe_part(name, rows, inside, errors, widths))
    return {
        "segments": segments,
        "intervals": {
            "predicted": mean[order].tolist(),
            "low": low[order].tolist(),
            "high": high[order].tolist(),
            "true": y[order].tolist(),
        },
    }


def _describe_part(
    name: str, rows: Matrix, inside: Matrix, errors: Matrix, widths: Matrix
) -> dict[str, Any]:
    return {
        "name": name,
        "rows": len(rows),
        "coverage": float(inside[rows].mean()),
        "rmse": float(errors[rows].mean() ** 0.5),
        "width": float(widths[rows].mean()),
    }


def _rows_by_level(run: TableRun, tested: pd.DataFrame) -> list[tuple[str, Matrix]]:
    """Rows of the levels of small categories, where they are enough."""
    found = []
    small = [
        column
        for column in run.schema.columns
        if column.kind == "category" and len(column.features) <= MAX_GROUP_LEVELS
    ]
    for column in small[:MAX_GROUP_COLUMNS]:
        values = column.read(tested[column.name])
        for level in sorted(set(values)):
            rows = np.flatnonzero(values == level)
            if len(rows) >= MIN_PART_ROWS:
                found.append((f"with {column.name} = {level}", rows))
    return found


def _show_classes(run: TableRun, pred: Predictive, y: Tensor) -> dict[str, Any]:
    """How often each class was taken for each other."""
    classes = len(run.schema.target.classes)
    places = y * classes + pred.probs.argmax(1)
    confusion = torch.bincount(places, minlength=classes**2).reshape(classes, classes)
    return {"confusion": confusion.tolist()}
