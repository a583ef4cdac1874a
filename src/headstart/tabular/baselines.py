"""What simple models make of the same rows: the common answer, a linear model, boosting."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from headstart.tabular.columns import Matrix
from headstart.tabular.schema import Schema

MAX_BASELINE_ROWS = 20_000
"""Training rows that the other models get, from all over the table."""
BOOSTING_ROUNDS, MAX_BOOSTED_CLASSES = 100, 10
"""Rounds of boosting; with more classes than that, a fifth of them."""
MIN_PROBABILITY = 1e-3
"""What a baseline's probability of a class is at least: a zero would be infinitely wrong."""


def baseline_losses(
    schema: Schema, learned: pd.DataFrame, tested: pd.DataFrame, y: Tensor, y_test: Tensor
) -> dict[str, Matrix]:
    """By the name of a model, its loss in each test row: squared error, or −log probability."""
    count = min(len(learned), MAX_BASELINE_ROWS)
    few = np.linspace(0, len(learned) - 1, count).round().astype(int)
    x, x_test = schema.encode(learned.iloc[few]), schema.encode(tested)
    labels, truth = y.numpy()[few], y_test.numpy()
    classes = len(schema.target.classes)
    if not classes:
        found = {name: _trained(model, x, labels).predict(x_test) for name, model in _regressors()}
        found["always the mean"] = np.full(len(truth), labels.mean())
        return {name: np.square(said - truth) for name, said in found.items()}
    common = np.bincount(labels, minlength=classes) / len(labels)
    losses = {"the classes' frequencies": _log_loss(np.tile(common, (len(truth), 1)), truth)}
    seen = np.bincount(labels)
    # Of one class there is nothing to tell; of a single row none can be spared to stop early.
    several, spare = (seen > 0).sum() > 1, seen[seen > 0].min() > 1
    for name, model in _classifiers(classes, spare) if several else ():
        probs = np.zeros((len(truth), classes))
        probs[:, np.unique(labels)] = _trained(model, x, labels).predict_proba(x_test)
        losses[name] = _log_loss(probs, truth)
    return losses


def _trained(model: Any, x: Matrix, labels: Matrix) -> Any:
    with warnings.catch_warnings():
        # A baseline that has not quite converged is one still.
        warnings.simplefilter("ignore")
        return model.fit(x, labels)


def _log_loss(probs: Matrix, truth: Matrix) -> Matrix:
    chosen = probs[np.arange(len(truth)), truth]
    return -np.log(np.maximum(chosen, MIN_PROBABILITY))


def _regressors() -> list[tuple[str, Any]]:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import RidgeCV

    return [
        ("a linear model", RidgeCV(alphas=np.logspace(-2, 4, 13))),
        ("gradient boosting", HistGradientBoostingRegressor(random_state=0)),
    ]


def _classifiers(classes: int, spare: bool) -> list[tuple[str, Any]]:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    rounds = BOOSTING_ROUNDS // (1 if classes <= MAX_BOOSTED_CLASSES else 5)
    boosting = HistGradientBoostingClassifier(
        random_state=0, max_iter=rounds, early_stopping="auto" if spare else False
    )
    return [("a linear model", LogisticRegression(max_iter=300)), ("gradient boosting", boosting)]
