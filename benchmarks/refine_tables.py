"""Whether tables should be refined by default: held-out scores of the same fits before and after.

    HEADSTART_DATA=... python benchmarks/refine_tables.py --out docs/results/refine-tables.md

Each seed holds out a fifth of the rows and learns the others by the default recipe of the
estimators. The same fit is then scored as it is, refined (noise of predictions by leaving rows
out), and refined with the noise that is likeliest for the recipe's validation rows. Of energy and
concrete only rows are used that are no test rows of their first five published splits. NLLs are
those of standardized targets. Differences are refined less plain: the mean over seeds, and the
95 % interval with Nadeau and Bengio's correction for splits that overlap. One thread.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import math
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from sklearn import datasets
from sklearn.preprocessing import StandardScaler
from tables import table, write_page
from torch import Tensor

import headstart as hs
from headstart.training.labels import ClassLabels, Labels, QuantityLabels
from headstart.training.learn import learn
from headstart.training.recipe import Recipe

CODE = "headstart.training.learn"
"""The module that stands for the code of the page."""
HELD_OUT = 0.2
Rows = tuple[np.ndarray, np.ndarray]


def houses() -> Rows:
    """3000 rows like a table of house prices: skewed, interactions, noise that varies a little."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 8))
    x[:, 0] = np.exp(0.5 * x[:, 0])
    level = np.log1p(x[:, 0]) + 0.5 * np.sin(2 * x[:, 1]) * x[:, 2] - 0.3 * np.abs(x[:, 3])
    return x, level + 0.3 * np.exp(0.3 * x[:, 4]) * rng.normal(size=3000)


def published(name: str) -> Rows:
    """Rows of a table that are no test rows of its first five splits."""
    folder = Path(os.environ["HEADSTART_DATA"]) / name
    with gzip.open(folder / "data.txt.gz", "rt") as file:
        rows = np.loadtxt(file)
    splits, keep = np.load(folder / "splits.npz"), np.ones(len(rows), dtype=bool)
    for split in range(5):
        keep[splits[f"test_{split}"].astype("int64")] = False
    return rows[keep, :-1], rows[keep, -1]


TABLES: dict[str, Callable[[], Rows]] = {
    "diabetes": lambda: datasets.load_diabetes(return_X_y=True),
    "friedman": lambda: datasets.make_friedman1(600, noise=1.0, random_state=0),
    "houses": houses,
    "energy": lambda: published("energy"),
    "concrete": lambda: published("concrete"),
    "breast_cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "digits": lambda: datasets.load_digits(return_X_y=True),
}
CLASSES = ("breast_cancer", "wine", "digits")


def scores(name: str, members: int, seed: int) -> dict[str, dict[str, float]]:
    """Held-out metrics of one fit as it is, and refined in two ways."""
    x, y = TABLES[name]()
    order = np.random.default_rng(seed).permutation(len(x))
    count = int(HELD_OUT * len(x))
    train, test = order[count:], order[:count]
    features = StandardScaler().fit(x[train]).transform(x)
    if name in CLASSES:
        labels = torch.as_tensor(y).long()
        known: Labels = ClassLabels(labels[train], len(np.unique(y)))
    else:
        labels = torch.as_tensor((y - y[train].mean()) / y[train].std())
        known = QuantityLabels(labels[train])
        labels = labels.float().unsqueeze(1)
    # One net without trees, of which a part of the rows is held out: what `refine_` works on.
    recipe = Recipe(
        members=members, seed=seed, trees=False, noise=known.noises[0], folds=1, refine=False
    )
    found = learn(features[train], known, recipe).trials[0]
    inputs = torch.as_tensor(features, dtype=torch.float32)
    rest = torch.ones(len(train), dtype=torch.bool)
    rest[found.rows] = False
    data, held = ((inputs[train][rows], labels[train][rows]) for rows in (rest, found.rows))
    every = {}

    def keep(label: str, model: torch.nn.Module, likelihood: hs.Likelihood, start: float) -> None:
        rows: tuple[Tensor, Tensor] = (inputs[test], labels[test])
        seconds = time.perf_counter() - start
        every[label] = {
            **hs.evaluate(model, likelihood, rows, samples=256, seed=0),
            "seconds": seconds,
        }

    keep("plain", found.model, found.likelihood, time.perf_counter())
    for label, validation in (("refined", None), ("refined, validation rows", held)):
        model, likelihood = copy.deepcopy((found.model, found.likelihood))
        start = time.perf_counter()
        hs.refine_(model, likelihood, data, validation=validation)
        keep(label, model, likelihood, start)
    return every


def difference(before: list[float], after: list[float]) -> str:
    """Mean and half-width of the corrected 95 % interval."""
    each = [b - a for a, b in zip(before, after, strict=True)]
    mean, count = statistics.mean(each), len(each)
    if count < 2:
        return f"{mean:+.4f}"
    error = statistics.stdev(each) * math.sqrt(1 / count + HELD_OUT / (1 - HELD_OUT))
    return f"{mean:+.4f} ± {stats.t.ppf(0.975, count - 1) * error:.4f}"


def lines(name: str, members: int, seeds: int) -> list[list[str]]:
    """A row for each way to refine."""
    runs = [scores(name, members, seed) for seed in range(seeds)]
    metrics = ["mnll", "error"] if name in CLASSES else ["mnll", "rmse", "coverage_95"]
    found = []
    for label in runs[0]:
        if name in CLASSES and "validation" in label:
            continue
        cells = [name, str(members), label]
        for metric in ("mnll", "coverage_95", "rmse" if name not in CLASSES else "error"):
            values = [run[label][metric] for run in runs] if metric in metrics else []
            cells.append(f"{statistics.mean(values):.4f}" if values else "")
        before, after = ([run[kind]["mnll"] for run in runs] for kind in ("plain", label))
        cells.append("" if label == "plain" else difference(before, after))
        found.append(cells)
    return found


def main() -> None:
    """Learn every table, refine, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--members", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for members in options.members:
        for name in options.tables:
            rows += lines(name, members, options.seeds)
            for line in rows[-3:]:
                print(" | ".join(line), flush=True)
    head = ["table", "members", "posterior", "NLL", "95 % coverage", "RMSE or error"]
    page = table([*head, "NLL, refined less plain"], rows, 3)
    if options.out is not None:
        text = f"# Tables refined\n\n{__doc__}\nMeans over {options.seeds} seeds.\n\n{page}\n"
        write_page(options.out, text, CODE)


if __name__ == "__main__":
    main()
