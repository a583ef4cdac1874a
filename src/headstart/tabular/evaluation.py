"""What a fitted table is worth: scores on its test rows, and what the report shows of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from headstart.metrics import reliability
from headstart.predictive import Predictive
from headstart.reporting.text import readably
from headstart.tabular.calibration import LEVELS, epistemic
from headstart.tabular.run import PREDICT_SAMPLES, TableRun
from headstart.training.recipe import RecipeResult

COVERAGE_LEVELS = (*(round(0.05 * k, 2) for k in range(1, 20)), 0.99)
MAX_POINTS, MAX_UNCERTAIN, MAX_CELLS = 1000, 10, 8
"""Test rows that the report draws, those that it lists, and the columns that it lists of them."""


def evaluate_run(
    run: TableRun, outcome: RecipeResult, tested: pd.DataFrame, y: Tensor, y_train: Tensor
) -> dict[str, Any]:
    """Scores on the test rows, and what the report draws."""
    pred = run.predict(tested)
    about_labels = _about_classes if run.schema.target.classes else _about_quantity
    return {
        "scores": pred.evaluate(y),
        "test_rows": len(y),
        "validation_scores": outcome.scores,
        "recipe": asdict(outcome.recipe),
        "samples": PREDICT_SAMPLES,
        "validation": outcome.history.validation,
        "best_step": outcome.history.best_step,
        "stopped": outcome.history.stopped,
        "initialization": asdict(outcome.report),
        "conformal": bool(run.calibration.factors),
        **about_labels(run, pred, y, y_train),
        "uncertain": _uncertain_rows(run, pred, tested, y),
    }


def _about_classes(run: TableRun, pred: Predictive, y: Tensor, y_train: Tensor) -> dict[str, Any]:
    """The error of the commonest class, and how often a confidence is right."""
    fractions = torch.bincount(y_train, minlength=len(run.schema.target.classes)) / len(y_train)
    rows, confidence, accuracy = reliability(pred.probs, y)
    return {
        "trivial": {"error": float((y != fractions.argmax()).float().mean())},
        "class_fractions": fractions.tolist(),
        "reliability": {
            "rows": rows.tolist(),
            "confidence": confidence.tolist(),
            "accuracy": accuracy.tolist(),
        },
    }


def _about_quantity(run: TableRun, pred: Predictive, y: Tensor, y_train: Tensor) -> dict[str, Any]:
    """The RMSE of the mean, the coverage of intervals, and some predictions beside the truth."""
    few = slice(0, MAX_POINTS)
    return {
        "trivial": {"rmse": float((y - y_train.mean()).square().mean().sqrt())},
        "coverage": {
            str(level): run.calibration.coverage(pred, y, level)
            for level in (*LEVELS, *COVERAGE_LEVELS)
        },
        "points": {
            "predicted": pred.mean[few, 0].tolist(),
            "sd": pred.std[few, 0].tolist(),
            "true": y[few].tolist(),
        },
    }


def _uncertain_rows(
    run: TableRun, pred: Predictive, tested: pd.DataFrame, y: Tensor
) -> list[dict[str, str]]:
    """The test rows with the largest epistemic part, as they stand in the table."""
    target = run.schema.target
    names = [column.name for column in run.schema.columns][:MAX_CELLS]
    doubt = epistemic(pred, target)
    rows = []
    for index in doubt.argsort(descending=True)[:MAX_UNCERTAIN].tolist():
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
            {"predicted": said, "true": true, "epistemic": readably(float(doubt[index])), **cells}
        )
    return rows
