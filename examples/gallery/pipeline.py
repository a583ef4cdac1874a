"""
A scikit-learn pipeline with a search
=====================================

The estimators follow the conventions of scikit-learn: pipelines, searches and cross-validation
work, and ``predict(X, return_std=True)`` also returns standard deviations.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline

from headstart.estimators import BayesianRegressor

X, y = load_diabetes(return_X_y=True, as_frame=True)
# A table with missing values.
X = X.mask(np.random.default_rng(0).random(X.shape) < 0.02)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)

# %%
# Inputs and target are standardized inside the estimator.

estimator = BayesianRegressor(
    model="mlp-1x30", steps=60, folds=1, members=1, trees=False, random_state=0
)
pipeline = make_pipeline(SimpleImputer(), estimator)
search = GridSearchCV(
    pipeline,
    {"bayesianregressor__prior": [0.01, 1.0]},
    scoring="neg_root_mean_squared_error",
    cv=2,
)
search.fit(X_train, y_train)
print(search.best_params_)

# %%
# The test rows, sorted by their prediction, each with its 95 % interval.

mean, std = search.best_estimator_.predict(X_test, return_std=True)
rmse = float(np.sqrt(np.mean((mean - y_test) ** 2)))
covered = float(np.mean(np.abs(mean - y_test) < 1.96 * std))
print(f"RMSE {rmse:.1f}, sd of the target {y_test.std():.1f}; {covered:.0%} within 1.96 sd")

figure, axis = plt.subplots(figsize=(7, 3.8), layout="constrained")
order = np.argsort(mean)
place = np.arange(len(order))
axis.errorbar(place, mean[order], 1.96 * std[order], fmt=".", lw=0.6, label="95 % interval")
axis.plot(place, y_test.to_numpy()[order], "k.", ms=3, label="patients")
axis.set(xlabel="held-out patients, by prediction", ylabel="progression of diabetes")
axis.legend(loc="upper left")
plt.show()

# %%
# Your own data
# -------------
# Read a data frame with pandas; ``OneHotEncoder`` and ``SimpleImputer`` are optional, because the
# estimators take categories and missing values as they are.
# Leave out the arguments from ``model`` to ``trees``: they are then chosen on held-out rows, which
# takes longer.
# ``headstart fit table.csv --target y`` does all of it on the command line.
