"""What the scikit-learn estimators have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from headstart.errors import HeadstartError
from headstart.predictive import Predictive, predict
from headstart.training.labels import Labels
from headstart.training.learn import learn
from headstart.training.recipe import Recipe

__all__ = ["MIN_ROWS", "BayesianEstimator", "NumpyArray", "validate_data"]

MAX_CHUNK_ROWS = 16_384
"""Rows whose draws are held in memory together."""

RECIPE_PARAMETERS = tuple(f.name for f in fields(Recipe) if f.name != "seed")
"""The parameters that are the recipe's."""

MIN_ROWS = 3
"""Two rows to learn from, one to check."""

NumpyArray = NDArray[Any]
RandomState = int | np.random.RandomState | None


class BayesianEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """The parameters, the standardized inputs and the predictive distribution of both estimators.

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
        self.predict_samples = predict_samples
        self.random_state = random_state
        self.verbose = verbose

    @abstractmethod
    def fit(self, X: Any, y: Any) -> BayesianEstimator:
        """Learn from rows and their labels.

        Args:
            X: Features, (rows, features).
            y: A label for each row.
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

    def predictive(self, X: Any) -> Predictive:
        """The predictive distribution of rows, as tensors.

        Args:
            X: Features, (rows, features).

        Returns:
            The distribution, with its `epistemic_std`, `aleatoric_std`, `entropy`,
            `mutual_information` and more.
        """
        return self._predictive(self._inputs(X), self.predict_samples, self.seed_)

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
        x = self._inputs(X)
        with torch.random.fork_rng([]):
            torch.manual_seed(_random_seed(random_state))
            drawn = self._predictive(x, n_samples, None)
            draws = drawn.draws
            if len(draws) > n_samples:
                # Members have as many draws each: some of them at random are too many.
                draws = draws[torch.randperm(len(draws))[:n_samples]]
            return self._labels(drawn.likelihood.sample(draws))

    def _learn(self, X: NumpyArray, labels: Labels) -> None:
        """Standardize X and learn.

        The net is kept in double precision, for a row's prediction to be the same beside any rows.
        """
        if self.predict_samples < 1:
            raise HeadstartError(f"predict_samples must be at least 1, not {self.predict_samples}.")
        self.seed_ = _random_seed(self.random_state)
        recipe = Recipe(
            **{name: getattr(self, name) for name in RECIPE_PARAMETERS}, seed=self.seed_
        )
        self.scaler_ = StandardScaler().fit(X)
        found = learn(self.scaler_.transform(X), labels, recipe, progress=self.verbose)
        self.model_, self.likelihood_, self.trees_ = (
            found.model.double(),
            found.likelihood,
            found.trees,
        )
        self.recipe_, self.report_, self.history_ = found.recipe, found.report, found.history
        self.reasons_, self.validation_scores_ = found.reasons, found.scores

    def _inputs(self, X: Any) -> Tensor:
        """Rows as the net takes them: checked, standardized, with what the trees say of them."""
        check_is_fitted(self)
        x = self.scaler_.transform(validate_data(self, X, dtype=np.float64, reset=False))
        return torch.as_tensor(x if self.trees_ is None else self.trees_.extend(x))

    def _predictive(self, x: Tensor, samples: int, seed: int | None) -> Predictive:
        return predict(self.model_, self.likelihood_, x, samples, sampler="weights", seed=seed)

    def _read(
        self, X: Any, reading: Callable[[Predictive], tuple[Tensor, ...]]
    ) -> tuple[Tensor, ...]:
        """What `reading` takes from the predictive distribution, row by row.

        The draws of all rows are never in memory at once.
        """
        chunks = self._inputs(X).split(MAX_CHUNK_ROWS)
        parts = [reading(self._predictive(x, self.predict_samples, self.seed_)) for x in chunks]
        return tuple(torch.cat(part) for part in zip(*parts, strict=True))


def _random_seed(random_state: RandomState) -> int:
    return int(check_random_state(random_state).randint(2**31 - 1))
