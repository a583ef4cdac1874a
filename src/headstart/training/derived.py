"""Features made of the labels of training rows, which a net takes behind those of the columns."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headstart.training.boosting import TreeSize, boost, tree_folds
from headstart.training.level_means import LevelFolds, LevelMeans
from headstart.training.tree_arrays import Boosting, FileArray

LEVELS_FILE, TREES_FILE = "levels.safetensors", "trees.safetensors"
DERIVED_FILES = {LEVELS_FILE, TREES_FILE}


@dataclass(frozen=True)
class Derived:
    """What makes further features of rows: means of levels, and behind them boosted trees.

    Args:
        levels: The target in the rows of each level of categories with many levels, if any.
        trees: Trees on the columns and on the means of levels, if any.

    Example:
        >>> Derived().extend(np.ones((2, 3))).shape
        (2, 3)
    """

    levels: LevelMeans | None = None
    trees: Boosting | None = None

    def extend(self, x: FileArray, keys: FileArray | None = None) -> FileArray:
        """The columns of new rows, and the further features behind them.

        Args:
            x: Finite features, (rows, columns).
            keys: The numbers of the levels, (rows, key columns); None where there are none.
        """
        if self.levels is not None:
            assert keys is not None
            x = np.concatenate([x, self.levels.features(keys).astype(x.dtype)], axis=1)
        return x if self.trees is None else self.trees.extend(x)

    @property
    def files(self) -> dict[str, str]:
        """What there is, and the name of its file."""
        parts = {"levels": (self.levels, LEVELS_FILE), "trees": (self.trees, TREES_FILE)}
        return {name: file for name, (part, file) in parts.items() if part is not None}

    def save(self, folder: Path, prefix: str = "") -> None:
        """Write what there is into a folder, a file each.

        Args:
            folder: The folder.
            prefix: How the names of the files begin.
        """
        for part, name in ((self.levels, LEVELS_FILE), (self.trees, TREES_FILE)):
            if part is not None:
                part.save(folder / (prefix + name))

    @classmethod
    def load(cls, folder: Path, parts: Container[str], prefix: str = "") -> Derived:
        """Read back what `save` wrote.

        Args:
            folder: The folder.
            parts: The names of what there is, as in `files`.
            prefix: As in `save`.

        Raises:
            HeadstartError: A file is damaged, or holds something else.
        """
        return cls(
            LevelMeans.load(folder / (prefix + LEVELS_FILE)) if "levels" in parts else None,
            Boosting.load(folder / (prefix + TREES_FILE)) if "trees" in parts else None,
        )

    def checked_row(self, columns: int, key_columns: int) -> FileArray:
        """A row of zeros and of unknown levels, extended: it must be made for such rows.

        Args:
            columns: How many features the rows have.
            key_columns: How many columns of keys.

        Returns:
            The row, (1, features).

        Raises:
            ValueError: It is made for others.
        """
        known = 0 if self.levels is None else self.levels.columns
        if known != key_columns:
            raise ValueError(f"the means of levels take {known} columns")
        inputs = columns + (0 if self.levels is None else self.levels.outputs)
        if self.trees is not None and int(self.trees.inputs[0]) != inputs:
            raise ValueError(f"the trees take {int(self.trees.inputs[0])} features")
        return self.extend(np.zeros((1, columns), np.float32), np.full((1, key_columns), -1))


@dataclass(frozen=True)
class Prepared:
    """What is derived from training rows, and what a net takes of these rows themselves.

    Args:
        derived: What makes features of new rows.
        own: The features of the training rows, by labels of other rows alone, (rows, features).
    """

    derived: Derived
    own: FileArray


def derive(
    x: FileArray,
    y: FileArray,
    loss: str,
    *,
    keys: FileArray | None = None,
    trees: bool = True,
    classes: int = 0,
    seed: int = 0,
    groups: FileArray | None = None,
    weights: FileArray | None = None,
    sizes: tuple[TreeSize, ...] | None = None,
) -> Prepared:
    """Derive features of training rows: means of levels in folds, and trees in the same folds.

    Args:
        x: Finite features in single precision, (rows, columns).
        y: As in `boost`.
        loss: As in `boost`.
        keys: The numbers of the levels, (rows, key columns), −1 for unknown ones; None: no keys.
        trees: Whether trees are grown.
        classes: The number of classes, where labels are classes.
        seed: Seeds folds and trees.
        groups: Rows with the same number stay in one fold.
        weights: What each row counts.
        sizes: The sizes of trees to try; None: those that suit the number of rows.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x, keys = rng.normal(size=(300, 2)).astype(np.float32), rng.integers(0, 60, (300, 1))
        >>> made = derive(x, np.sin(keys[:, 0]), "squared_error", keys=keys)
        >>> made.own.shape, made.derived.extend(x, keys).shape
        ((300, 4), (300, 4))
    """
    folds = None
    if keys is not None and keys.shape[1]:
        fold_of = tree_folds(y, loss, seed, groups)
        folds = LevelFolds(keys, y, loss, fold_of, classes=classes, weights=weights, x=x)
    own, grown = x, None
    if folds is not None:
        everyone = np.full(len(x), True)
        own = np.concatenate([own, folds.held_out(everyone)], axis=1).astype(np.float32)
    if trees:
        # The trees that predict a fold see means of levels without its labels, in their own rows,
        # too: else these rows' means, less those of the fold, would tell them of its labels.
        grown, held_out = boost(
            x,
            y,
            loss,
            seed=seed,
            groups=groups,
            weights=weights,
            sizes=sizes,
            further=None if folds is None else folds.held_out,
        )
        own = np.concatenate([own, held_out], axis=1).astype(np.float32)
    return Prepared(Derived(None if folds is None else folds.means, grown), own)
