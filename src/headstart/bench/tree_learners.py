"""Learners of boosted trees, for tables: each step fits twice as many trees from the start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from torch import Tensor

from headstart.bench.deterministic_learners import gaussian_scores
from headstart.bench.quality_curve import DrawScores, Learner
from headstart.bench.quality_rows import LabeledRows, QualityRows, QualityTask
from headstart.bench.variational_learners import LearnerSettings

FIRST_TREES, NORMAL_QUANTILE = 32, 1.959964
FitTrees = Callable[[Any, Any, int], Callable[[Any, Tensor], Tensor]]
"""Inputs, labels and the number of trees, to log p(y) of inputs and labels."""


def _growing(rows: QualityRows, fit: FitTrees) -> Learner:
    x, y = (part.numpy() for part in rows.train)
    labels = y if rows.classes else y[:, 0].astype(np.float64)
    sizes, known = _tree_counts(), dict[str, Callable[[Any, Tensor], Tensor]]()

    def step() -> None:
        known["now"] = fit(x, labels, next(sizes))

    def scores(given: LabeledRows) -> Tensor:
        inputs, wanted = given
        return known["now"](inputs.numpy(), wanted if rows.classes else wanted[:, 0])

    def finish() -> DrawScores:
        return scores

    step()
    return Learner(step, finish, anew=True)


def _tree_counts() -> Iterator[int]:
    size = FIRST_TREES
    while True:
        yield size
        size *= 2


def probability_scores(probs: Any, y: Tensor) -> Tensor:
    """log p(y) of probabilities (rows, classes), or (draws, rows, classes)."""
    known = torch.as_tensor(np.asarray(probs), dtype=torch.float64)
    known = known if known.ndim == 3 else known.unsqueeze(0)
    index = y.expand(known.shape[:-1]).unsqueeze(-1)
    return known.gather(-1, index).squeeze(-1).clamp_min(1e-30).log()


def normal_scores(mean: Any, var: Any, y: Tensor) -> Tensor:
    """log p(y) of normal laws given as arrays."""
    center, spread = (torch.as_tensor(np.asarray(part, dtype=np.float64)) for part in (mean, var))
    return gaussian_scores(center, spread.clamp_min(1e-12), y.double())


def ngboost_learner(task: QualityTask, rows: QualityRows, settings: LearnerSettings) -> Learner:
    """Natural-gradient boosting of a normal law or of classes; the settings are its own."""
    from ngboost import NGBClassifier, NGBRegressor
    from ngboost.distns import k_categorical

    def fit(x: Any, y: Any, trees: int) -> Callable[[Any, Tensor], Tensor]:
        given = {"n_estimators": trees, "verbose": False, **settings}
        if rows.classes:
            classifier = NGBClassifier(Dist=k_categorical(rows.classes), **given).fit(x, y)
            return lambda inputs, labels: probability_scores(
                classifier.predict_proba(inputs), labels
            )
        regressor = NGBRegressor(**given).fit(x, y)

        def score(inputs: Any, labels: Tensor) -> Tensor:
            law = regressor.pred_dist(inputs).params
            return normal_scores(law["loc"], law["scale"] ** 2, labels)

        return score

    return _growing(rows, fit)


def catboost_learner(task: QualityTask, rows: QualityRows, settings: LearnerSettings) -> Learner:
    """Its losses with uncertainty, and virtual ensembles; the settings are its own."""
    from catboost import CatBoostClassifier, CatBoostRegressor

    def fit(x: Any, y: Any, trees: int) -> Callable[[Any, Tensor], Tensor]:
        given = {
            "iterations": trees,
            "thread_count": torch.get_num_threads(),
            "posterior_sampling": True,
            "verbose": False,
            "allow_writing_files": False,
            "random_seed": int(torch.initial_seed() % 2**31),
            **settings,
        }
        if not rows.classes:
            regressor = CatBoostRegressor(loss_function="RMSEWithUncertainty", **given).fit(x, y)

            def score(inputs: Any, labels: Tensor) -> Tensor:
                # Mean, ignorance, noise.
                found = regressor.virtual_ensembles_predict(
                    inputs, prediction_type="TotalUncertainty"
                )
                return normal_scores(found[:, 0], found[:, 1] + found[:, 2], labels)

            return score
        classifier = CatBoostClassifier(loss_function="MultiClass", **given).fit(x, y)

        def class_score(inputs: Any, labels: Tensor) -> Tensor:
            raw = classifier.virtual_ensembles_predict(inputs, prediction_type="VirtEnsembles")
            draws = torch.as_tensor(np.asarray(raw)).transpose(0, 1).softmax(-1)
            return probability_scores(draws, labels)

        return class_score

    return _growing(rows, fit)


def quantile_learner(task: QualityTask, rows: QualityRows, settings: LearnerSettings) -> Learner:
    """scikit-learn's boosting: a mean and two quantiles, as of a normal law; or classes."""

    def fit(x: Any, y: Any, trees: int) -> Callable[[Any, Tensor], Tensor]:
        given = {"max_iter": trees, "early_stopping": False, "random_state": 0, **settings}
        if rows.classes:
            classifier = HistGradientBoostingClassifier(**given).fit(x, y)
            return lambda inputs, labels: probability_scores(
                classifier.predict_proba(inputs), labels
            )
        middle = HistGradientBoostingRegressor(**given).fit(x, y)
        low, high = (
            HistGradientBoostingRegressor(loss="quantile", quantile=level, **given).fit(x, y)
            for level in (0.025, 0.975)
        )

        def score(inputs: Any, labels: Tensor) -> Tensor:
            width = np.maximum(high.predict(inputs) - low.predict(inputs), 1e-3)
            sd = width / (2 * NORMAL_QUANTILE)
            return normal_scores(middle.predict(inputs), sd**2, labels)

        return score

    return _growing(rows, fit)
