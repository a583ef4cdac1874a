"""The noise of predictions that `refine_` finds without validation rows, beside two others.

    HEADSTART_DATA=... python benchmarks/predictive_noise.py --out docs/results/predictive-noise.md

Each net is trained and refined once, then predicts held-out rows with three noises: the likeliest
for training rows that the read-out leaves out one by one, that of the bound, and the error of the
training rows over the degrees of freedom that the whole net has left, which `refine_` uses.
Tables are learned by the default recipe of the estimators on four fifths of the rows; of energy and
concrete only rows are used that are no test rows of their first five published splits. The linear
problem and the sine have a 1x50 net, 1500 steps and 3000 new rows. NLLs are above that of the noise
that is likeliest for the held-out rows themselves. One thread.
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
from pathlib import Path

import numpy as np
import torch
from refine_tables import HELD_OUT, TABLES
from sklearn.preprocessing import StandardScaler
from tables import table, write_page
from torch import Tensor, nn

import headstart as hs
from headstart.training import predictive_noise
from headstart.training.degrees_of_freedom import fraction_spent
from headstart.training.labels import QuantityLabels
from headstart.training.learn import learn
from headstart.training.recipe import Recipe

CODE = "headstart.training.predictive_noise"
"""The module that stands for the code of the page."""
SYNTHETIC = {"linear, 200 rows": 200, "sine, 120 rows": 120}
METHODS = ("left out", "noise of the bound", "degrees of freedom")
Rows = tuple[Tensor, Tensor]
Fitted = tuple[nn.Module, hs.Likelihood, Rows, Rows]


def synthetic(name: str, seed: int) -> Fitted:
    """A net on a linear function of five inputs, or on the sine of one of six."""
    torch.manual_seed(seed)
    rows, is_linear = SYNTHETIC[name], name.startswith("linear")
    x = torch.randn(rows + 3000, 5 if is_linear else 6)
    if is_linear:
        y = (x @ torch.tensor([1.0, -1.0, 0.5, 0.2, 0.0])).unsqueeze(1) + 0.5 * torch.randn(
            len(x), 1
        )
    else:
        y = x[:, :1].sin() + 0.3 * torch.randn(len(x), 1)
    data, new = (x[:rows], y[:rows]), (x[rows:], y[rows:])
    model, lik = hs.bayesianize(hs.models.create("mlp-1x50", x.shape[1], 1)), hs.Gaussian()
    hs.initialize_(model, "iblm", lik, data)
    hs.fit(
        model,
        lik,
        data,
        steps=1500,
        lr=1e-2,
        lr_schedule="cosine",
        samples=8,
        progress=False,
        seed=0,
    )
    return model, lik, data, new


def learned(name: str, seed: int) -> Fitted:
    """A table by the recipe without trees; rows held out for early stopping stay out."""
    x, y = TABLES[name]()
    order = np.random.default_rng(seed).permutation(len(x))
    count = int(HELD_OUT * len(x))
    train, test = order[count:], order[:count]
    features = StandardScaler().fit(x[train]).transform(x)
    inputs = torch.as_tensor(features, dtype=torch.float32)
    columns = (y - y[train].mean()) / y[train].std()
    labels = torch.as_tensor(columns, dtype=torch.float32).unsqueeze(1)
    known = QuantityLabels(labels[train, 0].double())
    plain = Recipe(seed=seed, trees=False, noise="constant", folds=1)
    found = learn(features[train], known, plain).trials[0]
    rest = torch.ones(len(train), dtype=torch.bool)
    rest[found.rows] = False
    data = inputs[train][rest], labels[train][rest]
    return found.model, found.likelihood, data, (inputs[test], labels[test])


def best_nll(model: nn.Module, lik: hs.Likelihood, new: Rows) -> float:
    """That of the noise which is likeliest for these rows."""
    draws = hs.predict(model, lik, new[0], 256, seed=0).draws.double()
    residual = (new[1].double() - draws)[..., 0]
    found = []
    for noise in torch.linspace(-10, 3, 261, dtype=torch.float64).exp():
        logs = -0.5 * (residual.square() / noise + (2 * math.pi * noise).log())
        found.append(-float((logs.logsumexp(0) - math.log(len(draws))).mean()))
    return min(found)


def scores(name: str, seed: int) -> dict[str, tuple[float, float]]:
    """Coverage, and the NLL above the best, by each method."""
    fitted = synthetic(name, seed) if name in SYNTHETIC else learned(name, seed)
    every = {}
    for method in METHODS:
        model, lik, data, new = copy.deepcopy(fitted)
        ways = {"left out": lambda *_: None, "degrees of freedom": fraction_spent}
        predictive_noise.fraction_spent = ways.get(method, fraction_spent)
        hs.refine_(model, lik, data)
        if method == "noise of the bound":
            lik.forget_predictive_noise_()
        found = hs.evaluate(model, lik, new, 256, seed=0)
        every[method] = found["coverage_95"], found["mnll"] - best_nll(model, lik, new)
    return every


def main() -> None:
    """Fit, refine, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*SYNTHETIC, "friedman", "energy", "concrete", "diabetes"]
    parser.add_argument("--problems", nargs="+", default=names)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines, means = [], []
    for name in options.problems:
        runs = [scores(name, seed) for seed in range(options.seeds)]
        each = [
            [statistics.mean(run[method][part] for run in runs) for part in (0, 1)]
            for method in METHODS
        ]
        means.append(each)
        lines.append([name, *(f"{covered:.3f}; {above:.3f}" for covered, above in each)])
        print("  ".join(lines[-1]), flush=True)
    average = ["mean distance from .95; mean"]
    for place in range(len(METHODS)):
        far = statistics.mean(abs(each[place][0] - 0.95) for each in means)
        above = statistics.mean(each[place][1] for each in means)
        average.append(f"{far:.3f}; {above:.3f}")
    text = table(["95 % coverage; NLL above the best", *METHODS], [*lines, average])
    print(text)
    if options.out:
        title = "# The noise of predictions without validation rows"
        write_page(
            options.out,
            f"{title}\n\n{__doc__}\nMeans over {options.seeds} seeds.\n\n{text}\n",
            CODE,
        )


if __name__ == "__main__":
    main()
