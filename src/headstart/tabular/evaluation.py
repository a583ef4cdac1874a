"""What a fitted table is worth: scores on rows it has not seen, and what the report shows of them.

These are its test rows; where there are none, the rows that were held out in turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from headstart.kernels.random_state import seeded
from headstart.metrics import crps, ece, interval_score, reliability
from headstart.predictive import Predictive
from headstart.reporting.text import readably
from headstart.tabular.calibration import LEVELS, epistemic
from headstart.tabular.run import PREDICT_SAMPLES, TableRun
from headstart.training.learn import RecipeResult

COVERAGE_LEVELS = (*(round(0.05 * k, 2) for k in range(1, 20)), 0.99)
MAX_POINTS, MAX_UNCERTAIN, MAX_CELLS = 1000, 10, 8
"""Test rows that the report draws, those that it lists, and the columns that it lists of them."""


class Scored(NamedTuple):
    """Rows that a model has not seen.

    Args:
        frame: The rows as they stand in the table.
        pred: Their predictive distribution by that model.
        y: Their labels.
        held_out: Whether these are no test rows, but rows held out in turn.
    """

    frame: pd.DataFrame
    pred: Predictive
    y: Tensor
    held_out: bool = False


def evaluate_run(
    run: TableRun, outcome: RecipeResult, parts: Sequence[Scored], y_train: Tensor
) -> dict[str, Any]:
    """Scores on rows that were not learned from, and what the report draws.

    Args:
        run: What predicts.
        outcome: How it was learned.
        parts: The rows, by the model that has not seen them.
        y_train: The labels that were learned from.
    """
    about_labels = _about_classes if run.schema.target.classes else _about_quantity
    each, about = row_scores(run, parts), about_labels(run, parts, y_train)
    return {
        "scores": pooled(parts, each) | about.pop("pooled_scores", {}),
        "standard_errors": standard_errors(each),
        "scored_rows": sum(len(part.y) for part in parts),
        "validation_scores": outcome.scores,
        "tried": outcome.tried,
        "reasons": outcome.reasons,
        "recipe": asdict(outcome.recipe),
        "samples": PREDICT_SAMPLES,
        "validation": outcome.history.validation,
        "best_step": outcome.history.best_step,
        "stopped": outcome.history.stopped,
        "initialization": asdict(outcome.report),
        "conformal": run.conformal,
        **about,
        "uncertain": _uncertain_rows(run, parts),
    }


def row_scores(run: TableRun, parts: Sequence[Scored]) -> dict[str, Tensor]:
    """By metric, what each row contributes to it; of the RMSE its squared error.

    Args:
        run: What predicts.
        parts: The rows.
    """
    found: dict[str, list[Tensor]] = {}
    for part in parts:
        _, pred, y, _ = part
        each = {"mnll": -pred.log_prob(y)}
        if run.schema.target.classes:
            each["error"] = (pred.probs.argmax(1) != y).double()
        else:
            low, high = _ends(run, part, [0.95])[0.95]
            with seeded(run.seed, pred.draws):
                sampled = pred.likelihood.sample(pred.draws)[..., 0]
            each |= {
                "rmse": (pred.mean[:, 0] - y).square(),
                "crps": crps(sampled, y),
                "interval_score_95": interval_score(low, high, y, 0.95),
                # Of the intervals that are served, which need not be the distribution's own.
                "coverage_95": ((y >= low) & (y <= high)).double(),
            }
        for name, values in each.items():
            found.setdefault(name, []).append(values.double())
    return {name: torch.cat(values) for name, values in found.items()}


def _ends(
    run: TableRun, part: Scored, levels: Iterable[float]
) -> dict[float, tuple[Tensor, Tensor]]:
    """Intervals of rows that the model has not seen.

    Those of rows that were held out are the predictive distribution's own: the same rows cannot
    make an interval conformal and judge it. They have set one number, the size of the noise, where
    a single part was held out.
    """
    if part.held_out:
        return {level: run.calibration.interval(part.pred, level) for level in levels}
    return run.intervals(part.frame, part.pred, levels)


def pooled(parts: Sequence[Scored], each: dict[str, Tensor]) -> dict[str, float]:
    """Metrics of all rows: the likelihood's own, averaged over rows, and those of single rows.

    Args:
        parts: The rows.
        each: What each row contributes, as `row_scores` gives it.
    """
    total: dict[str, float] = {}
    count = sum(len(part.y) for part in parts)
    for part in parts:
        for name, value in part.pred.evaluate(part.y).items():
            total[name] = total.get(name, 0.0) + value * len(part.y) / count
    by_rows = {name: float(values.mean()) for name, values in each.items()}
    if "rmse" in by_rows:
        by_rows["rmse"] = math.sqrt(by_rows["rmse"])
    return total | by_rows


def standard_errors(each: dict[str, Tensor]) -> dict[str, float]:
    """The standard error of each mean over rows; of the RMSE by the delta method.

    Args:
        each: What each row contributes, as `row_scores` gives it.

    Example:
        >>> each = torch.tensor([1.0, 3.0], dtype=torch.float64)
        >>> standard_errors({"rmse": each, "mnll": each})
        {'rmse': 0.353..., 'mnll': 1.0}
    """
    found = {}
    for name, values in each.items():
        error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        if name == "rmse":
            error /= 2 * math.sqrt(max(float(values.mean()), 1e-300))
        found[name] = error
    return found


def _about_classes(run: TableRun, parts: Sequence[Scored], y_train: Tensor) -> dict[str, Any]:
    """The error of the commonest class, and how often a confidence is right."""
    fractions = torch.bincount(y_train, minlength=len(run.schema.target.classes)) / len(y_train)
    y = torch.cat([part.y for part in parts])
    probs = torch.cat([part.pred.probs for part in parts])
    rows, confidence, accuracy = reliability(probs, y)
    return {
        # Of all rows together: a mean of the errors of small parts would be too large.
        "pooled_scores": {"ece": float(ece(probs, y))},
        "trivial": {"error": float((y != fractions.argmax()).float().mean())},
        "class_fractions": fractions.tolist(),
        "reliability": {
            "rows": rows.tolist(),
            "confidence": confidence.tolist(),
            "accuracy": accuracy.tolist(),
        },
    }


def _about_quantity(run: TableRun, parts: Sequence[Scored], y_train: Tensor) -> dict[str, Any]:
    """The RMSE of the mean, the coverage of intervals, and some predictions beside the truth."""
    y = torch.cat([part.y for part in parts])
    few = slice(0, MAX_POINTS)

    levels = (*LEVELS, *COVERAGE_LEVELS)
    ends = [_ends(run, part, levels) for part in parts]

    def coverage(level: float) -> float:
        inside = [
            ((part.y >= each[level][0]) & (part.y <= each[level][1])).double()
            for part, each in zip(parts, ends, strict=True)
        ]
        return float(torch.cat(inside).mean())

    return {
        "trivial": {"rmse": float((y - y_train.mean()).square().mean().sqrt())},
        "coverage": {str(level): coverage(level) for level in levels},
        "points": {
            "predicted": torch.cat([part.pred.mean[:, 0] for part in parts])[few].tolist(),
            "sd": torch.cat([part.pred.std[:, 0] for part in parts])[few].tolist(),
            "true": y[few].tolist(),
        },
    }


def _uncertain_rows(run: TableRun, parts: Sequence[Scored]) -> list[dict[str, str]]:
    """The rows with the largest epistemic part, as they stand in the table."""
    target = run.schema.target
    names = [column.name for column in run.schema.columns][:MAX_CELLS]
    doubts = [epistemic(part.pred, target) for part in parts]
    places = [(part, index) for part in parts for index in range(len(part.y))]
    doubt = torch.cat(doubts)
    rows = []
    for place in doubt.argsort(descending=True)[:MAX_UNCERTAIN].tolist():
        (tested, pred, y, _), index = places[place]
        if target.classes:
            probs = pred.probs[index]
            said = f"{target.classes[int(probs.argmax())]} ({float(probs.max()):.0%})"
            true = target.classes[int(y[index])]
        else:
            sd = readably(float(pred.std[index, 0]), 2)
            said = f"{readably(float(pred.mean[index, 0]), 4)} ± {sd}"
            true = readably(float(y[index]), 4)
        cells = {name: str(tested[name].iloc[index]) for name in names}
        rows.append(
            {"predicted": said, "true": true, "epistemic": readably(float(doubt[place])), **cells}
        )
    return rows
