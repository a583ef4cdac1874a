"""Gradient-boosted trees as arrays: saved without pickle, evaluated as scikit-learn does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp

from headstart.errors import untrusted
from headstart.storage.files import open_tensors, write_tensors

FileArray = NDArray[Any]
TREES_KIND = "trees"
MAX_LOGIT = 10.0
"""Logits that trees may give to a net: beyond, nothing is learned, and weights would be huge."""
FOLLOWED_TOGETHER = 2**18
"""Pairs of a tree and a row that are followed together."""


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
        logits: Whether several outputs are logits of classes, not of several targets, (1,).
    """

    feature: FileArray
    threshold: FileArray
    child: FileArray
    value: FileArray
    roots: FileArray
    baseline: FileArray
    depth: FileArray
    inputs: FileArray
    # Files from before there were trees of several targets do not say.
    logits: FileArray = field(default_factory=lambda: np.ones(1, np.int32))

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
        return as_features(self.raw(x).mean(0), logits=bool(self.logits[0]))

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


def as_features(raw: FileArray, *, logits: bool) -> FileArray:
    """What a net takes of raw predictions: as they are, or log-probabilities of several classes.

    Args:
        raw: Raw predictions, (rows, K).
        logits: Whether they are logits of classes.
    """
    if raw.shape[1] == 1 or not logits:
        return np.asarray(np.clip(raw, -MAX_LOGIT, MAX_LOGIT))
    return np.clip(raw - logsumexp(raw, axis=1, keepdims=True), -MAX_LOGIT, 0.0)


def from_sklearn(
    models: list[Any], iterations: int, inputs: int, *, logits: bool = True
) -> Boosting:
    """The first iterations of fitted models of scikit-learn, as arrays.

    Args:
        models: Fitted `HistGradientBoosting` regressors or classifiers, without categories.
        iterations: How many iterations of each are kept.
        inputs: The number of columns.
        logits: Whether several outputs are logits of classes.
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
        logits=np.array([logits], np.int32),
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
