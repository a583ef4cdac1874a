"""`headstart fit`: a table in, a calibrated model and what it is worth out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headstart.errors import HeadstartError
from headstart.reporting.text import plural
from headstart.tabular.calibration import Calibration
from headstart.tabular.cells import to_numbers
from headstart.tabular.conformal import conformal_recipe, fold_models
from headstart.tabular.evaluation import Scored, evaluate_run
from headstart.tabular.frames import plain_frame
from headstart.tabular.holdout import RowOrder, neighbor_correlation, split_rows
from headstart.tabular.insight import insights, with_leaks
from headstart.tabular.quotes import Written
from headstart.tabular.run import TableRun, jsonable
from headstart.tabular.schema import Schema, column_of, unseen_in_words
from headstart.tabular.target import Target
from headstart.tabular.turns import in_turn
from headstart.training.labels import ClassLabels, Labels, number_labels
from headstart.training.learn import RecipeResult, learn
from headstart.training.recipe import Recipe


def fit_table(
    frame: pd.DataFrame,
    target: str,
    *,
    task: str = "auto",
    recipe: Recipe | None = None,
    test_share: float = 0.1,
    conformal: bool = False,
    noise: str | None = None,
    ignore: tuple[str, ...] = (),
    group: str | None = None,
    time: str | None = None,
    weights: str | None = None,
    written: Written | None = None,
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
        recipe: The net and how it is trained; None leaves all of it to validation rows.
        test_share: The fraction of rows to test on; with 0 every row is learned from, and the
            scores are those of rows held out in turn.
        conformal: Whether the intervals of a quantity are cross-conformal, by held-out rows.
        noise: Of a quantity: the same for all rows (`constant`), different from row to row
            (`varying`), or with outliers (`student-t`); of a count `poisson` or
            `negative-binomial`; None: the likeliest on validation rows.
        ignore: The names of columns to leave out.
        group: A column whose rows with the same value stay together in every split; it is no
            feature.
        time: A column of numbers or dates: the latest rows are tested on and held out.
        weights: A column of numbers from 0 on: what each row counts in the training, in
            proportion; it is no feature.
        written: By column, what the file has in place of cells that reading has written
            differently (`read_with_texts`): warnings quote that.
        checkpoint: A folder for unfinished work, from which the same call goes on.
        progress: Whether a progress bar is shown.

    Returns:
        What predicts, with its scores on the test rows in `found`.

    Raises:
        HeadstartError: If there is nothing to learn, with a sentence that says why.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> frame = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
        >>> quick = Recipe(steps=50, effort="quick")
        >>> run = fit_table(frame.assign(y=frame.a - frame.b), "y", recipe=quick)
        >>> sorted(run.found["scores"])[:2], run.predict(frame).mean.shape
        (['coverage_95', 'crps'], torch.Size([200, 1]))
    """
    start, recipe = perf_counter(), recipe or Recipe()
    recipe = recipe if noise is None else replace(recipe, noise=noise)
    _check_share(test_share)
    frame = plain_frame(frame, "the table").reset_index(drop=True)
    _check_names(target, ignore, group, time, weights)
    order = RowOrder.of(frame, group, time)
    goal, train, test = split_rows(
        column_of(frame, target),
        target,
        task=task,
        fraction=test_share,
        seed=recipe.seed + 1,
        order=order,
    )
    recipe = _checked_recipe(recipe, conformal, goal, len(train), order)
    learned, tested = frame.iloc[train], frame.iloc[test]
    y, y_test = (_label_tensor(goal.encode(part[target])) for part in (learned, tested))
    counts = _row_weights(learned, weights)
    uses = {"groups": group, "weights": weights}
    schema = _schema_without_uses(learned, goal, ignore, uses, written)
    labels = _checked_labels(goal, y, y_test, recipe.noise)
    outcome = learn(
        schema.encode(learned),
        labels,
        recipe,
        groups=order.of_rows(train),
        weights=counts,
        keys=schema.keys(learned),
        ordered=order.times is not None,
        checkpoint=checkpoint,
        progress=progress,
    )
    run = TableRun(
        outcome.model,
        outcome.likelihood,
        schema,
        Calibration.fit([pred for _, pred in outcome.held_out], goal),
        recipe.seed,
        {},
        outcome.derived,
        fold_models(outcome, y) if conformal else (),
    )
    run.learn_familiarity_(learned)
    parts = [
        Scored(learned.iloc[rows.numpy()], pred, y[rows], True) for rows, pred in outcome.held_out
    ]
    if len(test):
        parts = [Scored(tested, run.predict(tested), y_test)]
    found = evaluate_run(run, outcome, parts, y)
    warnings = [
        *_warnings(schema, frame, learned, tested),
        *_flattery(outcome, order, train, y),
        *(["All scores count rows alike, whatever their weights."] if weights else []),
    ]
    shown = insights(run, learned, tested, (y, y_test)) or in_turn(run, parts, learned, y)
    found |= with_leaks(shown, warnings)
    found |= {
        "test_rows": len(test),
        "warnings": warnings,
        "rows": len(train) + len(test),
        "train_rows": len(train),
        "seconds": perf_counter() - start,
    }
    run.found = jsonable(found)
    return run


def _schema_without_uses(
    learned: pd.DataFrame,
    goal: Target,
    ignore: tuple[str, ...],
    uses: dict[str, str | None],
    written: Written | None,
) -> Schema:
    """What each column is; those that have another use are no features."""
    used = {name: f"holds the {what} of rows" for what, name in uses.items() if name is not None}
    schema = Schema.for_target(learned, goal, ignore=(*ignore, *used), written=written)
    schema.left_out |= used
    return schema


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


def _flattery(outcome: RecipeResult, order: RowOrder, train: np.ndarray, y: Tensor) -> list[str]:
    """A warning where random test rows flatter, because rows near each other are alike."""
    if not (order.is_random and y.is_floating_point()):
        return []
    residuals = torch.cat([y[rows] - pred.mean[:, 0] for rows, pred in outcome.held_out])
    alike = neighbor_correlation(train[outcome.validation.numpy()], residuals.numpy())
    if not alike:
        return []
    return [
        f"The errors of neighboring rows are alike (correlation {alike:.2f}): if rows near each "
        "other share a time or a group, random test rows flatter; name its column by --time or "
        "--group."
    ]


def _checked_recipe(
    recipe: Recipe, conformal: bool, goal: Target, rows: int, order: RowOrder
) -> Recipe:
    """The recipe, with rows enough held out where intervals are to be conformal."""
    if not conformal:
        return recipe
    if goal.classes:
        raise HeadstartError(
            "--conformal recalibrates intervals, and classes have none: leave it out."
        )
    return conformal_recipe(recipe, rows, ordered=order.times is not None)


def _check_names(target: str, ignore: tuple[str, ...], *others: str | None) -> None:
    """Refuse a target that is named for something else, too."""
    options = ("--ignore", "--group", "--time", "--weights")
    for option, names in zip(options, (ignore, *((name,) for name in others)), strict=True):
        if target in names:
            raise HeadstartError(
                f"{target!r} is the column to predict: it cannot be named by {option} as well."
            )


def _check_share(test_share: float) -> None:
    if not 0 <= test_share < 1:
        raise HeadstartError(
            f"The fraction of rows to test on is 0 or lies between 0 and 1, not at {test_share}."
        )


def _checked_labels(goal: Target, y: Tensor, y_test: Tensor, noise: str | None) -> Labels:
    """The labels to learn; those of the test rows must be of their kind."""
    labels = ClassLabels(y, len(goal.classes)) if goal.classes else number_labels(y, noise)
    if not labels.admits(y_test):
        raise HeadstartError(
            f"{goal.name!r} holds counts in the rows to learn from, and other numbers in rows to "
            "test on: say --noise constant or --noise varying if it is a quantity."
        )
    return labels


def _row_weights(learned: pd.DataFrame, name: str | None) -> np.ndarray | None:
    """What each row counts, by a column, if any is named."""
    if name is None:
        return None
    column = column_of(learned, name)
    found = to_numbers(column)
    if not np.isfinite(found).all():
        odd = str(column[~np.isfinite(found)].iloc[0])
        raise HeadstartError(f"The column of weights {name!r} holds {odd!r}, which is no number.")
    return found


def _label_tensor(y: np.ndarray) -> Tensor:
    return torch.from_numpy(y.astype(np.float64) if y.dtype.kind == "f" else y.astype(np.int64))
