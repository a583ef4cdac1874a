"""Regression by a Bayesian net, as scikit-learn has it."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
from sklearn.base import MultiOutputMixin, RegressorMixin
from torch import Tensor

from headstart.estimators.base import MIN_ROWS, BayesianEstimator, NumpyArray, validate_data
from headstart.likelihoods import Gaussian

NOISE_FRACTION = 0.1
"""The fraction of a target's variance that is taken for noise at first."""


@final
class BayesianRegressor(RegressorMixin, MultiOutputMixin, BayesianEstimator):  # type: ignore[misc]
    """Regression by a Bayesian net, for one target (rows,) or several (rows, outputs).

    Args:
        model: The net's name in `headstart.models`; None: sized to the data.
        steps: Training steps, 0 to initialize only; None: sized to the data.
        batch_size: Rows of a step; None: sized to the data.
        samples: Draws of the weights for each step.
        lr: The learning rate of Adam, which falls along a cosine.
        prior: The prior's variance, or the name of a prior.
        posterior: The family of the variational posterior.
        members: How many such posteriors, as a mixture that can hold several modes.
        init: The initializer's name.
        validation: The fraction of rows held out for early stopping.
        patience: Evaluations in a row without a better one that end training; None: never.
        time_limit: Seconds for training, about; None: as long as it takes.
        refine: Whether the last layer is solved again after training (`hs.refine_`).
        predict_samples: Draws of the weights for predictions.
        random_state: Seeds training and predictions alike.
        verbose: Whether to show a progress bar.

    Attributes:
        model_: The trained net.
        likelihood_: Its likelihood, with the noise it found in the units of y.
        scaler_: Standardizes the inputs.
        recipe_: The recipe with nothing left open.
        report_: What the initializer reported.
        history_: What training reported; its scores are those of standardized targets.

    Example:
        >>> X = np.linspace(-2, 2, 200).reshape(-1, 1)
        >>> net = BayesianRegressor(steps=50, random_state=0).fit(X, 1000 + 50 * X[:, 0])
        >>> mean, std = net.predict(X, return_std=True)
        >>> lower, upper = net.predict_interval(X, level=0.9)
        >>> bool((lower < mean).all()), bool((mean < upper).all())
        (True, True)
        >>> net.sample(X, 7).shape, net.score(X, mean)
        ((7, 200), 1.0)
    """

    def fit(self, X: Any, y: Any) -> BayesianRegressor:
        """Learn from rows and their targets.

        Args:
            X: Features, (rows, features).
            y: Targets, (rows,) or (rows, outputs).

        Returns:
            The estimator itself.

        Raises:
            HeadstartError: A parameter is out of range.
        """
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
        likelihood = Gaussian([NOISE_FRACTION] * outputs)
        standard, _ = Gaussian().standardize_(columns).regression_targets(columns)
        self._learn(X, standard, likelihood, outputs)
        # Into the user's units only now: single precision would blur y = 1e7 ± 1.
        likelihood.standardize_(columns)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The predictive mean of each row.

        Args:
            X: Features, (rows, features).
            return_std: Whether to return the predictive standard deviation, noise included, too.

        Returns:
            The mean in the shape of y, or the mean and the standard deviation.
        """
        mean, std = self._read(X, lambda found: (found.mean, found.std))
        return (self._labels(mean), self._labels(std)) if return_std else self._labels(mean)

    def predict_interval(self, X: Any, level: float = 0.95) -> tuple[NumpyArray, NumpyArray]:
        """The central predictive interval of each row.

        Args:
            X: Features, (rows, features).
            level: The probability that y lies in it, between 0 and 1.

        Returns:
            Its lower and its upper end, each in the shape of y.

        Raises:
            HeadstartError: The level is not between 0 and 1.
        """
        lower, upper = self._read(X, lambda found: found.interval(level))
        return self._labels(lower), self._labels(upper)

    def _labels(self, y: Tensor) -> NumpyArray:
        return y.reshape(*y.shape[:-1], *self.target_shape_).numpy()
