"""`headstart fit`: a table in, a calibrated model and what it is worth out."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headstart.errors import HeadstartError, unknown
from headstart.likelihoods import Categorical, Gaussian, Heteroscedastic, Likelihood
from headstart.metrics import reliability
from headstart.predictive import Predictive
from headstart.tabular.columns import plural
from headstart.tabular.frames import plain
from headstart.tabular.holdout import divide
from headstart.tabular.run import LEVELS, PREDICT_SAMPLES, TableRun
from headstart.tabular.schema import Schema, column_of, strange_in_words
from headstart.training.recipe import Recipe, RecipeResult, learn

FAMILIAR_SHARE = 0.99
"""Of the validation rows: so many have a smaller epistemic part than what is called unlike the training data."""
COVERAGES = (*(round(0.05 * k, 2) for k in range(1, 20)), 0.99)
MOST_POINTS, MOST_UNCERTAIN = 1000, 10


def fit_table(
    frame: pd.DataFrame,
    target: str,
    *,
    task: str = "auto",
    recipe: Recipe | None = None,
    test_share: float = 0.1,
    conformal: bool = False,
    noise: str = "constant",
    ignore: tuple[str, ...] = (),
    checkpoint: Path | None = None,
    progress: bool = False,
) -> TableRun:
    """Learn from a table; a share of its rows is kept for the numbers that are reported.

    Nothing in those rows changes the model, the schema or the calibration, except for class
    labels, which the split needs, and for whether a row has a label at all.

    A quantity has the same `noise` everywhere (`constant`), or noise that depends on the row
    (`varying`): intervals of their own width then, at the price of some RMSE.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> frame = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"]).assign(y=lambda f: f.a - f.b)
        >>> run = fit_table(frame, "y", recipe=Recipe(steps=50))
        >>> sorted(run.found["scores"])[:2], run.predict(frame).mean.shape
        (['coverage_95', 'expected_nll'], torch.Size([200, 1]))
    """
    start, recipe = time.perf_counter(), recipe or Recipe()
    if not 0 < test_share < 1:
        raise HeadstartError(
            f"The share of rows to test on lies between 0 and 1, not at {test_share}."
        )
    frame = plain(frame, "the table").reset_index(drop=True)
    goal, train, test = divide(
        column_of(frame, target), target, task=task, share=test_share, seed=recipe.seed + 1
    )
    if conformal and goal.classes:
        raise HeadstartError(
            "--conformal recalibrates intervals, and classes have none: leave it out."
        )
    learned, tested = frame.iloc[train], frame.iloc[test]
    y, y_test = (_labels(goal.encode(part[target])) for part in (learned, tested))
    schema = Schema.for_target(learned, goal, ignore=ignore)
    likelihood, outputs = _likelihood(schema, noise)
    outcome = learn(
        schema.encode(learned),
        _standard(y),
        likelihood,
        outputs,
        recipe,
        checkpoint=checkpoint,
        progress=progress,
    )
    if not goal.classes:
        # From here on in the units of the table.
        cast(Gaussian | Heteroscedastic, likelihood).standardize_(y)
    run = TableRun(outcome.model, outcome.likelihood, schema, {}, math.inf, recipe.seed, {})
    checked = run.predict(learned.iloc[outcome.validation.numpy()])
    run.familiar = float(torch.quantile(epistemic(checked, schema), FAMILIAR_SHARE))
    if conformal:
        run.stretch = stretches(checked, y[outcome.validation])
    run.found = _found(run, outcome, tested, y_test, y)
    run.found["warnings"] = _warnings(schema, frame, learned, tested)
    run.found |= {
        "rows": len(train) + len(test),
        "train_rows": len(train),
        "seconds": time.perf_counter() - start,
    }
    return run


def _warnings(
    schema: Schema, frame: pd.DataFrame, learned: pd.DataFrame, tested: pd.DataFrame
) -> list[str]:
    """What is to be said of all rows, beside what the training rows made the schema warn of."""
    dropped = len(frame) - len(learned) - len(tested)
    unknown_rows = f"{plural(dropped, 'row')} without a known {schema.target.name!r} were left out."
    return [
        *([unknown_rows] if dropped else []),
        *(f"Of the test rows, {sentence}" for sentence in strange_in_words(schema.strange(tested))),
        *schema.leakage(pd.concat([learned, tested])),
    ]


def _labels(y: np.ndarray) -> Tensor:
    return torch.from_numpy(y.astype(np.float64) if y.dtype.kind == "f" else y.astype(np.int64))


NOISES: dict[str, tuple[type[Gaussian | Heteroscedastic], int]] = {
    "constant": (Gaussian, 1),
    "varying": (Heteroscedastic, 2),
}
"""The likelihood of a quantity, and how many outputs of the net it reads."""


def _standard(y: Tensor) -> Tensor:
    """Quantities of size 1, in single precision only now: what is far from zero would lose its digits."""
    return ((y - y.mean()) / y.std(correction=0)).float() if y.is_floating_point() else y


def _likelihood(schema: Schema, noise: str) -> tuple[Likelihood, int]:
    """What makes labels of outputs, and how many outputs it takes."""
    if noise not in NOISES:
        raise unknown("noise", noise, NOISES)
    if schema.target.classes:
        return Categorical(len(schema.target.classes)), len(schema.target.classes)
    kind, outputs = NOISES[noise]
    return kind(noise_var=0.1), outputs


def epistemic(pred: Predictive, schema: Schema) -> Tensor:
    """What the model does not know about each row: a standard deviation, or nats of mutual information."""
    return pred.mutual_information if schema.target.classes else pred.epistemic_std[:, 0]


def stretches(pred: Predictive, y: Tensor) -> dict[float, float]:
    """Split conformal: for each level the factor on the standard deviation that covers its share of these rows, and one more.

    Example:
        >>> draws = torch.zeros(8, 99, 1)
        >>> pred = Predictive(draws, Gaussian(1.0))
        >>> round(stretches(pred, torch.arange(1.0, 100.0))[0.95], 4)  # the ⌈0.95 · 100⌉th of 99 distances
        95.0
    """
    distance = ((y - pred.mean[:, 0]).abs() / pred.std[:, 0]).detach().sort().values
    places = {level: math.ceil(level * (len(y) + 1)) for level in LEVELS}
    if places[LEVELS[-1]] > len(y):
        raise HeadstartError(
            f"--conformal needs at least 19 validation rows for an interval of 95 %; there are {len(y)}."
        )
    return {level: float(distance[place - 1]) for level, place in places.items()}


def interval(run: TableRun, pred: Predictive, level: float) -> tuple[Tensor, Tensor]:
    """The ends of the central interval, (rows,): the predictive distribution's, or mean ± stretch · sd after conformal recalibration."""
    if level in run.stretch:
        half = run.stretch[level] * pred.std[:, 0]
        return pred.mean[:, 0] - half, pred.mean[:, 0] + half
    low, high = pred.interval(level)
    return low[:, 0], high[:, 0]


def _found(
    run: TableRun, outcome: RecipeResult, tested: pd.DataFrame, y: Tensor, y_train: Tensor
) -> dict[str, Any]:
    """Scores on the test rows, and what the report draws."""
    pred, target = run.predict(tested), run.schema.target
    scores = pred.evaluate(y)
    found: dict[str, Any] = {
        "scores": scores,
        "test_rows": len(y),
        "validation_scores": outcome.scores,
        "recipe": asdict(replace(outcome.recipe)),
        "samples": PREDICT_SAMPLES,
        "validation": outcome.history.validation,
        "best_step": outcome.history.best_step,
        "stopped": outcome.history.stopped,
        "initialisation": asdict(outcome.report),
        "conformal": bool(run.stretch),
    }
    if target.classes:
        shares = torch.bincount(y_train, minlength=len(target.classes)) / len(y_train)
        rows, confidence, accuracy = reliability(pred.probs, y)
        found["trivial"] = {"error": float((y != shares.argmax()).float().mean())}
        found["class_shares"] = shares.tolist()
        found["reliability"] = {
            "rows": rows.tolist(),
            "confidence": confidence.tolist(),
            "accuracy": accuracy.tolist(),
        }
    else:
        found["trivial"] = {"rmse": float((y - y_train.mean()).square().mean().sqrt())}
        found["coverage"] = {
            str(level): _covered(run, pred, y, level) for level in (*LEVELS, *COVERAGES)
        }
        few = slice(0, MOST_POINTS)
        found["points"] = {
            "predicted": pred.mean[few, 0].tolist(),
            "sd": pred.std[few, 0].tolist(),
            "true": y[few].tolist(),
        }
    found["uncertain"] = _uncertain(run, pred, tested, y)
    return found


def _covered(run: TableRun, pred: Predictive, y: Tensor, level: float) -> float:
    low, high = interval(run, pred, level)
    return float(((y >= low) & (y <= high)).float().mean())


def _uncertain(
    run: TableRun, pred: Predictive, tested: pd.DataFrame, y: Tensor
) -> list[dict[str, str]]:
    """The test rows of which the model knows least, as they stand in the table."""
    target = run.schema.target
    names = [column.name for column in run.schema.columns][:8]
    doubt = epistemic(pred, run.schema)
    rows = []
    for index in doubt.argsort(descending=True)[:MOST_UNCERTAIN].tolist():
        if target.classes:
            said = f"{target.classes[int(pred.probs[index].argmax())]} ({float(pred.probs[index].max()):.0%})"
            true = target.classes[int(y[index])]
        else:
            said, true = (
                f"{float(pred.mean[index, 0]):.4g} ± {float(pred.std[index, 0]):.2g}",
                f"{float(y[index]):.4g}",
            )
        cells = {name: str(tested[name].iloc[index]) for name in names}
        rows.append(
            {"predicted": said, "true": true, "epistemic": f"{float(doubt[index]):.3g}", **cells}
        )
    return rows


def in_words(run: TableRun) -> list[str]:
    """The few numbers that matter, and what they mean."""
    found, target = run.found, run.schema.target
    scores, rows = found["scores"], plural(found["test_rows"], "row")
    if target.classes:
        trivial = found["trivial"]["error"]
        return [
            f"Error {scores['error']:.1%} on {rows} that nothing was learned from; always saying the commonest class: {trivial:.1%}.",
            f"MNLL {scores['mnll']:.3f} nats a row (0 is certain and right; knowing nothing is {math.log(len(target.classes)):.3f}).",
            f"ECE {scores['ece']:.3f}: a probability of the prediction is off by {100 * scores['ece']:.1f} points, on average.",
        ]
    rmse, trivial = scores["rmse"], found["trivial"]["rmse"]
    covered = found["coverage"]["0.95"]
    return [
        f"RMSE {rmse:.4g} on {rows} that nothing was learned from; always saying the mean: {trivial:.4g} ({1 - (rmse / trivial) ** 2:.0%} of the variance explained).",
        f"MNLL {scores['mnll']:.3f} nats a row: smaller is better, only differences mean something.",
        f"The 95 % interval holds {covered:.1%} of them"
        + (" (conformal)." if run.stretch else "."),
    ]
