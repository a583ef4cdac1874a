"""scikit-learn estimators: a table in, predictions with their uncertainty out.

Inputs are standardised inside, and so are real-valued targets; whatever comes out is in the user's units. Every prediction of
a fitted estimator uses the same draws of the weights, so that a row's prediction does not depend on the rows beside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from headstart.errors import HeadstartError
from headstart.likelihoods import Categorical, Gaussian, Likelihood
from headstart.predictive import Predictive, predict
from headstart.training.recipe import Recipe, learn

try:
    from sklearn.utils.validation import validate_data
except ImportError:  # before scikit-learn 1.6

    def validate_data(estimator: Any, *arrays: Any, **options: Any) -> Any:
        return estimator._validate_data(*arrays, **options)


ROWS_AT_ONCE = 16_384
"""Rows whose draws are held in memory together."""

SETTINGS = tuple(f.name for f in fields(Recipe) if f.name != "seed")
"""The parameters that are the recipe's."""

MIN_ROWS = 3
"""Two rows to learn from, one to check."""

NOISE_SHARE = 0.1
"""The share of a target's variance that is taken for noise at first."""

Array = NDArray[Any]
RandomState = int | np.random.RandomState | None

__all__ = ["BayesianClassifier", "BayesianRegressor"]


class BayesianEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """What both estimators share: the parameters, standardised inputs, and the predictive distribution of rows.

    The parameters are those of `Recipe` (`model=None` and the like: sized to the data), `predict_samples` draws of the weights
    for predictions, and `random_state`, which settles training and predictions alike.
    """

    def __init__(
        self,
        *,
        model: str | None = Recipe.model,
        steps: int | None = Recipe.steps,
        batch_size: int | None = Recipe.batch_size,
        samples: int = Recipe.samples,
        lr: float = Recipe.lr,
        prior: float | str = Recipe.prior,
        posterior: str = Recipe.posterior,
        init: str = Recipe.init,
        validation: float = Recipe.validation,
        patience: int | None = Recipe.patience,
        time_limit: float | None = Recipe.time_limit,
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
        self.init = init
        self.validation = validation
        self.patience = patience
        self.time_limit = time_limit
        self.predict_samples = predict_samples
        self.random_state = random_state
        self.verbose = verbose

    @abstractmethod
    def fit(self, X: Any, y: Any) -> BayesianEstimator:
        """Learn from the rows of X and their labels."""

    @abstractmethod
    def predict(self, X: Any) -> Any:
        """The best single answer for each row."""

    @abstractmethod
    def _labels(self, y: Tensor) -> Array:
        """Labels of the likelihood, (..., rows) or (..., rows, outputs), as the user gave theirs."""

    def predictive(self, X: Any) -> Predictive:
        """The predictive distribution at X, as tensors: `epistemic_std`, `aleatoric_std`, `entropy`, `mutual_information`, ..."""
        return self._predictive(self._inputs(X), self.predict_samples, self.seed_)

    def sample(self, X: Any, n_samples: int = 100, random_state: RandomState = None) -> Array:
        """Labels drawn from the predictive distribution, noise included, (n_samples, rows) or (n_samples, rows, outputs).

        A draw is one function, evaluated at all rows: what is uncertain about the weights moves its rows together.
        """
        x = self._inputs(X)
        with torch.random.fork_rng([]):
            torch.manual_seed(_seed(random_state))
            drawn = self._predictive(x, n_samples, None)
            return self._labels(drawn.likelihood.sample(drawn.draws))

    def _learn(self, X: Array, y: Tensor, likelihood: Likelihood, outputs: int) -> None:
        """Standardise X and learn; what was found is kept in double precision, for rows to be equal in whatever company."""
        if self.predict_samples < 1:
            raise HeadstartError(f"predict_samples must be at least 1, not {self.predict_samples}.")
        self.seed_ = _seed(self.random_state)
        recipe = Recipe(**{name: getattr(self, name) for name in SETTINGS}, seed=self.seed_)
        self.scaler_ = StandardScaler().fit(X)
        found = learn(
            self.scaler_.transform(X), y, likelihood, outputs, recipe, progress=self.verbose
        )
        self.model_, self.likelihood_ = found.model.double(), found.likelihood
        self.recipe_, self.report_, self.history_ = found.recipe, found.report, found.history

    def _inputs(self, X: Any) -> Tensor:
        """Rows as the net takes them: checked and standardised."""
        check_is_fitted(self)
        return torch.as_tensor(
            self.scaler_.transform(validate_data(self, X, dtype=np.float64, reset=False))
        )

    def _predictive(self, x: Tensor, samples: int, seed: int | None) -> Predictive:
        return predict(self.model_, self.likelihood_, x, samples, sampler="weights", seed=seed)

    def _read(
        self, X: Any, reading: Callable[[Predictive], tuple[Tensor, ...]]
    ) -> tuple[Tensor, ...]:
        """What `reading` takes from the predictive distribution, row by row, without the draws of all rows in memory at once."""
        chunks = self._inputs(X).split(ROWS_AT_ONCE)
        parts = [reading(self._predictive(x, self.predict_samples, self.seed_)) for x in chunks]
        return tuple(torch.cat(part) for part in zip(*parts, strict=True))


@final
class BayesianRegressor(RegressorMixin, MultiOutputMixin, BayesianEstimator):  # type: ignore[misc]
    """Regression by a Bayesian net, for one target (rows,) or several (rows, outputs).

    Fitted: `model_`, `likelihood_` (with the noise it found, in the units of y), `scaler_`, `recipe_`, `report_` on the
    initialisation, and `history_`, whose scores are those of standardised targets.

    Example:
        >>> X = np.linspace(-2, 2, 200).reshape(-1, 1)
        >>> net = BayesianRegressor(steps=50, random_state=0).fit(X, 1000 + 50 * X[:, 0])
        >>> mean, std = net.predict(X, return_std=True)
        >>> lower, upper = net.predict_interval(X, level=0.9)
        >>> bool((lower < mean).all()), bool((mean < upper).all()), net.sample(X, 7).shape, net.score(X, mean)
        (True, True, (7, 200), 1.0)
    """

    def fit(self, X: Any, y: Any) -> BayesianRegressor:
        """Learn from X (rows, features) and y (rows,) or (rows, outputs)."""
        X, y = validate_data(
            self,
            X,
            y,
            dtype=np.float64,
            y_numeric=True,
            multi_output=True,
            ensure_min_samples=MIN_ROWS,
        )
        self.target_shape_ = y.shape[1:]
        columns = torch.tensor(y, dtype=torch.float64).reshape(len(y), -1)
        outputs = columns.shape[1]
        likelihood = Gaussian([NOISE_SHARE] * outputs)
        standard, _ = Gaussian().standardize_(columns).regression_targets(columns)
        self._learn(X, standard, likelihood, outputs)
        likelihood.standardize_(
            columns
        )  # into the user's units only now: single precision would blur y = 1e7 ± 1
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The predictive mean of each row, and with `return_std` its standard deviation, noise included."""
        mean, std = self._read(X, lambda found: (found.mean, found.std))
        return (self._labels(mean), self._labels(std)) if return_std else self._labels(mean)

    def predict_interval(self, X: Any, level: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper end of the central interval that holds y with probability `level`."""
        lower, upper = self._read(X, lambda found: found.interval(level))
        return self._labels(lower), self._labels(upper)

    def _labels(self, y: Tensor) -> Array:
        return y.reshape(*y.shape[:-1], *self.target_shape_).numpy()


@final
class BayesianClassifier(ClassifierMixin, BayesianEstimator):  # type: ignore[misc]
    """Classification by a Bayesian net; labels of any kind, two classes or more.

    Fitted: `classes_`, `model_`, `likelihood_`, `scaler_`, `recipe_`, `report_` on the initialisation, and `history_`.

    Example:
        >>> X = np.linspace(-2, 2, 200).reshape(-1, 1)
        >>> net = BayesianClassifier(steps=50, random_state=0).fit(X, np.where(X[:, 0] > 0, "warm", "cold"))
        >>> net.predict([[-1.0], [1.0]]), net.predict_proba(X).shape
        (array(['cold', 'warm'], dtype='<U4'), (200, 2))
        >>> unsure = net.predictive([[0.0], [1.5]]).entropy
        >>> bool(unsure[0] > unsure[1])
        True
    """

    def fit(self, X: Any, y: Any) -> BayesianClassifier:
        """Learn from X (rows, features) and labels y (rows,)."""
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=MIN_ROWS)
        check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise HeadstartError(
                f"Classification needs at least two classes; y holds one class, {self.classes_[0]}."
            )
        outputs = len(self.classes_)
        self._learn(X, torch.as_tensor(index), Categorical(outputs), outputs)
        return self

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        return self._labels(*self._read(X, lambda found: (found.probs.argmax(-1),)))

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, (rows, classes), in the order of `classes_`."""
        (probs,) = self._read(X, lambda found: (found.probs,))
        return probs.numpy()

    def predict_log_proba(self, X: Any) -> Array:
        """Their logarithms, finite also where a probability is too small for a number."""
        (log_probs,) = self._read(X, lambda found: (_log_probs(found),))
        return log_probs.numpy()

    def _labels(self, y: Tensor) -> Array:
        return self.classes_[y.numpy()]


def _log_probs(found: Predictive) -> Tensor:
    """log E_q p of every class, (rows, classes)."""
    rows, classes = found.draws.shape[1:]
    return torch.stack(
        [found.log_prob(torch.full((rows,), label)) for label in range(classes)], dim=1
    )


def _seed(random_state: RandomState) -> int:
    return int(check_random_state(random_state).randint(2**31 - 1))
