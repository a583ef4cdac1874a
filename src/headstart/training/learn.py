"""From a matrix of numbers and labels to a trained Bayesian net: the recipe behind all tables.

Validation rows choose between candidates, with trees or without, with one noise model or another;
where rows are few, every row is validated on once, in folds. The best candidate is then trained
again on all rows, for as many steps as validation rows found best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.initializers.report import InitReport
from headstart.likelihoods import Likelihood
from headstart.predictive import Predictive
from headstart.training.boosting import FOLDS
from headstart.training.derived import Derived
from headstart.training.folds import assign_folds, split_groups, split_validation
from headstart.training.history import History
from headstart.training.labels import Labels
from headstart.training.noise_factor import HeldOut, likeliest_noise_factor, with_noise_scaled
from headstart.training.race import Clock, Race
from headstart.training.recipe import Recipe
from headstart.training.tree_arrays import Boosting
from headstart.training.trial import Bench, Trial
from headstart.training.weights import kish_rows, scaled_weights

MIN_FOLD_ROWS = 20
"""Rows below which there are no folds: one part is held out."""
MIN_HELD_FRACTION = 0.02
"""The fraction of rows held out below which training again on all rows is not worth its time."""
HASTE = 20.0
"""Seconds of a time limit below which the effort is `quick`."""


@dataclass
class RecipeResult:
    """What was learned.

    Args:
        model: The trained net, in evaluation mode.
        likelihood: Its likelihood with the noise it found, in the user's units.
        derived: What makes the features that the net takes behind those of the columns.
        recipe: The recipe with nothing left open.
        report: What the initializer reported.
        history: What training reported: its evaluations are those that chose the steps.
        train: Indices of the rows that the net was trained on.
        trials: The nets of the chosen kind that predicted rows held out from them.
        scores: Metrics on all held-out rows, in the user's units.
        noise_factor: What the standard deviation of the noise is multiplied by in predictions, as
            held-out rows have it (`headstart.training.noise_factor`), () or (targets,); 1 where
            `refine_` has set it.
        tried: For each candidate what it is, its NLL on held-out rows, and how many those were.
        reasons: What was chosen and why, in sentences.
    """

    model: nn.Module
    likelihood: Likelihood
    derived: Derived
    recipe: Recipe
    report: InitReport
    history: History
    train: Tensor
    trials: list[Trial]
    noise_factor: Tensor = field(default_factory=lambda: torch.ones((), dtype=torch.float64))
    scores: dict[str, float] = field(default_factory=dict)
    tried: list[dict[str, Any]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    @property
    def trees(self) -> Boosting | None:
        """The trees whose features the net takes behind the others, if any."""
        return self.derived.trees

    @property
    def validation(self) -> Tensor:
        """Indices of the rows that were held out, those of one trial after another."""
        return torch.cat([trial.rows for trial in self.trials])

    @property
    def held_out(self) -> list[tuple[Tensor, Predictive]]:
        """Rows, and their predictive distribution by a net that has not seen them."""
        return [(t.rows, t.predicted) for t in self.trials if t.predicted is not None]


def learn(
    x: Any,
    labels: Labels,
    recipe: Recipe | None = None,
    *,
    groups: Any = None,
    weights: Any = None,
    keys: Any = None,
    ordered: bool = False,
    checkpoint: Path | None = None,
    progress: bool = False,
) -> RecipeResult:
    """Choose between candidates by held-out rows, and train the best one on all rows.

    Args:
        x: Standardized features, (rows, features).
        labels: Their labels.
        recipe: The settings; None: the default.
        groups: A number for each row; rows with the same one are held out together.
        weights: What each row counts, in proportion; None: all count alike.
        keys: The numbers of levels of categories that have too many for a feature each, (rows,
            key columns), −1 for unknown ones: nets and trees are told what the target is in the
            other rows of a level (`LevelMeans`); None: there are none.
        ordered: Whether rows stand in the order of time: then the last ones are held out.
        checkpoint: A folder for the state of training: what an earlier call has left there is
            resumed. Empty it when the result is safe.
        progress: Whether to show progress bars.

    Returns:
        The trained net, and how it was chosen.

    Example:
        >>> from headstart.training.labels import QuantityLabels
        >>> x = torch.randn(200, 3)
        >>> quick = Recipe(steps=50, effort="quick", trees=False)
        >>> found = learn(x, QuantityLabels(x.sum(1).double()), quick)
        >>> found.recipe.model, sorted(found.scores)[:2]
        ('mlp-1x50', ['coverage_95', 'expected_nll'])
    """
    clock, recipe = Clock(recipe), _hurried(recipe or Recipe())
    x = x.float() if isinstance(x, Tensor) else torch.as_tensor(np.asarray(x), dtype=torch.float32)
    parts = _parts(labels, recipe, groups, ordered)
    counts = _checked_weights(weights, len(x), recipe)
    together = _tree_groups(len(x), groups, ordered)
    bench = Bench(x, labels, recipe, together, counts, progress, _checked_keys(keys, len(x)))
    race = Race(bench, parts, clock, checkpoint)
    best = race.choose()
    trials = race.trials[best]
    held = sum(len(trial.rows) for trial in trials)
    if recipe.refine or (len(parts) == 1 and held < MIN_HELD_FRACTION * len(x)):
        final, train = trials[0], parts[0][0]
    else:
        final, train = race.refit(best), torch.arange(len(x))
    factor = _sized_noise_(trials, final, bench)
    recipe = replace(recipe.sized(len(train), best.trees), trees=best.trees, noise=best.noise)
    assert recipe.model is not None
    recipe = replace(recipe, model=best.net(recipe.model))
    return RecipeResult(
        final.model,
        final.likelihood,
        final.derived,
        recipe,
        final.report,
        final.history,
        train,
        trials,
        factor,
        pooled_scores(trials, labels.y),
        race.tried(),
        [
            *race.reasons(best, final.history.best_step or 0, len(train)),
            *_factor_in_words(factor, held),
            *_weights_in_words(counts),
        ],
    )


def _checked_weights(weights: Any, rows: int, recipe: Recipe) -> Tensor | None:
    if weights is None:
        return None
    if recipe.refine:
        raise HeadstartError("refine solves the last layer with all rows alike: leave out weights.")
    return scaled_weights(weights, rows)


def _checked_keys(keys: Any, rows: int) -> Any:
    """Keys as integers, None where there is no column of them."""
    if keys is None or np.shape(keys)[1:] == (0,):
        return None
    given = np.asarray(keys)
    if given.dtype.kind not in "iu" or given.ndim != 2 or len(given) != rows:
        raise HeadstartError(
            f"Keys are whole numbers, (rows, key columns), for each of {rows} rows, not "
            f"{given.dtype} of shape {given.shape}."
        )
    return given.astype(np.int64)


def _weights_in_words(weights: Tensor | None) -> list[str]:
    if weights is None:
        return []
    return [f"By their weights {len(weights)} rows count as {kish_rows(weights):.4g}."]


def _sized_noise_(trials: list[Trial], final: Trial, bench: Bench) -> Tensor:
    """Give all predictions the size of noise that held-out rows find likeliest.

    The net of a fold takes that of the rows of the other folds: its own rows judge it, though the
    nets of the other folds have seen them.

    Returns:
        What the standard deviation of the noise of the final net was multiplied by, () or
        (targets,).
    """
    parts = _unseen_rows(trials, bench) if bench.labels.noise_has_size else []
    # What `refine_` has solved in closed form keeps the noise that it found.
    if not parts or final.likelihood.has_predictive_noise:
        return torch.ones((), dtype=torch.float64)
    factor = likeliest_noise_factor(parts)
    predicting = [trial for trial in trials if trial.predicted is not None]
    for trial, part in zip(predicting, parts, strict=True):
        rest = [other for other in parts if other is not part]
        own = likeliest_noise_factor(rest) if rest else factor
        trial.likelihood.scale_predictive_noise_(own)
        trial.predicted = with_noise_scaled(part.predicted, own)
    if all(trial is not final for trial in trials):
        final.likelihood.scale_predictive_noise_(factor)
    return factor


def _unseen_rows(trials: list[Trial], bench: Bench) -> list[HeldOut]:
    """The rows of each trial that its net has not seen, where it predicts any."""
    y, weights = bench.labels.y, bench.weights
    return [
        HeldOut(t.predicted, y[t.rows], None if weights is None else weights[t.rows])
        for t in trials
        if t.predicted is not None
    ]


def _factor_in_words(factor: Tensor, rows: int) -> list[str]:
    times = [f"{value:.2f}" for value in factor.reshape(-1).tolist()]
    if all(float(value) == 1 for value in times):
        return []
    each = " (one factor for each target)" if len(times) > 1 else ""
    return [
        f"In predictions the noise is {', '.join(times)} times what training found{each}: {rows} "
        "held-out rows are likelier so."
    ]


def _hurried(recipe: Recipe) -> Recipe:
    """The same, with little effort where there is little time."""
    short = recipe.time_limit is not None and recipe.time_limit < HASTE
    return replace(recipe, effort="quick") if short else recipe


def _parts(
    labels: Labels, recipe: Recipe, groups: Any, ordered: bool
) -> list[tuple[Tensor, Tensor]]:
    """Training rows and validation rows, once or in folds."""
    y = labels.y
    rows = len(y)
    if ordered:
        count = min(max(1, round(recipe.validation * rows)), rows - 1)
        return [(torch.arange(rows - count), torch.arange(rows - count, rows))]
    folds = _count_folds(rows, recipe)
    if groups is not None:
        folds = min(folds, len(np.unique(groups)))
    if folds == 1 and groups is None:
        return [split_validation(y, recipe.validation, recipe.seed)]
    if folds == 1:
        train, held = split_groups(np.asarray(groups), recipe.validation, recipe.seed)
        return [(torch.as_tensor(train), torch.as_tensor(held))]
    stratify = not y.is_floating_point()
    fold_of = torch.as_tensor(
        assign_folds(y.numpy(), folds, recipe.seed, groups=groups, stratify=stratify)
    )
    return [
        (torch.nonzero(fold_of != fold).flatten(), torch.nonzero(fold_of == fold).flatten())
        for fold in fold_of.unique().tolist()
    ]


def _count_folds(rows: int, recipe: Recipe) -> int:
    """Into how many folds the rows are divided; 1: one part is held out."""
    if recipe.refine or rows < MIN_FOLD_ROWS:
        return 1
    if recipe.folds is not None:
        return recipe.folds
    return recipe.work.folds if rows < recipe.work.folds_below else 1


def _tree_groups(rows: int, groups: Any, ordered: bool) -> Any:
    """What the folds of trees must not divide: groups, or stretches of time."""
    if ordered:
        return np.arange(rows) * 2 * FOLDS // rows
    return groups


def pooled_scores(trials: Sequence[Trial], y: Tensor) -> dict[str, float]:
    """Metrics of all held-out rows: means over rows, the RMSE from the mean squared error.

    Args:
        trials: What predicted them.
        y: All labels in the user's units.
    """
    total: dict[str, float] = {}
    held = [(t.rows, t.predicted) for t in trials if t.predicted is not None]
    count = sum(len(rows) for rows, _ in held)
    for rows, predicted in held:
        for name, value in predicted.evaluate(y[rows]).items():
            part = value**2 if name == "rmse" else value
            total[name] = total.get(name, 0.0) + part * len(rows) / count
    if "rmse" in total:
        total["rmse"] = math.sqrt(total["rmse"])
    return total
