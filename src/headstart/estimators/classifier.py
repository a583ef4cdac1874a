"""Classification by a Bayesian net, as scikit-learn has it."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from headstart.errors import HeadstartError
from headstart.estimators.base import BayesianEstimator, NumpyArray, RandomState
from headstart.estimators.tables import as_table, check_labels, learn_schema
from headstart.predictive import Predictive
from headstart.training.labels import ClassLabels
from headstart.training.recipe import Recipe
from headstart.training.weights import scaled_weights


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
        device: Where `fit` trains nets, as torch names it; `partial_fit` and predictions compute
            on the CPU.
        class_weight: What rows of each class count: by class, or `balanced`, as much for every
            class; None: all count alike. Probabilities are then those of rows so weighted.
        predict_samples: Draws of the weights for predictions.
        random_state: Seeds training and predictions alike.
        verbose: Whether to show a progress bar.

    Attributes:
        classes_: The classes, sorted.
        model_: The trained net.
        likelihood_: Its likelihood.
        schema_: What each column was taken for.
        run_: All that predicts, as `headstart fit` keeps it.
        n_features_in_: The number of columns.
        feature_names_in_: Their names, where X was a data frame.
        level_means_: What the target is in the rows of each level of categories with many levels,
            if any: features behind those of the columns.
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
        class_weight: dict[Any, float] | str | None = None,
        predict_samples: int = 64,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            model=model,
            steps=steps,
            batch_size=batch_size,
            samples=samples,
            lr=lr,
            prior=prior,
            posterior=posterior,
            members=members,
            init=init,
            trees=trees,
            noise=noise,
            effort=effort,
            validation=validation,
            folds=folds,
            patience=patience,
            time_limit=time_limit,
            refine=refine,
            device=device,
            predict_samples=predict_samples,
            random_state=random_state,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianClassifier:
        """Learn from rows and their classes.

        Args:
            X: Features, (rows, features): an array of numbers, or a data frame with numbers,
                words, categories, dates and missing cells.
            y: Classes, (rows,), of any kind.
            sample_weight: What each row counts, in proportion; None: all count alike.

        Returns:
            The estimator itself.

        Raises:
            HeadstartError: There is only one class, or a parameter is out of range.
        """
        return self._fit(X, y, None, sample_weight)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> BayesianClassifier:
        """Learn from more rows, what was known before as the prior (`hs.inherit_`).

        Columns and classes stay as the first rows made them. The first call fits.

        Args:
            X: Features, (rows, features).
            y: Classes, (rows,).
            classes: All classes there will be, where the first rows lack some.
            sample_weight: What each row counts, in proportion; None: all count alike.

        Returns:
            The estimator itself.
        """
        if not hasattr(self, "run_"):
            return self._fit(X, y, classes, sample_weight)
        frame = self._table(X)
        labels = check_labels(self, frame, y, min_rows=1)
        index = self._places(labels)
        self._learn_more(frame, torch.as_tensor(index), self._weights(labels, sample_weight))
        return self

    def _fit(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> BayesianClassifier:
        frame = as_table(self, X, reset=True)
        labels = check_labels(self, frame, y)
        check_classification_targets(labels)
        self.classes_ = np.unique(labels if classes is None else classes)
        index, weights = self._places(labels), self._weights(labels, sample_weight)
        counted = labels if weights is None else labels[weights > 0]
        if len(np.unique(counted)) == 1:
            raise HeadstartError(
                f"Classification needs at least two classes; y holds one class, {counted[0]}."
            )
        schema = learn_schema(frame, X, y, tuple(map(str, self.classes_)))
        self._learn(frame, ClassLabels(torch.as_tensor(index), len(self.classes_)), schema, weights)
        return self

    def _places(self, labels: NumpyArray) -> NumpyArray:
        """The place of each label among the classes."""
        new = np.setdiff1d(labels, self.classes_)
        if len(new):
            raise HeadstartError(
                f"y holds the class {new[0]}, which is not among the classes of before: name all "
                "classes in the first call, partial_fit(X, y, classes=...)."
            )
        return np.searchsorted(self.classes_, labels)

    def _weights(self, labels: NumpyArray, sample_weight: Any) -> NumpyArray | None:
        """What each row counts: its own weight times that of its class."""
        if self.class_weight is None and sample_weight is None:
            return None
        own = np.ones(len(labels)) if sample_weight is None else sample_weight
        by_class = compute_sample_weight(self.class_weight, labels)
        return by_class * scaled_weights(own, len(labels)).numpy()

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
