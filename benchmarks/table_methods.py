"""What one would pick for a table with uncertainty: the methods of `table_rivals.py`.

A method takes training and test rows and gives, at the test rows, a distribution of a quantity or
the probabilities of the classes. Those that give no distribution get one as users do: a forest and
plain CatBoost are Gaussian around their prediction with the mean squared error of out-of-bag, or
out-of-fold, rows; quantiles of boosting give the ends of the interval, made conformal by MAPIE, and
a sd of a quarter of its width, about.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.model_selection import KFold
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from table_cases import Split

from headstart import metrics
from headstart.predictive import Predictive
from headstart.tabular.fit import fit_table
from headstart.tabular.run import TableRun
from headstart.training.recipe import Recipe

Array = np.ndarray
Z = 1.959964
GP_ROWS, MEMBERS = 1000, 5
Settings = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a method says of the test rows of a quantity.

    Args:
        mean: The prediction.
        nll: The negative log-likelihood of each label.
        low, high: The ends of the 95 % intervals.
        crps: The continuous ranked probability score of each label.
    """

    mean: Array
    nll: Array
    low: Array
    high: Array
    crps: Array


def gaussian(mean: Array, sd: Array, y: Array, ends: tuple[Array, Array] | None = None) -> Answer:
    """A Gaussian at every row, with its own interval unless `ends` says another."""
    z = (y - mean) / sd
    crps = sd * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi))
    low, high = ends or (mean - Z * sd, mean + Z * sd)
    return Answer(mean, -stats.norm.logpdf(y, mean, sd), low, high, crps)


def poisson(rate: Array, y: Array) -> Answer:
    """A Poisson distribution at every row."""
    rate = np.maximum(rate, 1e-6)
    counts = np.arange(int(max(y.max(), stats.poisson.ppf(1 - 1e-6, rate.max()))) + 1)
    below = stats.poisson.cdf(counts[None], rate[:, None])
    crps = ((below - (counts[None] >= y[:, None])) ** 2).sum(1)
    ends = (stats.poisson.ppf(level, rate) for level in (0.025, 0.975))
    return Answer(rate, -stats.poisson.logpmf(y, rate), *ends, crps)


def ours(split: Split, seed: int, settings: Settings) -> Answer | Array:
    """`headstart fit` at its defaults, every training row learned from."""
    return answer_of(our_run(split, seed, settings), split)


def our_run(split: Split, seed: int, settings: Settings) -> TableRun:
    """What `headstart fit` learns from the training rows."""
    recipe = Recipe(seed=seed, **settings)
    task = "classification" if split.task == "classification" else "regression"
    return fit_table(split.train, "target", task=task, recipe=recipe, test_share=0.0)


def answer_of(run: TableRun, split: Split) -> Answer | Array:
    """What a run says of the test rows."""
    pred = run.predict(split.test)
    if split.task == "classification":
        return pred.probs.double().numpy()
    y = torch.tensor(split.y_test, dtype=torch.float64)
    low, high = (end[:, 0].double().numpy() for end in pred.interval(0.95))
    return Answer(
        pred.mean[:, 0].double().numpy(),
        -pred.log_prob(y).double().numpy(),
        low,
        high,
        crps(run, pred, y).numpy(),
    )


def crps(run: TableRun, pred: Predictive, y: torch.Tensor) -> torch.Tensor:
    """The CRPS of each label, by a draw of y for each draw of the net."""
    with torch.random.fork_rng([]):
        torch.manual_seed(run.seed)
        return metrics.crps(pred.likelihood.sample(pred.draws)[..., 0], y).double()


def numbers(split: Split) -> tuple[Array, Array]:
    """Standardized numbers: categories one-hot, missing values the median and said so."""
    x, x_test = (part.drop(columns="target") for part in (split.train, split.test))
    plain = [name for name in x if pd.api.types.is_numeric_dtype(x[name])]
    rest = [name for name in x if name not in plain]
    filled = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    both = make_column_transformer((filled, plain), (hot, rest))
    return both.fit_transform(x.astype(dict.fromkeys(plain, float))), both.transform(
        x_test.astype(dict.fromkeys(plain, float))
    )


def categories(split: Split) -> tuple[pd.DataFrame, pd.DataFrame, list[bool]]:
    """Columns of strings as numbers of categories that the training rows have, and which they are.

    Boosting takes them for categories where it is told so; MAPIE tries a model on numbers, and
    refuses one that takes pandas' categories.
    """
    x, x_test = (part.drop(columns="target").copy() for part in (split.train, split.test))
    named = [not pd.api.types.is_numeric_dtype(x[name]) for name in x]
    for name in x.columns[named]:
        known = x[name].astype("category").cat.categories
        for part in (x, x_test):
            codes = pd.Categorical(part[name], categories=known).codes.astype(float)
            part[name] = np.where(codes < 0, np.nan, codes)
    return x, x_test, named


def scaled(split: Split) -> tuple[Array, float, float]:
    """Labels that are standardized, their mean and their sd."""
    y = split.y.astype(float)
    return (y - y.mean()) / y.std(), float(y.mean()), float(y.std())


def ridge(split: Split, seed: int, settings: Settings) -> Answer | Array:
    """Linear: BayesianRidge, or LogisticRegression."""
    x, x_test = numbers(split)
    if split.task == "classification":
        return LogisticRegression(max_iter=2000, **settings).fit(x, split.y).predict_proba(x_test)
    mean, sd = BayesianRidge(**settings).fit(x, split.y).predict(x_test, return_std=True)
    return gaussian(mean, sd, split.y_test)


def process(split: Split, seed: int, settings: Settings) -> Answer | Array:
    """A Gaussian process of at most `GP_ROWS` rows, half of that for classes."""
    x, x_test = numbers(split)
    classes = split.task == "classification"
    rows = np.random.default_rng(seed).permutation(len(x))[: GP_ROWS // 2 if classes else GP_ROWS]
    if classes:
        model = GaussianProcessClassifier(RBF(3.0), random_state=seed)
        return model.fit(x[rows], split.y[rows]).predict_proba(x_test)
    y, center, scale = scaled(split)
    kernel = ConstantKernel() * RBF(np.full(x.shape[1], 3.0), (1e-2, 1e3)) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, random_state=seed).fit(x[rows], y[rows])
    mean, sd = model.predict(x_test, return_std=True)
    return gaussian(center + scale * mean, scale * sd, split.y_test)


def forest(split: Split, seed: int, settings: Settings) -> Answer | Array:
    """200 trees; the noise of a quantity is the out-of-bag error."""
    x, x_test = numbers(split)
    options = {"n_estimators": 200, "random_state": seed, **settings}
    if split.task == "classification":
        return RandomForestClassifier(**options).fit(x, split.y).predict_proba(x_test)
    model = RandomForestRegressor(oob_score=True, **options).fit(x, split.y)
    sd = math.sqrt(np.mean((split.y - model.oob_prediction_) ** 2))
    mean = model.predict(x_test)
    return gaussian(mean, np.full_like(mean, sd), split.y_test)


def boosting(split: Split, seed: int, settings: Settings) -> Answer | Array:
    """HistGradientBoosting; of a quantity the mean, and quantiles that MAPIE makes conformal."""
    x, x_test, named = categories(split)
    options = {"random_state": seed, "categorical_features": named, **settings}
    if split.task == "classification":
        model = HistGradientBoostingClassifier(**options)
        return model.fit(x, split.y).predict_proba(x_test)
    if split.task == "count":
        model = HistGradientBoostingRegressor(loss="poisson", **options)
        return poisson(model.fit(x, split.y).predict(x_test), split.y_test)
    mapie = importlib.import_module("mapie.regression")
    order = np.random.default_rng(seed).permutation(len(x))
    held, rest = order[: len(x) // 5], order[len(x) // 5 :]
    quantiles = [
        HistGradientBoostingRegressor(loss="quantile", quantile=level, **options).fit(
            x.iloc[rest], split.y[rest]
        )
        for level in (0.025, 0.975, 0.5)
    ]
    conformal = mapie.ConformalizedQuantileRegressor(
        quantiles, confidence_level=0.95, prefit=True
    ).conformalize(x.iloc[held], split.y[held])
    _, ends = conformal.predict_interval(x_test)
    low, high = ends[:, 0, 0], ends[:, 1, 0]
    mean = HistGradientBoostingRegressor(**options).fit(x, split.y).predict(x_test)
    sd = np.maximum((high - low) / (2 * Z), 1e-3 * split.y.std())
    return gaussian(mean, sd, split.y_test, (low, high))


def _catboost(split: Split, seed: int, settings: Settings, loss: str | None) -> Any:
    catboost = importlib.import_module("catboost")
    x, x_test = (part.drop(columns="target") for part in (split.train, split.test))
    named = [name for name in x if not pd.api.types.is_numeric_dtype(x[name])]
    x, x_test = (part.assign(**{n: part[n].fillna("?") for n in named}) for part in (x, x_test))
    options = {
        "random_seed": seed,
        "verbose": False,
        "thread_count": 1,
        "allow_writing_files": False,
        "cat_features": named,
        **settings,
    }
    if loss is None:
        return catboost.CatBoostClassifier(**options), x, x_test
    return catboost.CatBoostRegressor(loss_function=loss, **options), x, x_test


def catboost_uncertain(split: Split, seed: int, settings: Settings) -> Answer | Array:
    """CatBoost with uncertainty: a Gaussian of its own at every row; Poisson for counts."""
    if split.task == "classification":
        model, x, x_test = _catboost(split, seed, settings, None)
        return model.fit(x, split.y).predict_proba(x_test)
    loss = "Poisson" if split.task == "count" else "RMSEWithUncertainty"
    model, x, x_test = _catboost(split, seed, settings, loss)
    if split.task == "count":
        return poisson(model.fit(x, split.y).predict(x_test), split.y_test)
    y, center, scale = scaled(split)
    mean, var = model.fit(x, y).predict(x_test).T
    return gaussian(center + scale * mean, scale * np.sqrt(var), split.y_test)


def catboost_conformal(split: Split, seed: int, settings: Settings) -> Answer:
    """Plain CatBoost; noise and interval from five-fold residuals."""
    model, x, x_test = _catboost(split, seed, settings, "RMSE")
    residuals = np.empty(len(x))
    for train, held in KFold(5, shuffle=True, random_state=seed).split(x):
        fold, _, _ = _catboost(split, seed, settings, "RMSE")
        fold.fit(x.iloc[train], split.y[train])
        residuals[held] = np.abs(split.y[held] - fold.predict(x.iloc[held]))
    mean = model.fit(x, split.y).predict(x_test)
    level = min(1.0, math.ceil(0.95 * (len(residuals) + 1)) / len(residuals))
    width = np.quantile(residuals, level, method="higher")
    sd = np.full_like(mean, math.sqrt(np.mean(residuals**2)))
    return gaussian(mean, sd, split.y_test, (mean - width, mean + width))


def ngboost(split: Split, seed: int, settings: Settings) -> Answer | Array:
    """NGBoost: a Gaussian at every row, Poisson for counts, class probabilities."""
    module, distributions = (importlib.import_module(f"ngboost{end}") for end in ("", ".distns"))
    x, x_test = numbers(split)
    options = {"random_state": seed, "verbose": False, **settings}
    if split.task == "classification":
        kind = distributions.k_categorical(int(split.y.max()) + 1)
        return module.NGBClassifier(Dist=kind, **options).fit(x, split.y).predict_proba(x_test)
    if split.task == "count":
        model = module.NGBRegressor(Dist=distributions.Poisson, **options).fit(x, split.y)
        return poisson(model.pred_dist(x_test).params["mu"], split.y_test)
    y, center, scale = scaled(split)
    found = module.NGBRegressor(**options).fit(x, y).pred_dist(x_test).params
    return gaussian(center + scale * found["loc"], scale * found["scale"], split.y_test)


def networks(split: Split, seed: int, settings: Settings) -> Answer | Array:
    """Five MLPs, each stopped on a tenth of the rows; the noise is their squared error there."""
    x, x_test = numbers(split)
    options = {
        "hidden_layer_sizes": (100, 100),
        "early_stopping": True,
        "max_iter": 200,
        **settings,
    }
    if split.task == "classification":
        nets = (MLPClassifier(random_state=MEMBERS * seed + k, **options) for k in range(MEMBERS))
        return np.mean([net.fit(x, split.y).predict_proba(x_test) for net in nets], 0)
    y, center, scale = scaled(split)
    order = np.random.default_rng(seed).permutation(len(y))
    held, rest = order[: len(y) // 10], order[len(y) // 10 :]
    found = [
        MLPRegressor(random_state=MEMBERS * seed + k, **options).fit(x[rest], y[rest])
        for k in range(MEMBERS)
    ]
    errors = np.mean([net.predict(x[held]) for net in found], 0) - y[held]
    draws = np.stack([net.predict(x_test) for net in found])
    sd = np.sqrt(draws.var(0) + np.mean(errors**2))
    return gaussian(center + scale * draws.mean(0), scale * sd, split.y_test)


Method = Callable[[Split, int, Settings], Answer | Array]
OURS = "headstart"
METHODS: dict[str, Method] = {
    OURS: ours,
    "CatBoost": catboost_uncertain,
    "CatBoost, conformal": catboost_conformal,
    "NGBoost": ngboost,
    "HistGradientBoosting": boosting,
    "RandomForest": forest,
    f"{MEMBERS} MLPs": networks,
    "linear": ridge,
    "GaussianProcess": process,
}
SEARCHES: dict[str, dict[str, tuple[Any, ...]]] = {
    "CatBoost": {
        "learning_rate": (0.02, 0.05, 0.1, 0.2),
        "depth": (4, 6, 8),
        "iterations": (200, 500, 1000, 2000),
        "l2_leaf_reg": (1, 3, 10),
    },
    "NGBoost": {
        "learning_rate": (0.01, 0.03, 0.1),
        "n_estimators": (200, 500, 1000),
        "minibatch_frac": (0.5, 1.0),
        "col_sample": (0.5, 1.0),
    },
    "HistGradientBoosting": {
        "learning_rate": (0.02, 0.05, 0.1, 0.2),
        "max_iter": (100, 300, 1000),
        "max_leaf_nodes": (7, 15, 31, 63),
        "min_samples_leaf": (5, 20, 50),
    },
    "RandomForest": {
        "min_samples_leaf": (1, 2, 5, 10),
        "max_features": (0.33, 0.66, 1.0),
    },
    f"{MEMBERS} MLPs": {
        "hidden_layer_sizes": ((50,), (100, 100), (200, 200, 200)),
        "alpha": (1e-5, 1e-4, 1e-2, 1.0),
        "learning_rate_init": (1e-3, 3e-3, 1e-2),
    },
}
"""What a random search may try, of methods that have something to tune."""
SEARCHES["CatBoost, conformal"] = SEARCHES["CatBoost"]
