"""What the target is in the rows of each level of a category, smoothed: further features of a net.

A category of many levels, few rows each, is too much for a feature each. In their place stands the
posterior mean of a random-effects model, which trusts a level as far as its rows allow. Of
quantities, it is the mean of what other columns leave unexplained in rows of one level: there is
less noise in it, and nets and trees see the other columns themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch

from headstart.errors import untrusted
from headstart.storage.files import open_tensors, write_tensors
from headstart.training.random_effects import smoothed_means, within_slopes
from headstart.training.tree_arrays import FileArray

LEVELS_KIND = "level means"
LINK_NUMBERS = {"squared_error": 0, "poisson": 1, "log_loss": 2}
"""By the loss of the labels what is made of means: nothing, logarithms, or log-odds."""
MIN_LOG = -10.0
"""Logarithms of means are no lower: beyond, nothing is learned, and weights would be huge."""
MAX_SCORE = 10.0
"""Features are no further from 0, in root mean squares of the training rows."""


@dataclass(frozen=True)
class LevelMeans:
    """The smoothed mean of the target for each level of C columns, and the features made of it.

    Level j of a column, with n_j rows and the mean m_j, has the posterior mean
    `(n_j m_j + κ m) / (n_j + κ)`, m being the mean of all rows and κ as in `shrinkage`. Where other
    columns x are given, means are those of `y − xᵀβ`, with β as in `within_slopes`. The level's
    feature is the posterior mean less m, both on the scale of a net's output: as they are for
    quantities, logarithms for counts, log-odds against the first class for classes. Unknown levels
    have the feature 0.

    Args:
        means: The posterior means, levels of one column after those of another, (levels, K).
        starts: Where the levels of each column begin, and where the last ones end, (C + 1,).
        overall: m, (C, K).
        link: The scale, by `LINK_NUMBERS`, (1,).
        factors: What differences are multiplied by, (C, features of a column).

    Example:
        >>> keys, y = np.array([[0], [0], [1], [1]]), np.array([[0.0], [2.0], [8.0], [10.0]])
        >>> found = LevelMeans.fit(keys, y, "squared_error", levels=[2])
        >>> found.features(np.array([[0], [1], [-1]])).round(3).ravel().tolist()
        [-3.875, 3.875, 0.0]
    """

    means: FileArray
    starts: FileArray
    overall: FileArray
    link: FileArray
    factors: FileArray

    @classmethod
    def fit(
        cls,
        keys: FileArray,
        targets: FileArray,
        loss: str,
        levels: Sequence[int],
        weights: FileArray | None = None,
        x: FileArray | None = None,
    ) -> LevelMeans:
        """Learn from rows; features are then differences as they are.

        Args:
            keys: The number of each row's level in each column, −1 for one without, (rows, C).
            targets: As `targets_of` has them, (rows, K).
            loss: The loss of the labels.
            levels: How many levels each column has.
            weights: What each row counts; None: 1.
            x: Other columns, whose linear part is taken off the targets; None: nothing is.
        """
        counts = np.ones(len(keys)) if weights is None else np.asarray(weights, np.float64)
        total = max(float(counts.sum()), np.finfo(np.float64).tiny)
        means, overall = [], []
        for key, count in zip(keys.T, levels, strict=True):
            y = targets if x is None else targets - x @ within_slopes(key, x, targets, counts)
            overall.append(counts @ y / total)
            pooled = loss == "log_loss"
            means.append(smoothed_means(key, y, counts, count, overall[-1], pooled))
        width = targets.shape[1] - (loss == "log_loss")
        return cls(
            np.concatenate(means),
            np.cumsum([0, *levels]).astype(np.int32),
            np.stack(overall),
            np.array([LINK_NUMBERS[loss]], np.int32),
            np.ones((len(levels), width)),
        )

    @property
    def columns(self) -> int:
        """C, the number of columns that it takes keys of."""
        return len(self.starts) - 1

    @property
    def outputs(self) -> int:
        """How many features it gives a net."""
        return int(self.factors.size)

    def of_levels(self, keys: FileArray) -> FileArray:
        """The posterior mean of each row's level, m for unknown ones: (rows, C, K).

        Args:
            keys: The numbers of levels, (rows, C).
        """
        return np.concatenate([self.means, self.overall])[self._places(keys)]

    def features(self, keys: FileArray) -> FileArray:
        """What a net takes of rows: (rows, outputs).

        Args:
            keys: The numbers of levels, (rows, C).
        """
        return bounded_features(self.differences(keys), self.factors)

    def differences(self, keys: FileArray) -> FileArray:
        """How far the levels lie from m on the scale of a net's output: (rows, C, features).

        Args:
            keys: The numbers of levels, (rows, C).
        """
        link = int(self.link[0])
        overall = _on_scale(self.overall, link)
        found = _on_scale(self.means, link) - overall.repeat(np.diff(self.starts), axis=0)
        return np.concatenate([found, np.zeros_like(overall)])[self._places(keys)]

    def _places(self, keys: FileArray) -> FileArray:
        """Where levels stand among all of them, unknown ones behind, by column: (rows, C)."""
        known = (keys >= 0) & (keys < np.diff(self.starts))
        return np.where(known, keys + self.starts[:-1], len(self.means) + np.arange(self.columns))

    def save(self, path: Path) -> None:
        """Write the arrays to a safetensors file.

        Args:
            path: The file.
        """
        tensors = {f.name: torch.from_numpy(getattr(self, f.name).copy()) for f in fields(self)}
        write_tensors(path, tensors, LEVELS_KIND, {"columns": self.columns})

    @classmethod
    def load(cls, path: Path) -> LevelMeans:
        """Read back what `save` wrote.

        Args:
            path: The file.

        Raises:
            HeadstartError: The file is damaged, or holds something else.
        """
        tensors = open_tensors(path, LEVELS_KIND).read()
        with untrusted(path, "holds no means of levels"):
            found = cls(**{name: tensor.numpy() for name, tensor in tensors.items()})
            found.check()
        return found

    def check(self) -> None:
        """Refuse arrays that do not belong together."""
        if not all(np.isfinite(getattr(self, f.name)).all() for f in fields(self)):
            raise ValueError("a number is not finite")
        if self.starts.dtype.kind != "i" or not (np.diff(self.starts) >= 0).all():
            raise ValueError("its levels are in no order")
        if self.starts[0] != 0 or self.starts[-1] != len(self.means):
            raise ValueError("its levels are not those of its columns")
        width = self.overall.shape[1] - (int(self.link[0]) == LINK_NUMBERS["log_loss"])
        shapes = self.overall.shape, self.factors.shape
        if shapes != ((self.columns, self.means.shape[1]), (self.columns, width)):
            raise ValueError("its arrays are not of one shape")
        if int(self.link[0]) not in LINK_NUMBERS.values():
            raise ValueError("its scale is unknown")


def targets_of(y: FileArray, loss: str, classes: int = 0) -> FileArray:
    """Labels as numbers whose means are taken, (rows, K): of classes an indicator each.

    Args:
        y: The labels, (rows,) or (rows, K).
        loss: Their loss.
        classes: The number of classes.

    Example:
        >>> targets_of(np.array([0, 2]), "log_loss", 3).tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    if loss == "log_loss":
        return np.asarray(y[:, None] == np.arange(classes), np.float64)
    return np.asarray(y, np.float64).reshape(len(y), -1)


def _on_scale(means: FileArray, link: int) -> FileArray:
    """Means on the scale of a net's output, (rows, K), of classes (rows, K − 1)."""
    if link == LINK_NUMBERS["squared_error"]:
        return means
    logs = np.log(np.maximum(means, math.exp(MIN_LOG)))
    return logs if link == LINK_NUMBERS["poisson"] else logs[:, 1:] - logs[:, :1]


def bounded_features(differences: FileArray, factors: FileArray) -> FileArray:
    """What a net takes of differences from the overall mean, within ±10: (rows, features).

    Args:
        differences: Of each column, (rows, C, features of a column).
        factors: What they are multiplied by, (C, features of a column).
    """
    found = (differences * factors).reshape(len(differences), factors.size)
    return np.asarray(found.clip(-MAX_SCORE, MAX_SCORE))


class LevelFolds:
    """The level means of some rows, for each of them by the rows of other folds.

    The posterior mean is the expected target of a new row of the level, whether the level had few
    rows or many: so features out of fold and those of new rows mean the same, though the latter
    know more rows.

    Args:
        keys: The number of each row's level in each column, −1 for one without, (rows, C).
        y: The labels, (rows,) or (rows, K).
        loss: Their loss.
        fold_of: The fold of each row.
        classes: The number of classes.
        weights: What each row counts.
        x: Other columns, whose linear part is taken off the labels of quantities.

    Example:
        >>> keys, fold_of = np.arange(8)[:, None] % 2, np.arange(8) // 4
        >>> folds = LevelFolds(keys, np.array([0.0, 9, 1, 8, 0, 8, 2, 9]), "squared_error", fold_of)
        >>> folds.held_out(np.full(8, True)).ravel().round(1).tolist()
        [-1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0]
    """

    def __init__(
        self,
        keys: FileArray,
        y: FileArray,
        loss: str,
        fold_of: FileArray,
        *,
        classes: int = 0,
        weights: FileArray | None = None,
        x: FileArray | None = None,
    ) -> None:
        self.keys, self.loss, self.fold_of = keys, loss, fold_of
        self.targets = targets_of(y, loss, classes)
        self.weights = np.ones(len(keys)) if weights is None else weights
        # Logarithms and log-odds of what a line leaves would be none.
        self.x = x if loss == "squared_error" else None
        self.levels = (keys.max(0, initial=-1) + 1).tolist()
        everyone = np.full(len(keys), True)
        size = np.sqrt(np.square(self._differences(everyone)).mean(0))
        # What no training row has, as where groups share no level, new rows must not have either.
        factors = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
        self.means = replace(self._fit(everyone), factors=factors)

    def held_out(self, known: FileArray) -> FileArray:
        """The features of all rows where only the labels of some are known, (rows, outputs).

        Those of known rows are by the known rows of other folds, those of others by all known ones.

        Args:
            known: Whether the label of each row is known, (rows,).
        """
        return bounded_features(self._differences(known), self.means.factors)

    def _differences(self, known: FileArray) -> FileArray:
        found = self._fit(known).differences(self.keys)
        for fold in np.unique(self.fold_of[known]):
            rows = known & (self.fold_of == fold)
            found[rows] = self._fit(known & ~rows).differences(self.keys[rows])
        return found

    def _fit(self, known: FileArray) -> LevelMeans:
        rows, weights = self.targets[known], self.weights[known]
        x = None if self.x is None else self.x[known]
        return LevelMeans.fit(self.keys[known], rows, self.loss, self.levels, weights, x)
