"""Regression by a Bayesian net, as scikit-learn has it."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
from sklearn.base import MultiOutputMixin, RegressorMixin
from torch import Tensor

from headstart.estimators.base import MIN_ROWS, BayesianEstimator, NumpyArray, validate_data
from headstart.training.labels import number_labels


@final
class BayesianRegressor(RegressorMixin, MultiOutputMixin, BayesianEstimator):  # type: ignore[misc]
    """Regression by a Bayesian net, for one target (rows,) or several (rows, outputs).

    Args:
        model: The net's name in `headstart.models`; None: sized to the data.
        steps: Training steps at most, 0 to initialize only; None: by effort and rows.
        batch_size: Rows of a step; None: sized to the data.
        samples: Draws of the weights for each step.
        lr: A learning rate of Adam, which falls along a cosine; None: step sizes that follow from
            the net.
        prior: The prior's variance, or the name of a prior.
        posterior: The family of the variational posterior.
        members: How many such posteriors, as a mixture that can hold several modes; None: by
            effort.
        init: The initializer's name.
        trees: Whether the net sees what boosted trees say of each row, out of fold; None: where
            held-out rows are more likely so.
        noise: `constant`, `varying` with the row or `student-t`, of counts `poisson` or
            `negative-binomial`; None: what held-out rows are likeliest by.
        effort: `quick`, `default` or `best`: how much is tried, and how long it is trained.
        validation: The fraction of rows held out, where rows are not held out in folds.
        folds: Into how many folds rows are divided to validate on each once; None: by effort and
            rows.
        patience: Evaluations in a row without a better one that end training; None: until the
            score no longer improves by more than its noise.
        time_limit: Seconds for all of it, about; None: as long as it takes.
        refine: Whether the last layer is solved again after training (`hs.refine_`).
        predict_samples: Draws of the weights for predictions.
        random_state: Seeds training and predictions alike.
        verbose: Whether to show a progress bar.

    Attributes:
        model_: The trained net.
        likelihood_: Its likelihood, with the noise it found in the units of y.
        scaler_: Standardizes the inputs.
        trees_: The trees whose features the net takes behind the others, if any.
        recipe_: The recipe with nothing left open.
        report_: What the initializer reported.
        history_: What training reported; its scores are those of the labels as the net sees them.
        reasons_: What was chosen by held-out rows and why, in sentences.
        validation_scores_: Metrics on the held-out rows, in the user's units.

    Example:
        >>> X = np.linspace(-2, 2, 200).reshape(-1, 1)
        >>> net = BayesianRegressor(effort="quick", steps=50, random_state=0)
        >>> net = net.fit(X, 1000 + 50 * X[:, 0])
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
        numbers = torch.tensor(y, dtype=torch.float64)
        if numbers.ndim == 2 and numbers.shape[1] == 1:
            numbers = numbers[:, 0]
        self._learn(X, number_labels(numbers, self.noise))
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
