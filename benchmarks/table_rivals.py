"""What `headstart fit` is worth beside what one would pick instead, on six tables.

    python benchmarks/table_rivals.py --out docs/results/tables.md

One seed, one thread, each after the other. The tables are read from the folder that HEADSTART_DATA
names.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from tables import table, write_page

from headstart import data, metrics
from headstart.tabular.fit import fit_table
from headstart.training.folds import split_validation

REGRESSION, CLASSIFICATION = ("powerplant", "protein", "diabetes"), ("spam", "eeg", "credit")
GP_ROWS, MEMBERS, Z = 2000, 5, 1.959964
Array = np.ndarray


@dataclass(frozen=True)
class Problem:
    """Training rows, standardized by themselves, and test rows of a table; its frame."""

    name: str
    frame: pd.DataFrame
    train: Array
    test: Array
    x: Array
    y: Array
    x_test: Array
    y_test: Array


def problem(name: str) -> Problem:
    """The same split that `fit_table` makes with seed 0."""
    dataset = data.load(name)
    x, y = dataset.x.double().numpy(), dataset.y.flatten()
    train, test = (
        part.numpy()
        for part in split_validation(y if dataset.task == "classification" else y.float(), 0.1, 1)
    )
    labels = y.numpy() if dataset.task == "classification" else y.double().numpy()
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])]).assign(target=labels)
    mean, sd = x[train].mean(0), x[train].std(0)
    z = (x - mean) / np.where(sd > 0, sd, 1)
    return Problem(name, frame, train, test, z[train], labels[train], z[test], labels[test])


Regressor = Callable[[Problem], tuple[Array, Array, Array, Array]]
"""Mean, standard deviation and the ends of the 95 % interval at the test rows."""


def around(mean: Array, sd: Array) -> tuple[Array, Array, Array, Array]:
    return mean, sd, mean - Z * sd, mean + Z * sd


def ours(noise: str) -> Regressor:
    def predict(given: Problem) -> tuple[Array, Array, Array, Array]:
        run = fit_table(given.frame, "target", task="regression", noise=noise)
        pred = run.predict(given.frame.iloc[given.test])
        low, high = (end[:, 0] for end in pred.interval(0.95))
        return pred.mean[:, 0].numpy(), pred.std[:, 0].numpy(), low.numpy(), high.numpy()

    return predict


def ridge(given: Problem) -> tuple[Array, Array, Array, Array]:
    return around(*BayesianRidge().fit(given.x, given.y).predict(given.x_test, return_std=True))


def some(given: Problem) -> Array:
    return np.random.default_rng(0).permutation(len(given.y))[:GP_ROWS]


def process(given: Problem) -> tuple[Array, Array, Array, Array]:
    rows = some(given)
    kernel = ConstantKernel() * RBF(np.full(given.x.shape[1], 3.0)) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(
        given.x[rows], given.y[rows]
    )
    return around(*model.predict(given.x_test, return_std=True))


def forest(given: Problem) -> tuple[Array, Array, Array, Array]:
    model = RandomForestRegressor(200, oob_score=True, random_state=0).fit(given.x, given.y)
    noise = np.mean((given.y - model.oob_prediction_) ** 2)
    mean = model.predict(given.x_test)
    return around(mean, np.full_like(mean, math.sqrt(noise)))


def boosting(given: Problem) -> tuple[Array, Array, Array, Array]:
    mean = HistGradientBoostingRegressor(random_state=0).fit(given.x, given.y).predict(given.x_test)
    low, high = (
        HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=0)
        .fit(given.x, given.y)
        .predict(given.x_test)
        for q in (0.025, 0.975)
    )
    return mean, np.maximum((high - low) / (2 * Z), 1e-3 * given.y.std()), low, high


def ensemble(given: Problem) -> tuple[Array, Array, Array, Array]:
    """Five nets, each stopped on a tenth of the rows; the noise is their squared error there."""
    held = np.random.default_rng(0).permutation(len(given.y))[: max(1, len(given.y) // 10)]
    rest = np.setdiff1d(np.arange(len(given.y)), held)
    center, scale = given.y[rest].mean(), given.y[rest].std()
    nets = [
        MLPRegressor(
            hidden_layer_sizes=(100, 100), early_stopping=True, max_iter=200, random_state=k
        ).fit(given.x[rest], (given.y[rest] - center) / scale)
        for k in range(MEMBERS)
    ]
    draws = np.stack([net.predict(given.x_test) for net in nets]) * scale + center
    errors = (
        np.mean([net.predict(given.x[held]) for net in nets], 0) * scale + center - given.y[held]
    )
    return around(draws.mean(0), np.sqrt(draws.var(0) + np.mean(errors**2)))


Classifier = Callable[[Problem], Array]
"""Probabilities at the test rows."""


def our_classes(given: Problem) -> Array:
    run = fit_table(given.frame, "target", task="classification")
    return run.predict(given.frame.iloc[given.test]).probs.double().numpy()


def simple(make: Callable[[], Any], max_rows: int | None = None) -> Classifier:
    def predict(given: Problem) -> Array:
        rows = some(given)[:max_rows] if max_rows else slice(None)
        return make().fit(given.x[rows], given.y[rows]).predict_proba(given.x_test)

    return predict


def class_ensemble(given: Problem) -> Array:
    nets = (
        MLPClassifier(
            hidden_layer_sizes=(100, 100), early_stopping=True, max_iter=200, random_state=k
        )
        for k in range(MEMBERS)
    )
    return np.mean([net.fit(given.x, given.y).predict_proba(given.x_test) for net in nets], 0)


REGRESSORS: dict[str, Regressor] = {
    "headstart": ours("constant"),
    "headstart, --noise varying": ours("varying"),
    "BayesianRidge": ridge,
    f"GaussianProcess, {GP_ROWS} rows": process,
    "RandomForest, out-of-bag noise": forest,
    "HistGradientBoosting, quantiles": boosting,
    f"{MEMBERS} MLPs": ensemble,
}
CLASSIFIERS: dict[str, Classifier] = {
    "headstart": our_classes,
    "LogisticRegression": simple(lambda: LogisticRegression(max_iter=2000)),
    "GaussianProcess, 1000 rows": simple(
        lambda: GaussianProcessClassifier(RBF(3.0), random_state=0), 1000
    ),
    "RandomForest": simple(lambda: RandomForestClassifier(200, random_state=0)),
    "HistGradientBoosting": simple(lambda: HistGradientBoostingClassifier(random_state=0)),
    f"{MEMBERS} MLPs": class_ensemble,
}


def regress(given: Problem, model: Regressor) -> list[str]:
    start = time.perf_counter()
    mean, sd, low, high = model(given)
    seconds = time.perf_counter() - start
    error = given.y_test - mean
    rmse = math.sqrt(np.mean(error**2)) / given.y.std()
    mnll = np.mean(0.5 * np.log(2 * np.pi * sd**2) + 0.5 * (error / sd) ** 2)
    covered = np.mean((given.y_test >= low) & (given.y_test <= high))
    width = np.mean(high - low) / given.y.std()
    return [f"{rmse:.4f}", f"{mnll:.3f}", f"{covered:.1%}", f"{width:.2f}", f"{seconds:.1f}"]


def classify(given: Problem, model: Classifier) -> list[str]:
    start = time.perf_counter()
    probs = torch.from_numpy(model(given))
    seconds, y = time.perf_counter() - start, torch.from_numpy(given.y_test)
    chosen = probs.gather(1, y.unsqueeze(1)).clamp_min(1e-12).log()
    error, ece = float((probs.argmax(1) != y).double().mean()), float(metrics.ece(probs, y))
    return [f"{error:.4f}", f"{-float(chosen.mean()):.3f}", f"{ece:.3f}", f"{seconds:.1f}"]


def main() -> None:
    """Run and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("docs/results/tables.md"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    # What does not converge says so by its numbers.
    warnings.simplefilter("ignore")
    pages = []
    for names, models, score, head in (
        (
            REGRESSION,
            REGRESSORS,
            regress,
            [
                "RMSE (standardized)",
                "MNLL",
                "95 % interval covers",
                "its width (sds of y)",
                "seconds",
            ],
        ),
        (CLASSIFICATION, CLASSIFIERS, classify, ["error", "MNLL", "ECE", "seconds"]),
    ):
        for name in names:
            given, lines = problem(name), []
            for label, model in models.items():
                lines.append([label, *score(given, model)])  # type: ignore[operator]
                print(name, *lines[-1], flush=True)
            pages.append(
                f"## {name}\n\n{len(given.y)} rows to learn from, {len(given.y_test)} to test.\n\n"
                + table(["", *head], lines)
            )
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    text = PAGE.format(gp=GP_ROWS, members=MEMBERS, pages="\n\n".join(pages))
    write_page(asked.out, text, "headstart.tabular.fit")


PAGE = """# Tables: `headstart fit` and what one would pick instead

    python benchmarks/table_rivals.py

One split, seed 0, one thread; scikit-learn's models at their defaults. Intervals and MNLL of models
that give no distribution are made as users do: a forest's noise is its out-of-bag error, boosting's
intervals are two quantile models (and its sd a quarter of their distance, about), an ensemble's
noise is its error on held-out rows. The Gaussian process learns from {gp} rows (1000 for classes).
MNLL of a quantity is in its own units.

{pages}
"""


if __name__ == "__main__":
    main()
