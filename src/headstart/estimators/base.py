"""What the scikit-learn estimators have in common."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from headstart.errors import HeadstartError
from headstart.estimators.tables import as_table
from headstart.kernels.random_state import seeded
from headstart.predictive import Predictive, predict
from headstart.tabular.calibration import Calibration
from headstart.tabular.conformal import FoldModel, conformal_recipe
from headstart.tabular.explain import Importance, explain_rows, explain_table
from headstart.tabular.recalibrate import learn_more
from headstart.tabular.run import TableRun
from headstart.tabular.schema import Schema, unseen_in_words
from headstart.training.labels import Labels
from headstart.training.learn import RecipeResult, learn
from headstart.training.recipe import Recipe

__all__ = ["BayesianEstimator", "NumpyArray"]

MAX_CHUNK_ROWS = 16_384
"""Rows whose draws are held in memory together."""

RECIPE_PARAMETERS = tuple(f.name for f in fields(Recipe) if f.name != "seed")
"""The parameters that are the recipe's."""

MIN_PROFILED_ROWS, MAX_PROFILED_COLUMNS = 10, 200
"""Rows from which on it is kept what they look like, and columns up to which it is."""
UPDATE_STEPS = 300
"""Training steps of `partial_fit` at most."""

NumpyArray = NDArray[Any]
RandomState = int | np.random.RandomState | None


class BayesianEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """The parameters, the columns and the predictive distribution of both estimators.

    Args:
        predict_samples: Draws of the weights for predictions.
        random_state: Seeds training and predictions alike.
        verbose: Whether to show a progress bar.

    The other parameters are those of `headstart.training.recipe.Recipe`.
    """

    def __init__(
        self,
        *,
        model: str | None = Recipe.model,
        steps: int | None = Recipe.steps,
        batch_size: int | None = Recipe.batch_size,
        samples: int = Recipe.samples,
        lr: float | None = Recipe.lr,
        prior: float | str = Recipe.prior,
        posterior: str = Recipe.posterior,
        members: int | None = Recipe.members,
        init: str = Recipe.init,
        trees: bool | None = Recipe.trees,
        noise: str | None = Recipe.noise,
        effort: str = Recipe.effort,
        validation: float = Recipe.validation,
        folds: int | None = Recipe.folds,
        patience: int | None = Recipe.patience,
        time_limit: float | None = Recipe.time_limit,
        refine: bool = Recipe.refine,
        device: str = Recipe.device,
        predict_samples: int = 64,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.steps = steps
        self.batch_size = batch_size
        self.samples = samples
        self.lr = lr
        self.prior = prior
        self.posterior = posterior
        self.members = members
        self.init = init
        self.trees = trees
        self.noise = noise
        self.effort = effort
        self.validation = validation
        self.folds = folds
        self.patience = patience
        self.time_limit = time_limit
        self.refine = refine
        self.device = device
        self.predict_samples = predict_samples
        self.random_state = random_state
        self.verbose = verbose

    @abstractmethod
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianEstimator:
        """Learn from rows and their labels.

        Args:
            X: Features, (rows, features): an array of numbers, or a data frame as it is.
            y: A label for each row.
            sample_weight: What each row counts; None: all count alike.
        """

    @abstractmethod
    def predict(self, X: Any) -> Any:
        """The best single answer for each row.

        Args:
            X: Features, (rows, features).
        """

    @abstractmethod
    def _labels(self, y: Tensor) -> NumpyArray:
        """The likelihood's labels, (..., rows) or (..., rows, outputs), as the user gave theirs."""

    def inputs(self, X: Any) -> Tensor:
        """What the net takes of each row: features of its columns, then derived ones.

        Args:
            X: Features, (rows, features).
        """
        frame = self._table(X)
        return self.run_.inputs(frame)

    def predictive(self, X: Any) -> Predictive:
        """The predictive distribution of rows, as tensors.

        Args:
            X: Features, (rows, features).

        Returns:
            The distribution, with its `epistemic_std`, `aleatoric_std`, `entropy`,
            `mutual_information` and more.
        """
        return self._predictive(self.inputs(X), self.predict_samples, self.seed_)

    def sample(self, X: Any, n_samples: int = 100, random_state: RandomState = None) -> NumpyArray:
        """Draw labels from the predictive distribution, noise included.

        A draw is one function, evaluated at all rows: doubt about the weights moves its rows
        together.

        Args:
            X: Features, (rows, features).
            n_samples: How many draws.
            random_state: Seeds them.

        Returns:
            Labels, (n_samples, rows) or (n_samples, rows, outputs).
        """
        x = self.inputs(X)
        with seeded(_random_seed(random_state)):
            drawn = self._predictive(x, n_samples, None)
            draws = drawn.draws
            if len(draws) > n_samples:
                # Members have as many draws each: some of them at random are too many.
                draws = draws[torch.randperm(len(draws))[:n_samples]]
            return self._labels(drawn.likelihood.sample(draws))

    def explain(self, X: Any) -> pd.DataFrame:
        """What each column does to each row, as `headstart explain` has it.

        Args:
            X: Features, (rows, features).

        Returns:
            A line for each row: the prediction `value` (of classes the probability of the
            predicted one), its `epistemic` part, and for each column `effect_<column>` on the one
            and `doubt_<column>` on the other.
        """
        found = explain_rows(self._profiled_run(), self._table(X)).frame()
        return found.set_axis(X.index, axis=0) if isinstance(X, pd.DataFrame) else found

    def importances(self, X: Any) -> list[Importance]:
        """Which columns move predictions of a table and which their uncertainty.

        Args:
            X: Features of rows that were not learned from, (rows, features).

        Returns:
            An entry for each column, the one that moves predictions most first.
        """
        return explain_table(self._profiled_run(), self._table(X), seed=self.seed_)

    def unlike_training(self, X: Any) -> NumpyArray:
        """Whether each row is unlike the training data, at a rate of false alarms of 1 %.

        Args:
            X: Features, (rows, features).

        Returns:
            A truth value for each row, (rows,).
        """
        strange = self._profiled_run().compare(self._table(X))
        assert strange is not None
        return np.asarray(strange.flags)

    def _profiled_run(self) -> TableRun:
        """The fitted run, where it is known what its training rows look like."""
        check_is_fitted(self)
        if self.run_.familiarity is None:
            raise HeadstartError(
                f"Explanations compare with training rows, which are kept from {MIN_PROFILED_ROWS} "
                f"rows on, for one target and up to {MAX_PROFILED_COLUMNS} columns."
            )
        return self.run_

    def _learn(
        self,
        frame: pd.DataFrame,
        labels: Labels,
        schema: Schema,
        weights: Any,
        folds: Callable[[RecipeResult], tuple[FoldModel, ...]] | None = None,
    ) -> None:
        """Learn from rows whose columns are decided on.

        The net is kept in double precision, for a row's prediction to be the same beside any rows.
        """
        if self.predict_samples < 1:
            raise HeadstartError(f"predict_samples must be at least 1, not {self.predict_samples}.")
        self.seed_ = _random_seed(self.random_state)
        recipe = Recipe(
            **{name: getattr(self, name) for name in RECIPE_PARAMETERS}, seed=self.seed_
        )
        if folds is not None:
            recipe = conformal_recipe(recipe, len(frame))
        left_out = schema.left_out.items()
        unused = [f"The column {name!r} is not used: it {why}." for name, why in left_out]
        for sentence in [*schema.warnings, *unused]:
            warnings.warn(sentence, stacklevel=3)
        x = schema.encode(frame)
        found = learn(
            x,
            labels,
            recipe,
            weights=weights,
            keys=schema.keys(frame),
            progress=self.verbose,
        )
        run = TableRun(
            found.model.double(),
            found.likelihood,
            schema,
            Calibration(),
            self.seed_,
            {},
            found.derived,
            () if folds is None else folds(found),
            samples=self.predict_samples,
        )
        one = labels.y.ndim == 1
        if one and len(frame) >= MIN_PROFILED_ROWS and frame.shape[1] <= MAX_PROFILED_COLUMNS:
            run.learn_familiarity_(frame)
        self._keep(run)
        self.recipe_, self.report_, self.history_ = found.recipe, found.report, found.history
        self.reasons_, self.validation_scores_ = found.reasons, found.scores

    def _keep(self, run: TableRun) -> None:
        self.run_, self.schema_ = run, run.schema
        self.model_, self.likelihood_ = run.model, run.likelihood
        self.trees_, self.level_means_ = run.derived.trees, run.derived.levels

    def _learn_more(self, frame: pd.DataFrame, y: Tensor, weights: Any) -> None:
        """Learn from more rows, what was known before as the prior (`hs.inherit_`)."""
        if self.run_.folds:
            raise HeadstartError(
                "partial_fit cannot keep conformal intervals: the nets of the folds have not seen "
                "the new rows. Fit with conformal=False, or fit all rows anew."
            )
        steps = min(self.recipe_.steps or UPDATE_STEPS, UPDATE_STEPS)
        x = self.run_.inputs(frame)
        self._keep(learn_more(self.run_, x, y, steps=steps, seed=self.seed_, weights=weights))

    def _table(self, X: Any) -> pd.DataFrame:
        """New rows as a table; values of a kind that training has not seen are told."""
        check_is_fitted(self)
        frame = as_table(self, X, reset=False)
        for sentence in unseen_in_words(self.schema_.unseen(frame)):
            warnings.warn(sentence, stacklevel=4)
        return frame

    def _predictive(self, x: Tensor, samples: int, seed: int | None) -> Predictive:
        return predict(self.model_, self.likelihood_, x, samples, sampler="weights", seed=seed)

    def _read(
        self, X: Any, reading: Callable[[Predictive], tuple[Tensor, ...]]
    ) -> tuple[Tensor, ...]:
        """What `reading` takes from the predictive distribution, row by row.

        The draws of all rows are never in memory at once.
        """
        chunks = self.inputs(X).split(MAX_CHUNK_ROWS)
        parts = [reading(self._predictive(x, self.predict_samples, self.seed_)) for x in chunks]
        return tuple(torch.cat(part) for part in zip(*parts, strict=True))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags


def chunks_of(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """A table in parts whose draws can be held in memory.

    Args:
        frame: The table.
    """
    for start in range(0, len(frame), MAX_CHUNK_ROWS):
        yield frame.iloc[start : start + MAX_CHUNK_ROWS]


def _random_seed(random_state: RandomState) -> int:
    return int(check_random_state(random_state).randint(2**31 - 1))
