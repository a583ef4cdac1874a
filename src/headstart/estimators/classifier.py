"""Classification by a Bayesian net, as scikit-learn has it."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from headstart.errors import HeadstartError
from headstart.estimators.base import MIN_ROWS, BayesianEstimator, NumpyArray, validate_data
from headstart.predictive import Predictive
from headstart.training.labels import ClassLabels


@final
class BayesianClassifier(ClassifierMixin, BayesianEstimator):  # type: ignore[misc]
    """Classification by a Bayesian net; labels of any kind, two classes or more.

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
        noise: Classes have one noise model, `categorical`.
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
        classes_: The classes, sorted.
        model_: The trained net.
        likelihood_: Its likelihood.
        scaler_: Standardizes the inputs.
        trees_: The trees whose features the net takes behind the others, if any.
        recipe_: The recipe with nothing left open.
        report_: What the initializer reported.
        history_: What training reported; its scores are those of the labels as the net sees them.
        reasons_: What was chosen by held-out rows and why, in sentences.
        validation_scores_: Metrics on the held-out rows, in the user's units.

    Example:
        >>> X = np.linspace(-2, 2, 200).reshape(-1, 1)
        >>> y = np.where(X[:, 0] > 0, "warm", "cold")
        >>> net = BayesianClassifier(effort="quick", steps=50, random_state=0).fit(X, y)
        >>> net.predict([[-1.0], [1.0]]), net.predict_proba(X).shape
        (array(['cold', 'warm'], dtype='<U4'), (200, 2))
        >>> unsure = net.predictive([[0.0], [1.5]]).entropy
        >>> bool(unsure[0] > unsure[1])
        True
    """

    def fit(self, X: Any, y: Any) -> BayesianClassifier:
        """Learn from rows and their classes.

        Args:
            X: Features, (rows, features).
            y: Classes, (rows,), of any kind.

        Returns:
            The estimator itself.

        Raises:
            HeadstartError: There is only one class, or a parameter is out of range.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=MIN_ROWS)
        check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise HeadstartError(
                f"Classification needs at least two classes; y holds one class, {self.classes_[0]}."
            )
        self._learn(X, ClassLabels(torch.as_tensor(index), len(self.classes_)))
        return self

    def predict(self, X: Any) -> NumpyArray:
        """The most probable class of each row.

        Args:
            X: Features, (rows, features).

        Returns:
            Classes, (rows,).
        """
        return self._labels(*self._read(X, lambda found: (found.probs.argmax(-1),)))

    def predict_proba(self, X: Any) -> NumpyArray:
        """Class probabilities of each row.

        Args:
            X: Features, (rows, features).

        Returns:
            Probabilities, (rows, classes), in the order of `classes_`.
        """
        (probs,) = self._read(X, lambda found: (found.probs,))
        return probs.numpy()

    def predict_log_proba(self, X: Any) -> NumpyArray:
        """Logarithms of class probabilities, finite also where a probability underflows.

        Args:
            X: Features, (rows, features).

        Returns:
            Log-probabilities, (rows, classes), in the order of `classes_`.
        """
        (log_probs,) = self._read(X, lambda found: (_log_probs(found),))
        return log_probs.numpy()

    def _labels(self, y: Tensor) -> NumpyArray:
        return self.classes_[y.numpy()]


def _log_probs(found: Predictive) -> Tensor:
    """log E_q p of every class, (rows, classes)."""
    rows, classes = found.draws.shape[1:]
    return torch.stack(
        [found.log_prob(torch.full((rows,), label)) for label in range(classes)], dim=1
    )
