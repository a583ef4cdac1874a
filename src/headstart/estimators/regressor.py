"""Regression by a Bayesian net, as scikit-learn has it."""

from __future__ import annotations

from functools import partial
from typing import Any, final

import pandas as pd
import torch
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from headstart.errors import HeadstartError
from headstart.estimators.base import BayesianEstimator, NumpyArray, RandomState, chunks_of
from headstart.estimators.tables import MIN_ROWS, as_table, check_labels, learn_schema
from headstart.tabular.conformal import fold_models
from headstart.training.labels import number_labels
from headstart.training.recipe import Recipe


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
        device: Where `fit` trains nets, as torch names it; `partial_fit` and predictions compute
            on the CPU.
        conformal: Whether intervals are cross-conformal, by held-out rows (CV+), as those of
            `headstart fit --conformal`.
        predict_samples: Draws of the weights for predictions.
        random_state: Seeds training and predictions alike.
        verbose: Whether to show a progress bar.

    Attributes:
        model_: The trained net.
        likelihood_: Its likelihood, with the noise it found in the units of y.
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
        >>> import numpy as np
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
        conformal: bool = False,
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
        self.conformal = conformal

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianRegressor:
        """Learn from rows and their targets.

        Args:
            X: Features, (rows, features): an array of numbers, or a data frame with numbers,
                words, categories, dates and missing cells.
            y: Targets, (rows,) or (rows, outputs).
            sample_weight: What each row counts, in proportion; None: all count alike.

        Returns:
            The estimator itself.

        Raises:
            HeadstartError: A parameter is out of range.
        """
        frame = as_table(self, X, reset=True)
        numbers, self.target_shape_ = self._numbers(frame, y)
        if self.conformal and numbers.ndim > 1:
            raise HeadstartError("Conformal intervals are of one target: leave conformal out.")
        self._learn(
            frame,
            number_labels(numbers, self.noise),
            learn_schema(frame, X, y),
            sample_weight,
            partial(fold_models, y=numbers) if self.conformal else None,
        )
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianRegressor:
        """Learn from more rows, what was known before as the prior (`hs.inherit_`).

        Columns, units and trees stay as the first rows made them. The first call fits.

        Args:
            X: Features, (rows, features).
            y: Targets, in the shape of the first ones.
            sample_weight: What each row counts, in proportion; None: all count alike.

        Returns:
            The estimator itself.
        """
        if not hasattr(self, "run_"):
            return self.fit(X, y, sample_weight)
        frame = self._table(X)
        numbers, shape = self._numbers(frame, y, min_rows=1)
        if shape != self.target_shape_:
            raise HeadstartError(
                f"The targets of a row had the shape {self.target_shape_}, and now {shape}."
            )
        self._learn_more(frame, numbers, sample_weight)
        return self

    def _numbers(
        self, frame: pd.DataFrame, y: Any, min_rows: int = MIN_ROWS
    ) -> tuple[Tensor, tuple[int, ...]]:
        """Targets in double precision, (rows,) or (rows, outputs), and the shape of a row's."""
        checked = check_labels(self, frame, y, min_rows=min_rows, y_numeric=True, multi_output=True)
        if checked.dtype.kind in "US":
            raise HeadstartError("y holds words: BayesianClassifier predicts classes.")
        numbers = torch.tensor(checked, dtype=torch.float64)
        shape = tuple(numbers.shape[1:])
        return (numbers[:, 0] if shape == (1,) else numbers), shape

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
            level: The probability that y lies in it, between 0 and 1. A conformal interval of
                level 1 − α holds y with a probability of at least 1 − 2α where rows are
                exchangeable, and mostly near 1 − α; with fewer than level / (1 − level) held-out
                rows its ends are infinite.

        Returns:
            Its lower and its upper end, each in the shape of y.

        Raises:
            HeadstartError: The level is not between 0 and 1.
        """
        check_is_fitted(self)
        lower, upper = (
            self._conformal_ends(X, level)
            if self.run_.folds
            else self._read(X, lambda found: found.interval(level))
        )
        return self._labels(lower), self._labels(upper)

    def _conformal_ends(self, X: Any, level: float) -> tuple[Tensor, Tensor]:
        if not 0 < level < 1:
            raise HeadstartError(f"level lies between 0 and 1, not {level}.")
        frame, run = self._table(X), self.run_
        ends = [run.intervals(part, run.predict(part), [level])[level] for part in chunks_of(frame)]
        lower, upper = (torch.cat(side).unsqueeze(1) for side in zip(*ends, strict=True))
        return lower, upper

    def _labels(self, y: Tensor) -> NumpyArray:
        return y.reshape(*y.shape[:-1], *self.target_shape_).numpy()
