"""scikit-learn estimators: a table in, predictions with their uncertainty out.

Arrays and data frames become features as the tables of `headstart fit` do, and real-valued targets
are standardized inside; whatever comes out is in the user's units. Every prediction of a fitted
estimator uses the same draws of the weights, so that a row's prediction does not depend on the rows
beside it.
"""

from __future__ import annotations

from headstart.estimators.classifier import BayesianClassifier
from headstart.estimators.regressor import BayesianRegressor

__all__ = ["BayesianClassifier", "BayesianRegressor"]
