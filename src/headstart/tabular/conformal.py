"""Cross-conformal intervals: CV+ by the nets of the folds.

Their guarantee needs no model, but held-out rows that nothing was chosen by. In a table these rows
choose the kind of net and when its training ends, so that here it is not exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.likelihoods import Likelihood
from headstart.predictive import Predictive
from headstart.training.derived import Derived
from headstart.training.learn import RecipeResult
from headstart.training.recipe import Recipe

MIN_CONFORMAL_ROWS = 19
"""Held-out rows below which there is no interval of 95 %."""
CONFORMAL_FOLDS = 3
"""Folds where one part of the rows would be too small."""
MAX_ENDS = 2**22
"""Ends of intervals that are sorted together."""


@dataclass(frozen=True)
class FoldModel:
    """A net that has not seen some rows, and how far their labels lay from its predictions.

    Args:
        model: The net.
        likelihood: Its likelihood, in the units of the table.
        derived: What makes the features that it takes behind those of the columns.
        scores: Of each row that was held out from it `|y − mean| / sd`.
    """

    model: nn.Module
    likelihood: Likelihood
    derived: Derived
    scores: Tensor


def conformal_scores(pred: Predictive, y: Tensor) -> Tensor:
    """How far labels lie from their predictions, in standard deviations: `|y − mean| / sd`.

    Args:
        pred: Predictions of rows that were held out, by the net that has not seen them.
        y: Their labels.
    """
    return ((y - pred.mean[:, 0]).abs() / pred.std[:, 0]).detach()


def conformal_place(level: float, count: int) -> int:
    """Which of n scores, in order, is the conformal quantile: ⌈level · (n + 1)⌉.

    Args:
        level: The level of the interval.
        count: n.

    Example:
        >>> conformal_place(0.95, 99), 0.55 * 100, conformal_place(0.55, 99)
        (95, 55.00000000000001, 55)
    """
    # A product that is whole but for its last digit is whole.
    return math.ceil(round(level * (count + 1), 9))


def rows_for_level(level: float) -> int:
    """How many held-out rows an interval needs, so that its ends are finite.

    Args:
        level: The level of the interval.

    Example:
        >>> rows_for_level(0.5), rows_for_level(0.95), rows_for_level(0.99)
        (1, 19, 99)
    """
    rows = max(1, int(level / (1 - level)) - 1)
    while conformal_place(level, rows) > rows:
        rows += 1
    return rows


def infinite_levels(folds: Sequence[FoldModel], levels: Iterable[float]) -> dict[float, int]:
    """Levels whose intervals are infinite, each with how many held-out rows it needs.

    Args:
        folds: The nets of the folds; without any, intervals are not conformal and none is infinite.
        levels: The levels.
    """
    held = sum(len(fold.scores) for fold in folds)
    needed = {level: rows_for_level(level) for level in levels} if folds else {}
    return {level: rows for level, rows in needed.items() if rows > held}


def check_conformal_rows(count: int) -> None:
    """Refuse to calibrate intervals of 95 % by too few rows.

    Args:
        count: How many rows were held out.
    """
    if count < MIN_CONFORMAL_ROWS:
        raise HeadstartError(
            f"--conformal needs at least {MIN_CONFORMAL_ROWS} validation rows for an interval of "
            f"95 %; there are {count}."
        )


def conformal_recipe(recipe: Recipe, rows: int, *, ordered: bool = False) -> Recipe:
    """The recipe with rows enough held out for an interval of 95 %.

    Where one part of the rows would be too small, every row is held out once, in folds.

    Args:
        recipe: How a table is learned.
        rows: How many rows are learned from.
        ordered: Whether these are in the order of time: then the last ones alone are held out.

    Raises:
        HeadstartError: There are too few rows, or the recipe leaves too few.

    Example:
        >>> quick = Recipe(effort="quick")
        >>> conformal_recipe(quick, 100).folds, conformal_recipe(quick, 500).folds
        (3, None)
    """
    open_folds = recipe.work.folds if rows < recipe.work.folds_below else 1
    in_folds = not ordered and not recipe.refine and rows > MIN_CONFORMAL_ROWS
    if in_folds and (recipe.folds or open_folds) > 1:
        return recipe
    held = max(1, round(recipe.validation * rows))
    if held >= MIN_CONFORMAL_ROWS:
        return recipe
    if not in_folds or recipe.folds is not None:
        check_conformal_rows(held)
    return replace(recipe, folds=CONFORMAL_FOLDS)


def fold_models(outcome: RecipeResult, y: Tensor) -> tuple[FoldModel, ...]:
    """The nets that had rows held out, with how far off they were there.

    Args:
        outcome: What was learned.
        y: The labels of all rows that it was learned from.

    Raises:
        HeadstartError: Too few rows were held out.
    """
    check_conformal_rows(len(outcome.validation))
    return tuple(
        FoldModel(t.model, t.likelihood, t.derived, conformal_scores(t.predicted, y[t.rows]))
        for t in outcome.trials
        if t.predicted is not None
    )


def fold_interval(
    folds: Sequence[FoldModel], predicted: Sequence[Predictive], level: float
) -> tuple[Tensor, Tensor]:
    """The CV+ interval of new rows by what the net of each fold predicts for them.

    Args:
        folds: The nets, with the scores of the rows that were held out from them.
        predicted: What each predicts for the new rows.
        level: The level of the interval.
    """
    means = torch.stack([pred.mean[:, 0] for pred in predicted])
    sds = torch.stack([pred.std[:, 0] for pred in predicted])
    return cross_conformal(means, sds, [fold.scores for fold in folds], level)


def cross_conformal(
    means: Tensor, sds: Tensor, scores: Sequence[Tensor], level: float
) -> tuple[Tensor, Tensor]:
    """The CV+ interval of new rows (Barber, Candès, Ramdas and Tibshirani 2021).

    With α = 1 − level and the scores R_i of n held-out rows, k(i) the fold of row i, the lower end
    is the ⌊α (n + 1)⌋-th smallest of `mean_k(i) − R_i sd_k(i)`, the upper end the
    ⌈(1 − α)(n + 1)⌉-th smallest of `mean_k(i) + R_i sd_k(i)`. Where rows are exchangeable and no
    net was chosen by the rows held out from it, a new label lies inside with a probability of at
    least `1 − 2α − 2 (1 − 1/K)/(n/K + 1)` for K folds of n/K rows, whatever the nets are; the last
    term is never more than √(2/n). It is mostly near 1 − α.

    Args:
        means: What the net of each fold predicts for new rows, (folds, rows).
        sds: With which standard deviations, (folds, rows).
        scores: The scores of each fold's held-out rows.
        level: The level of the interval.

    Returns:
        The lower and the upper ends, each (rows,).

    Example:
        >>> low, high = cross_conformal(
        ...     torch.zeros(1, 1), torch.ones(1, 1), [torch.arange(1.0, 100.0)], 0.95
        ... )
        >>> low, high
        (tensor([-95.]), tensor([95.]))
    """
    count = sum(len(each) for each in scores)
    place = conformal_place(level, count)
    if place > count:
        infinite = torch.full_like(means[0], math.inf)
        return -infinite, infinite
    size = max(1, MAX_ENDS // count)
    lows, highs = [], []
    for mean, sd in zip(means.split(size, 1), sds.split(size, 1), strict=True):
        half = torch.cat([s[:, None] * sd[k] for k, s in enumerate(scores)])
        center = torch.cat([mean[k].expand(len(s), -1) for k, s in enumerate(scores)])
        # The lower end by symmetry: what is ⌊α (n + 1)⌋-th from below is as far as from above.
        lows.append(-(half - center).sort(0).values[place - 1])
        highs.append((center + half).sort(0).values[place - 1])
    return torch.cat(lows), torch.cat(highs)
