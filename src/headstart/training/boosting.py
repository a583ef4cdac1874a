"""Gradient-boosted trees of several folds, whose out-of-fold predictions a net takes as features.

scikit-learn grows the trees; nodes are plain arrays from then on, so that they are saved without
pickle and evaluated by a few lines that give scikit-learn's numbers to the last digit.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from headstart.errors import untrusted
from headstart.storage.files import open_tensors, write_tensors
from headstart.training.folds import assign_folds

FileArray = NDArray[Any]
TREES_KIND = "trees"
FOLDS = 5
"""Parts of the rows: the trees of a part learn from the others and predict it."""
MAX_TREE_ROWS = 100_000
"""Rows beyond which the trees of a fold learn from so many of them, drawn at random."""
MIN_TREE_ROWS = 40
"""Rows below which there are no trees."""
MIN_ROWS_FOR_LARGE = 4000
"""Rows from which on large trees are tried too."""
MAX_LOGIT = 10.0
"""Logits that trees may give to a net: beyond, nothing is learned, and weights would be huge."""
FOLLOWED_TOGETHER = 2**18
"""Pairs of a tree and a row that are followed together."""


class TreeSize(NamedTuple):
    """How large and how many trees are grown."""

    leaves: int
    iterations: int
    rate: float


SIZES = (TreeSize(15, 400, 0.05), TreeSize(31, 300, 0.1))
LARGE = TreeSize(255, 150, 0.1)


@dataclass(frozen=True)
class Boosting:
    """Boosted trees of M models, I iterations and K outputs each, as arrays.

    Nodes of all trees stand one after another, the two children of a node side by side. A leaf is
    its own child.

    Args:
        feature: The column that a node looks at.
        threshold: Rows above it go right.
        child: The left child.
        value: What a leaf adds.
        roots: The first node of each tree, (M, I, K).
        baseline: What every prediction begins with, (M, K).
        depth: Steps from a root to the deepest leaf, (1,).
        inputs: The number of columns, (1,).
    """

    feature: FileArray
    threshold: FileArray
    child: FileArray
    value: FileArray
    roots: FileArray
    baseline: FileArray
    depth: FileArray
    inputs: FileArray

    @property
    def outputs(self) -> int:
        """The number K of features that it gives a net."""
        return int(self.baseline.shape[1])

    def raw(self, x: FileArray) -> FileArray:
        """What each model predicts, as scikit-learn sums it: (M, rows, K).

        Args:
            x: Finite features, (rows, columns).
        """
        x = np.ascontiguousarray(x, dtype=np.float64)
        models, iterations, outputs = self.roots.shape
        found = np.empty((models, len(x), outputs))
        size = max(1, FOLLOWED_TOGETHER // max(1, iterations))
        for start in range(0, len(x), size):
            part = x[start : start + size]
            for model in range(models):
                for output in range(outputs):
                    values = self._follow(self.roots[model, :, output], part)
                    values[0] += self.baseline[model, output]
                    # One tree after another, as scikit-learn adds them up.
                    found[model, start : start + size, output] = np.add.reduce(values, axis=0)
        return found

    def _follow(self, roots: FileArray, x: FileArray) -> FileArray:
        """The value of the leaf that each row reaches in each tree, (trees, rows)."""
        at = np.repeat(roots[:, None], len(x), axis=1)
        cells, first = x.ravel(), np.arange(len(x)) * x.shape[1]
        for _ in range(int(self.depth[0])):
            right = cells[first + self.feature[at]] > self.threshold[at]
            at = self.child[at] + right
        return self.value[at]

    def features(self, x: FileArray) -> FileArray:
        """What a net is given of rows that no tree has seen: the mean of all models, (rows, K).

        Args:
            x: Finite features, (rows, columns).
        """
        return as_features(self.raw(x).mean(0))

    def extend(self, x: FileArray) -> FileArray:
        """The columns and the trees' features behind them.

        The trees see single precision, so that rows fall on the same side of every threshold,
        whatever precision they come in.

        Args:
            x: Finite features, (rows, columns).
        """
        found = self.features(x.astype(np.float32))
        return np.concatenate([x, found.astype(x.dtype)], axis=1)

    def save(self, path: Path) -> None:
        """Write the arrays to a safetensors file.

        Args:
            path: The file.
        """
        tensors = {f.name: torch.from_numpy(getattr(self, f.name).copy()) for f in fields(self)}
        write_tensors(path, tensors, TREES_KIND, {"models": len(self.roots)})

    @classmethod
    def load(cls, path: Path) -> Boosting:
        """Read back what `save` wrote.

        Args:
            path: The file.

        Raises:
            HeadstartError: The file is damaged, or holds something else.
        """
        tensors = open_tensors(path, TREES_KIND).read()
        with untrusted(path, "holds no trees"):
            found = cls(**{name: tensor.numpy() for name, tensor in tensors.items()})
            found.check()
        return found

    def check(self) -> None:
        """Refuse arrays that point outside of themselves."""
        nodes = len(self.feature)
        # A leaf is its own child, and nothing goes to the right of it.
        right = self.child + np.isfinite(self.threshold)
        ends = ((self.child, nodes), (right, nodes), (self.roots, nodes))
        for array, end in (*ends, (self.feature, int(self.inputs[0]))):
            if array.dtype.kind != "i" or not 0 <= array.min() <= array.max() < end:
                raise ValueError("a node points to none")
        if not (len(self.threshold) == len(self.child) == len(self.value) == nodes):
            raise ValueError("its arrays are not of one length")
        if self.roots.shape[::2] != self.baseline.shape or not 0 <= self.depth[0] <= nodes:
            raise ValueError("its arrays are not of one shape")


def as_features(raw: FileArray) -> FileArray:
    """What a net takes of raw predictions: as they are, or log-probabilities of several classes.

    Args:
        raw: Raw predictions, (rows, K); those of classes are logits.
    """
    if raw.shape[1] == 1:
        return np.asarray(np.clip(raw, -MAX_LOGIT, MAX_LOGIT))
    return np.clip(raw - logsumexp(raw, axis=1, keepdims=True), -MAX_LOGIT, 0.0)


def can_boost(y: FileArray, loss: str, *, seed: int = 0, groups: FileArray | None = None) -> bool:
    """Whether there are rows enough, and the trees of every fold see each class, or a count.

    Args:
        y: Labels, (rows,).
        loss: As in `boost`.
        seed: As in `boost`.
        groups: As in `boost`.
    """
    if len(y) < MIN_TREE_ROWS or y.ndim > 1:
        return False
    fold_of = _tree_folds(y, loss, seed, groups)
    seen = [y[fold_of != fold] for fold in np.unique(fold_of)]
    if loss == "log_loss":
        # Classes are numbered without gaps, also by the trees.
        return all(len(np.unique(part)) == y.max() + 1 for part in seen)
    return all(len(part) and (loss != "poisson" or part.sum() > 0) for part in seen)


def _tree_folds(y: FileArray, loss: str, seed: int, groups: FileArray | None) -> FileArray:
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
) -> tuple[Boosting, FileArray]:
    """Grow trees in folds; the held-out rows of all folds choose how many are kept.

    The first fold chooses the size of the trees.

    Args:
        x: Finite features, (rows, columns).
        y: Numbers, counts, or classes 0 to K − 1, (rows,).
        loss: scikit-learn's name of it: `squared_error`, `poisson` or `log_loss`.
        seed: Seeds folds and trees.
        groups: Rows with the same number stay in one fold.
        weights: What each row counts.
        sizes: The sizes to try; None: those that suit the number of rows.

    Returns:
        The trees, and what they say of each row when they have not seen it, (rows, K).

    Example:
        >>> x = np.random.default_rng(0).normal(size=(200, 2))
        >>> trees, held_out = boost(x, np.abs(x[:, 0]), "squared_error")
        >>> held_out.shape, trees.extend(x).shape
        ((200, 1), (200, 3))
    """
    x = np.asarray(x, dtype=np.float64)
    fold_of = _tree_folds(y, loss, seed, groups)
    folds = [fold for fold in range(FOLDS) if (fold_of == fold).any()]
    tried = sizes or (SIZES if len(x) < MIN_ROWS_FOR_LARGE else (*SIZES[1:], LARGE))

    def grow(fold: int, size: TreeSize) -> tuple[Any, FileArray]:
        """A model that has not seen a fold, and what it loses there after each iteration."""
        rows = np.flatnonzero(fold_of != fold)
        if len(rows) > MAX_TREE_ROWS:
            drawn = np.random.default_rng([seed, fold]).choice(rows, MAX_TREE_ROWS, replace=False)
            # The rarest class is among them, too.
            classes = y[rows] if loss == "log_loss" else np.zeros(len(rows))
            rows = np.union1d(drawn, rows[np.unique(classes, return_index=True)[1]])
        counts = None if weights is None else weights[rows]
        model = _new_model(loss, size, seed + fold).fit(x[rows], y[rows], sample_weight=counts)
        held = fold_of == fold
        # Stage by stage: all of them together would take gigabytes on a large table.
        worth = 1.0 if weights is None else weights[held]
        stages = model._staged_raw_predict(x[held])
        return model, np.array([(worth * _losses(each, y[held], loss)).sum() for each in stages])

    first = [grow(folds[0], size) for size in tried]
    best = int(np.argmin([losses.min() for _, losses in first]))
    grown = [first[best], *(grow(fold, tried[best]) for fold in folds[1:])]
    kept = int(np.argmin(sum(losses for _, losses in grown))) + 1
    models = [model for model, _ in grown]
    trees = from_sklearn(models, kept, x.shape[1])
    held_out = np.empty((len(x), trees.outputs))
    for fold, model in zip(folds, models, strict=True):
        stages = model._staged_raw_predict(x[fold_of == fold])
        held_out[fold_of == fold] = next(itertools.islice(stages, kept - 1, None))
    return trees, as_features(held_out)


def _new_model(loss: str, size: TreeSize, seed: int) -> Any:
    options: dict[str, Any] = {
        "learning_rate": size.rate,
        "max_iter": size.iterations,
        "max_leaf_nodes": size.leaves,
        "min_samples_leaf": 5,
        "early_stopping": False,
        "random_state": seed,
    }
    if loss == "log_loss":
        return HistGradientBoostingClassifier(**options)
    return HistGradientBoostingRegressor(loss=loss, **options)


def _losses(raw: FileArray, y: FileArray, loss: str) -> FileArray:
    """What each row loses by a raw prediction, constants left out."""
    if loss == "squared_error":
        return np.asarray((y - raw[:, 0]) ** 2)
    if loss == "poisson":
        return np.asarray(np.exp(raw[:, 0]) - y * raw[:, 0])
    logits = np.concatenate([np.zeros_like(raw), raw], 1) if raw.shape[1] == 1 else raw
    chosen = np.take_along_axis(logits, y.astype(int)[:, None], 1)[:, 0]
    return np.asarray(logsumexp(logits, axis=1) - chosen)


def from_sklearn(models: list[Any], iterations: int, inputs: int) -> Boosting:
    """The first iterations of fitted models of scikit-learn, as arrays.

    Args:
        models: Fitted `HistGradientBoosting` regressors or classifiers, without categories.
        iterations: How many iterations of each are kept.
        inputs: The number of columns.
    """
    parts: list[Mapping[str, FileArray]] = []
    roots, start, depth = [], 0, 0
    for model in models:
        for trees in model._predictors[:iterations]:
            for tree in trees:
                part = _renumbered(tree.nodes, start)
                roots.append(start)
                parts.append(part)
                start += len(part["feature"])
                depth = max(depth, int(tree.nodes["depth"].max()))
    baseline = np.stack([np.ravel(model._baseline_prediction) for model in models])
    return Boosting(
        **{name: np.concatenate([part[name] for part in parts]) for name in parts[0]},
        roots=np.array(roots, np.int32).reshape(len(models), iterations, -1),
        baseline=baseline.astype(np.float64),
        depth=np.array([depth], np.int32),
        inputs=np.array([inputs], np.int32),
    )


def _renumbered(nodes: FileArray, start: int) -> dict[str, FileArray]:
    """The nodes of one tree by level, so that children stand side by side, from `start` on."""
    order, place = [0], 0
    child = np.empty(len(nodes), np.int32)
    while place < len(order):
        node = nodes[order[place]]
        # Nothing lies above infinity: a leaf leads to itself.
        child[place] = place if node["is_leaf"] else len(order)
        if not node["is_leaf"]:
            order += [int(node["left"]), int(node["right"])]
        place += 1
    sorted_nodes = nodes[order]
    leaf = sorted_nodes["is_leaf"].astype(bool)
    return {
        "feature": np.where(leaf, 0, sorted_nodes["feature_idx"]).astype(np.int32),
        "threshold": np.where(leaf, np.inf, sorted_nodes["num_threshold"]).astype(np.float64),
        "child": (child + start).astype(np.int32),
        "value": np.where(leaf, sorted_nodes["value"], 0.0).astype(np.float64),
    }
