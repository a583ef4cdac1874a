"""Gradient-boosted trees of several folds, whose out-of-fold predictions a net takes as features.

scikit-learn grows the trees; nodes are plain arrays from then on, so that they are saved without
pickle and evaluated by a few lines that give scikit-learn's numbers to the last digit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from headstart.training.folds import assign_folds
from headstart.training.tree_arrays import Boosting, FileArray, as_features, from_sklearn

FOLDS = 5
"""Parts of the rows: the trees of a part learn from the others and predict it."""
MAX_TREE_ROWS = 100_000
"""Rows beyond which the trees of a fold learn from so many of them, drawn at random."""
MIN_TREE_ROWS = 40
"""Rows below which there are no trees."""
MIN_ROWS_FOR_LARGE = 4000
"""Rows from which on trees are larger."""


class TreeSize(NamedTuple):
    """How large and how many trees are grown."""

    leaves: int | None
    iterations: int
    rate: float
    depth: int | None = None
    leaf_rows: int = 5
    column_share: float = 1.0
    """The columns among which each split chooses, drawn at random."""


SMALL_TREES = (
    TreeSize(15, 400, 0.1, leaf_rows=2, column_share=0.5),
    TreeSize(None, 400, 0.1, depth=4, leaf_rows=1, column_share=0.5),
)
LARGE_TREES = (TreeSize(31, 300, 0.1), TreeSize(255, 150, 0.1))


def can_boost(y: FileArray, loss: str, *, seed: int = 0, groups: FileArray | None = None) -> bool:
    """Whether there are rows enough, and the trees of every fold see each class, or a count.

    Args:
        y: Labels, (rows,), or several numbers for each row, (rows, targets).
        loss: As in `boost`.
        seed: As in `boost`.
        groups: As in `boost`.
    """
    if len(y) < MIN_TREE_ROWS or (y.ndim > 1 and loss != "squared_error"):
        return False
    fold_of = tree_folds(y, loss, seed, groups)
    seen = [y[fold_of != fold] for fold in np.unique(fold_of)]
    if loss == "log_loss":
        # Classes are numbered without gaps, also by the trees.
        return all(len(np.unique(part)) == y.max() + 1 for part in seen)
    return all(len(part) and (loss != "poisson" or part.sum() > 0) for part in seen)


def tree_folds(y: FileArray, loss: str, seed: int, groups: FileArray | None) -> FileArray:
    """The fold of each row, (rows,).

    Args:
        y: As in `boost`.
        loss: As in `boost`.
        seed: As in `boost`.
        groups: As in `boost`.
    """
    return assign_folds(y, FOLDS, seed, groups=groups, stratify=loss == "log_loss")


def boost(
    x: FileArray,
    y: FileArray,
    loss: str,
    *,
    seed: int = 0,
    groups: FileArray | None = None,
    weights: FileArray | None = None,
    sizes: tuple[TreeSize, ...] | None = None,
    further: Callable[[FileArray], FileArray] | None = None,
) -> tuple[Boosting, FileArray]:
    """Grow trees in folds; the held-out rows of all folds choose how many are kept.

    The first fold chooses the size of the trees.

    Args:
        x: Finite features, (rows, columns).
        y: Numbers, counts, or classes 0 to K − 1, (rows,); of several targets (rows, targets),
            each of which gets trees of its own.
        loss: scikit-learn's name of it: `squared_error`, `poisson` or `log_loss`.
        seed: Seeds folds and trees.
        groups: Rows with the same number stay in one fold.
        weights: What each row counts.
        sizes: The sizes to try; None: those that suit the number of rows.
        further: Columns behind the others that are made of labels: given whether the label of each
            row is known, (rows,), those of all rows by the known labels alone.

    Returns:
        The trees, and what they say of each row when they have not seen it, (rows, K).

    Example:
        >>> x = np.random.default_rng(0).normal(size=(200, 2))
        >>> trees, held_out = boost(x, np.abs(x[:, 0]), "squared_error")
        >>> held_out.shape, trees.extend(x).shape
        ((200, 1), (200, 3))
    """
    x = np.asarray(x, dtype=np.float64)
    fold_of = tree_folds(y, loss, seed, groups)
    folds = [fold for fold in range(FOLDS) if (fold_of == fold).any()]
    tried = sizes or (SMALL_TREES if len(x) < MIN_ROWS_FOR_LARGE else LARGE_TREES)

    @cache
    def columns(fold: int) -> FileArray:
        """All columns, for trees that must not see a fold: not in columns made of labels, too."""
        more = None if further is None else further(fold_of != fold)
        return x if more is None else np.concatenate([x, more.astype(np.float32)], axis=1)

    def grow(fold: int, size: TreeSize) -> tuple[Any, FileArray]:
        """A model that has not seen a fold, and what it loses there after each iteration."""
        rows = np.flatnonzero(fold_of != fold)
        if len(rows) > MAX_TREE_ROWS:
            drawn = np.random.default_rng([seed, fold]).choice(rows, MAX_TREE_ROWS, replace=False)
            # The rarest class is among them, too.
            classes = y[rows] if loss == "log_loss" else np.zeros(len(rows))
            rows = np.union1d(drawn, rows[np.unique(classes, return_index=True)[1]])
        counts = None if weights is None else weights[rows]
        seen = columns(fold)
        model = _fit_trees(seen[rows], y[rows], counts, loss, size, seed + fold)
        held = fold_of == fold
        # Stage by stage: all of them together would take gigabytes on a large table.
        worth = 1.0 if weights is None else weights[held]
        stages = model._staged_raw_predict(seen[held])
        return model, np.array([(worth * _losses(each, y[held], loss)).sum() for each in stages])

    first = [grow(folds[0], size) for size in tried]
    best = int(np.argmin([losses.min() for _, losses in first]))
    grown = [first[best], *(grow(fold, tried[best]) for fold in folds[1:])]
    kept = int(np.argmin(sum(losses for _, losses in grown))) + 1
    models = [model for model, _ in grown]
    trees = from_sklearn(models, kept, columns(folds[0]).shape[1], logits=loss == "log_loss")
    held_out = np.empty((len(x), trees.outputs))
    for fold, model in zip(folds, models, strict=True):
        stages = model._staged_raw_predict(columns(fold)[fold_of == fold])
        held_out[fold_of == fold] = next(itertools.islice(stages, kept - 1, None))
    return trees, as_features(held_out, logits=loss == "log_loss")


def _fit_trees(
    x: FileArray, y: FileArray, weights: FileArray | None, loss: str, size: TreeSize, seed: int
) -> Any:
    """A fitted model, of several targets one for each."""
    if y.ndim == 1:
        return _new_model(loss, size, seed).fit(x, y, sample_weight=weights)
    return _SeveralTargets(
        [_new_model(loss, size, seed).fit(x, column, sample_weight=weights) for column in y.T]
    )


class _SeveralTargets:
    """Models of one target each, as one with a raw prediction for each of them."""

    def __init__(self, models: list[Any]) -> None:
        self.models = models
        each = zip(*(model._predictors for model in models), strict=True)
        self._predictors = [[tree for trees in together for tree in trees] for together in each]
        self._baseline_prediction = np.array(
            [np.ravel(model._baseline_prediction)[0] for model in models]
        )

    def _staged_raw_predict(self, x: FileArray) -> Iterator[FileArray]:
        stages = [model._staged_raw_predict(x) for model in self.models]
        for together in zip(*stages, strict=True):
            yield np.concatenate(together, axis=1)


def _new_model(loss: str, size: TreeSize, seed: int) -> Any:
    options: dict[str, Any] = {
        "learning_rate": size.rate,
        "max_iter": size.iterations,
        "max_leaf_nodes": size.leaves,
        "max_depth": size.depth,
        "min_samples_leaf": size.leaf_rows,
        "max_features": size.column_share,
        "early_stopping": False,
        "random_state": seed,
    }
    if loss == "log_loss":
        return HistGradientBoostingClassifier(**options)
    return HistGradientBoostingRegressor(loss=loss, **options)


def _losses(raw: FileArray, y: FileArray, loss: str) -> FileArray:
    """What each row loses by a raw prediction, constants left out."""
    if loss == "squared_error":
        return np.asarray(((y.reshape(len(y), -1) - raw) ** 2).sum(1))
    if loss == "poisson":
        return np.asarray(np.exp(raw[:, 0]) - y * raw[:, 0])
    logits = np.concatenate([np.zeros_like(raw), raw], 1) if raw.shape[1] == 1 else raw
    chosen = np.take_along_axis(logits, y.astype(int)[:, None], 1)[:, 0]
    return np.asarray(logsumexp(logits, axis=1) - chosen)
