"""`headstart fit`: a table in, a calibrated model and what it is worth out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headstart.errors import HeadstartError, unknown
from headstart.likelihoods import Categorical, Gaussian, Heteroscedastic, Likelihood
from headstart.reporting.text import plural
from headstart.tabular.calibration import Calibration
from headstart.tabular.evaluation import evaluate_run
from headstart.tabular.frames import plain_frame
from headstart.tabular.holdout import split_rows
from headstart.tabular.insight import insights, with_leaks
from headstart.tabular.run import TableRun, jsonable
from headstart.tabular.schema import Schema, column_of, unseen_in_words
from headstart.tabular.target import Target
from headstart.training.recipe import Recipe, learn

NOISES: dict[str, tuple[type[Gaussian | Heteroscedastic], int]] = {
    "constant": (Gaussian, 1),
    "varying": (Heteroscedastic, 2),
}
"""The likelihood of a quantity, and how many outputs of the net it reads."""


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
    """Learn to predict a column of a table; some rows are kept for the numbers that are reported.

    Nothing in those test rows changes the model, the schema or the calibration, except for class
    labels, which the split needs, and for whether a row has a label at all.

    Args:
        frame: The table, a row for each example.
        target: The name of the column to predict.
        task: `regression`, `classification`, or `auto` to decide from the training labels.
        recipe: The net and how it is trained; None leaves all of it to the number of rows.
        test_share: The fraction of rows to test on.
        conformal: Whether validation rows recalibrate the intervals of a quantity.
        noise: Of a quantity: the same for all rows (`constant`), or different from row to row
            (`varying`), with intervals of their own width at the price of some RMSE.
        ignore: The names of columns to leave out.
        checkpoint: A folder for unfinished work, from which the same call goes on.
        progress: Whether a progress bar is shown.

    Returns:
        What predicts, with its scores on the test rows in `found`.

    Raises:
        HeadstartError: If there is nothing to learn, with a sentence that says why.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> frame = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
        >>> run = fit_table(frame.assign(y=frame.a - frame.b), "y", recipe=Recipe(steps=50))
        >>> sorted(run.found["scores"])[:2], run.predict(frame).mean.shape
        (['coverage_95', 'expected_nll'], torch.Size([200, 1]))
    """
    start, recipe = time.perf_counter(), recipe or Recipe()
    if not 0 < test_share < 1:
        raise HeadstartError(
            f"The fraction of rows to test on lies between 0 and 1, not at {test_share}."
        )
    frame = plain_frame(frame, "the table").reset_index(drop=True)
    goal, train, test = split_rows(
        column_of(frame, target), target, task=task, fraction=test_share, seed=recipe.seed + 1
    )
    if conformal and goal.classes:
        raise HeadstartError(
            "--conformal recalibrates intervals, and classes have none: leave it out."
        )
    learned, tested = frame.iloc[train], frame.iloc[test]
    y, y_test = (_label_tensor(goal.encode(part[target])) for part in (learned, tested))
    schema = Schema.for_target(learned, goal, ignore=ignore)
    likelihood, outputs = _likelihood_for(goal, noise)
    outcome = learn(
        schema.encode(learned),
        _standardized(y),
        likelihood,
        outputs,
        recipe,
        checkpoint=checkpoint,
        progress=progress,
    )
    if not goal.classes:
        # From here on in the units of the table.
        cast(Gaussian | Heteroscedastic, likelihood).standardize_(y)
    run = TableRun(outcome.model, outcome.likelihood, schema, Calibration(), recipe.seed, {})
    checked = run.predict(learned.iloc[outcome.validation.numpy()])
    run.calibration = Calibration.fit(checked, y[outcome.validation], goal, conformal=conformal)
    run.learn_familiarity_(learned)
    found = evaluate_run(run, outcome, tested, y_test, y)
    warnings = _warnings(schema, frame, learned, tested)
    found |= with_leaks(insights(run, learned, tested, (y, y_test)), warnings)
    found |= {
        "warnings": warnings,
        "rows": len(train) + len(test),
        "train_rows": len(train),
        "seconds": time.perf_counter() - start,
    }
    run.found = jsonable(found)
    return run


def _warnings(
    schema: Schema, frame: pd.DataFrame, learned: pd.DataFrame, tested: pd.DataFrame
) -> list[str]:
    """What is to be said of all rows, beside what the training rows made the schema warn of."""
    dropped = len(frame) - len(learned) - len(tested)
    unknown_rows = f"{plural(dropped, 'row')} without a known {schema.target.name!r} were left out."
    return [
        *([unknown_rows] if dropped else []),
        *(f"Of the test rows, {sentence}" for sentence in unseen_in_words(schema.unseen(tested))),
        *schema.leakage(pd.concat([learned, tested])),
    ]


def _label_tensor(y: np.ndarray) -> Tensor:
    return torch.from_numpy(y.astype(np.float64) if y.dtype.kind == "f" else y.astype(np.int64))


def _standardized(y: Tensor) -> Tensor:
    """Classes as they are; quantities of mean 0 and variance 1, in single precision only now.

    In single precision from the start, y = 1e8 ± 1 would lose its digits.
    """
    if not y.is_floating_point():
        return y
    standard, _ = Gaussian().standardize_(y).regression_targets(y)
    return standard.float()


def _likelihood_for(target: Target, noise: str) -> tuple[Likelihood, int]:
    """What makes labels of outputs, and how many outputs it takes."""
    if noise not in NOISES:
        raise unknown("noise", noise, NOISES)
    if target.classes:
        return Categorical(len(target.classes)), len(target.classes)
    likelihood, outputs = NOISES[noise]
    return likelihood(noise_var=0.1), outputs
