"""
Conformal intervals around a Bayesian net
=========================================

MAPIE widens or narrows intervals until they cover as many held-out rows as you ask for, even if
the model is wrong.
Here the noise grows with x: intervals of one width cover on average, but are too wide on the left
and too narrow on the right; intervals scaled by the net's own standard deviation follow the noise.
"""

import matplotlib.pyplot as plt
import numpy as np
from mapie.conformity_scores import ResidualNormalisedScore
from mapie.regression import SplitConformalRegressor
from sklearn.base import BaseEstimator, RegressorMixin

from headstart.estimators import BayesianRegressor

rng = np.random.default_rng(0)
X = rng.uniform(0, 4, (900, 1))
y = np.sin(2 * X[:, 0]) + (0.05 + 0.15 * X[:, 0]) * rng.normal(size=900)
(X_train, y_train), (X_held_out, y_held_out), (X_test, y_test) = (
    (X[rows], y[rows]) for rows in (slice(0, 400), slice(400, 600), slice(600, 900))
)

net = BayesianRegressor(
    model="mlp-1x30", steps=300, noise="varying", effort="quick", trees=False, random_state=0
).fit(X_train, y_train)

# %%
# MAPIE takes a fitted estimator as it is, and for intervals of varying width a second one that
# predicts the size of the errors: the standard deviation of the net.


class Spread(RegressorMixin, BaseEstimator):
    fitted_ = True

    def __init__(self, net):
        self.net = net

    def fit(self, X, y):
        return self

    def predict(self, X):
        return self.net.predict(X, return_std=True)[1]


scores = {
    "one width": "absolute",
    "scaled": ResidualNormalisedScore(residual_estimator=Spread(net), prefit=True),
}
intervals = {}
for name, score in scores.items():
    conformal = SplitConformalRegressor(net, confidence_level=0.9, conformity_score=score)
    conformal.conformalize(X_held_out, y_held_out)
    intervals[name] = conformal.predict_interval(X_test)[1][:, :, 0]
intervals["net alone"] = np.stack(net.predict_interval(X_test, level=0.9), 1)

covered, slope = {}, {}
right = X_test[:, 0] > 2
for name, ends in intervals.items():
    inside, width = (ends[:, 0] <= y_test) & (y_test <= ends[:, 1]), ends[:, 1] - ends[:, 0]
    covered[name], slope[name] = inside.mean(), width[right].mean() / width[~right].mean()
    print(
        f"{name:9} covers {inside.mean():.0%}: {inside[~right].mean():.0%} on the left, "
        f"{inside[right].mean():.0%} on the right"
    )

# %%
# Both kinds of conformal intervals cover about what was asked for; only the scaled ones are wide
# where the noise is large.
# The intervals of the net itself were nearly right here; conformal ones also are if a net is not.

figure, axis = plt.subplots(figsize=(7, 3.8), layout="constrained")
order = np.argsort(X_test[:, 0])
place = X_test[order, 0]
axis.scatter(X_test[:, 0], y_test, s=5, color="gray", label="held-out rows")
for name, color in {"one width": "C1", "scaled": "C0"}.items():
    lower, upper = intervals[name][order].T
    axis.plot(place, lower, color, lw=1.2, label=f"{name}: {covered[name]:.0%}")
    axis.plot(place, upper, color, lw=1.2)
axis.set(xlabel="x", ylabel="y")
axis.legend(title="90 % intervals", loc="lower left")
plt.show()

# %%
# Your own data
# -------------
# Keep some hundred rows for ``conformalize`` that ``fit`` has not seen and that are like the rows
# to come: the guarantee holds on average over such rows, not for each of them.
# Classes: ``mapie.classification.SplitConformalClassifier`` around ``BayesianClassifier``.
# ``headstart fit`` calibrates its intervals by held-out rows already.
