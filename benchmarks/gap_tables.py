"""Rows away from the training data of real tables: coverage and NLL in gaps and tails.

    HEADSTART_DATA=... python benchmarks/gap_tables.py run --splits 24
    python benchmarks/gap_tables.py page --out docs/results/gap-tables.md

A split sorts the rows of a table by one feature and holds out the middle third (gap) or the top
fifth (tail); ties go in random order. Of each table 600 rows at random are used, others for each
feature, so that a Gaussian process and a single thread suffice. Inputs and targets are standardized
by the training rows. Nets have one hidden layer of 50 units and learn from nine tenths of the
training rows; the rest stops them early. Rows go to out/gap-tables/rows.jsonl: a run that was
stopped goes on where it was, and rows of other code are not read.

- mean-field, 4 members: the default recipe of the estimators.
- refined, conditioned: these by `refine_` (its noise of predictions by the validation rows) and
  `condition`.
- 5 MLPs: a deep ensemble of plain nets with a Gaussian negative log-likelihood, a head for the mean
  and one for the log-variance, Adam at 1e-2 for 1000 steps of 64 rows, the best of 20 evaluations.
- Gaussian process: scikit-learn's, a length scale for each feature and the noise by marginal
  likelihood, on all training rows.

Where a net is sure and wrong its NLL is without bound, and the mean over splits is that of one or
two of them. So in differences a split's NLL counts at most 5. They are paired over splits, with a
95 % t interval: splits of one table share rows, so that the variance of their mean has Nadeau and
Bengio's correction, and tables are independent.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.preprocessing import StandardScaler
from tables import table, write_page
from torch import Tensor, nn

import headstart as hs
from headstart.experiments.code import code_hash
from headstart.models import create

CODE = "headstart.training.fit"
"""The module that stands for the code of the page."""
ROWS = Path("out/gap-tables/rows.jsonl")
TABLE_ROWS = 600
KINDS = ("gap", "tail")
TEST_TO_TRAIN = {"gap": 1 / 2, "tail": 1 / 4}
"""Held-out rows over training rows."""
Rows = tuple[Tensor, Tensor]
METHODS = (
    *("mean-field", "refined", "conditioned", "4 members", "4 members, conditioned"),
    *("5 MLPs", "Gaussian process"),
)
OURS = ("conditioned", "4 members, conditioned")
"""Whose differences from the others are shown."""
MIN_SPLITS = 10
"""Splits that a table of the page is made of at least."""
MAX_NLL = 5.0
"""What a split's NLL counts at most in paired differences."""
Scores = dict[str, float]


def table_rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features and target."""
    folder = Path(os.environ["HEADSTART_DATA"]) / name
    if name in ("energy", "concrete"):
        rows = np.loadtxt(folder / "data.txt.gz")
        return rows[:, :-1], rows[:, -1]
    file = {"powerplant": "Folds5x2_pp_Sheet1.csv.gz", "protein": "CASP.csv.gz"}[name]
    rows = np.loadtxt(folder / file, delimiter=",", skiprows=1)
    return (rows[:, :-1], rows[:, -1]) if name == "powerplant" else (rows[:, 1:], rows[:, 0])


FEATURES = {"concrete": 8, "energy": 8, "powerplant": 4, "protein": 9}


class Split(NamedTuple):
    """Rows without those of a gap, or of a tail, along one feature."""

    table: str
    feature: int
    kind: str

    def rows(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Training rows and held-out rows, standardized by the former."""
        x, y = table_rows(self.table)
        chosen = np.random.default_rng(self.feature).permutation(len(x))[:TABLE_ROWS]
        x, y = x[chosen], y[chosen]
        # Ties stay in the random order of the rows.
        order, count = np.argsort(x[:, self.feature], kind="stable"), len(x)
        out = slice(count // 3, 2 * count // 3) if self.kind == "gap" else slice(-count // 5, None)
        test = order[out]
        train = np.setdiff1d(order, test)
        np.random.default_rng(0).shuffle(train)
        scaler = StandardScaler().fit(x[train])
        target = (y - y[train].mean()) / y[train].std()
        inputs = torch.as_tensor(scaler.transform(x), dtype=torch.float32)
        labels = torch.as_tensor(target, dtype=torch.float32).unsqueeze(1)
        return (inputs[train], labels[train]), (inputs[test], labels[test])


def splits() -> Iterator[Split]:
    """All of them, every table in turn."""
    for feature in range(max(FEATURES.values())):
        for name, features in FEATURES.items():
            if feature < features:
                yield from (Split(name, feature, kind) for kind in KINDS)


def learn(train: Rows, validation: Rows, members: int = 1) -> tuple[nn.Module, hs.Gaussian]:
    """A net with one hidden layer of 50 units, at its best evaluation on the validation rows."""
    torch.manual_seed(0)
    model = hs.bayesianize(create("mlp-1x50", (train[0].shape[1],), 1), members=members)
    lik = hs.Gaussian([0.1])
    hs.initialize_(model, "iblm", lik, train, seed=0)
    how = {"steps": 1000, "samples": 8, "lr": 3e-3, "lr_schedule": "cosine", "every": 50}
    hs.fit(model, lik, train, validation=validation, progress=False, seed=0, **how)
    return model, lik


def held_apart(data: Rows) -> tuple[Rows, Rows]:
    """The training rows, which are in random order, less a tenth; and that tenth."""
    held = len(data[0]) // 10
    return (data[0][held:], data[1][held:]), (data[0][:held], data[1][:held])


def recipe_scores(split: Split) -> Iterator[tuple[str, Scores, float]]:
    """One posterior as it is, refined and conditioned."""
    data, test = split.rows()
    start = time.perf_counter()
    train, validation = held_apart(data)
    found = learn(train, validation)
    seconds = time.perf_counter() - start
    yield "mean-field", hs.evaluate(*found, test, 256, seed=0), seconds
    model, lik = copy.deepcopy(found)
    start = time.perf_counter()
    hs.refine_(model, lik, train, validation=validation)
    refined = time.perf_counter() - start
    yield "refined", hs.evaluate(model, lik, test, 256, seed=0), seconds + refined
    start = time.perf_counter()
    conditioned = hs.condition(*found, train)
    spent = seconds + time.perf_counter() - start
    yield "conditioned", conditioned.predict(test[0], 256, seed=0).evaluate(test[1]), spent


def members_scores(split: Split) -> Iterator[tuple[str, Scores, float]]:
    """A mixture of four posteriors, as it is and conditioned."""
    data, test = split.rows()
    start = time.perf_counter()
    train, validation = held_apart(data)
    four = learn(train, validation, members=4)
    seconds = time.perf_counter() - start
    yield "4 members", hs.evaluate(*four, test, 256, seed=0), seconds
    conditioned = hs.condition(*four, train)
    found = conditioned.predict(test[0], 256, seed=0).evaluate(test[1])
    yield "4 members, conditioned", found, time.perf_counter() - start


def train_mlp(data: tuple[Tensor, Tensor], seed: int) -> nn.Module:
    """A plain net for mean and log-variance, at its best evaluation on a tenth of the rows."""
    torch.manual_seed(seed)
    x, y = data
    order = torch.randperm(len(x))
    held, rest = order[: len(x) // 10], order[len(x) // 10 :]
    net = nn.Sequential(nn.Linear(x.shape[1], 50), nn.ReLU(), nn.Linear(50, 2))
    lik, optimizer = hs.Heteroscedastic(), torch.optim.Adam(net.parameters(), lr=1e-2)

    def loss(rows: Tensor) -> Tensor:
        return -lik.log_prob(net(x[rows]), y[rows]).mean()

    best, kept = float("inf"), copy.deepcopy(net.state_dict())
    for step in range(1, 1001):
        optimizer.zero_grad()
        loss(rest[torch.randint(len(rest), (64,))]).backward()
        optimizer.step()
        if step % 50 == 0:
            with torch.no_grad():
                score = float(loss(held))
            if score < best:
                best, kept = score, copy.deepcopy(net.state_dict())
    net.load_state_dict(kept)
    return net


def ensemble_scores(split: Split) -> Iterator[tuple[str, Scores, float]]:
    """Five plain nets, as a mixture of their Gaussians."""
    data, test = split.rows()
    start = time.perf_counter()
    nets = [train_mlp(data, seed) for seed in range(5)]
    seconds = time.perf_counter() - start
    with torch.no_grad():
        draws = torch.stack([net(test[0]) for net in nets])
    yield "5 MLPs", hs.Predictive(draws, hs.Heteroscedastic()).evaluate(test[1]), seconds


def process_scores(split: Split) -> Iterator[tuple[str, Scores, float]]:
    """A Gaussian process with a length scale for each feature."""
    data, test = split.rows()
    start = time.perf_counter()
    size = data[0].shape[1]
    scales = RBF(np.full(size, 2.0), (1e-2, 1e3))
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * scales + WhiteKernel(0.1, (1e-5, 10.0))
    process = GaussianProcessRegressor(kernel, alpha=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(data[0].double().numpy(), data[1][:, 0].double().numpy())
    seconds = time.perf_counter() - start
    mean, sd = process.predict(test[0].double().numpy(), return_std=True)
    outputs = np.stack([mean, 2 * np.log(sd)], 1)
    draws = torch.as_tensor(outputs, dtype=torch.float32).unsqueeze(0)
    yield "Gaussian process", hs.Predictive(draws, hs.Heteroscedastic()).evaluate(test[1]), seconds


RUNS: dict[tuple[str, ...], Callable[[Split], Iterator[tuple[str, Scores, float]]]] = {
    METHODS[:3]: recipe_scores,
    METHODS[3:5]: members_scores,
    METHODS[5:6]: ensemble_scores,
    METHODS[6:]: process_scores,
}


def read_rows() -> list[dict[str, Any]]:
    """What this code has found so far."""
    if not ROWS.is_file():
        return []
    code = code_hash(CODE)
    rows = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["code"] == code]


def run(count: int, seconds: float) -> None:
    """The first splits, those that are not there yet, until the time is over."""
    start, code = time.perf_counter(), code_hash(CODE)
    done = {
        (Split(row["table"], row["feature"], row["kind"]), row["method"]) for row in read_rows()
    }
    ROWS.parent.mkdir(parents=True, exist_ok=True)
    for split in list(splits())[:count]:
        for methods, scores in RUNS.items():
            if all((split, method) in done for method in methods):
                continue
            if time.perf_counter() - start > seconds:
                return
            lines = []
            for method, found, spent in scores(split):
                if (split, method) in done:
                    continue
                row = {**split._asdict(), "method": method, "code": code, "seconds": spent}
                row |= {name: found[name] for name in ("mnll", "coverage_95", "rmse")}
                lines.append(json.dumps(row))
                print(lines[-1], flush=True)
            with ROWS.open("a", encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in lines))


def summary(rows: list[dict[str, Any]], kinds: tuple[str, ...], ours: str) -> str:
    """A line for each method: scores, and what ours are beside them, on splits that all have."""
    methods = [method for method in METHODS if method not in OURS or method in (ours, OURS[0])]
    found: dict[str, dict[Split, dict[str, float]]] = {method: {} for method in methods}
    for row in rows:
        if row["method"] in methods and row["kind"] in kinds:
            found[row["method"]][Split(row["table"], row["feature"], row["kind"])] = row
    whole = sorted(set.intersection(*(set(each) for each in found.values())))
    if len(whole) < MIN_SPLITS:
        return ""
    lines = []
    for method, each in found.items():
        nll, coverage, rmse = (
            [each[split][name] for split in whole] for name in ("mnll", "coverage_95", "rmse")
        )
        capped = [min(value, MAX_NLL) for value in nll]
        cells = [method, f"{statistics.median(nll):.3f}", f"{statistics.mean(capped):.3f}"]
        cells += [f"{statistics.mean(coverage):.3f}", f"{min(coverage):.3f}"]
        cells.append(f"{statistics.mean(rmse):.3f}")
        lines.append([*cells, *_beside(found[ours], each, whole)])
    head = ["method", "median NLL", "NLL, at most 5", "95 % coverage", "lowest", "RMSE"]
    head += [f"NLL, {ours} less this", "lower NLL"]
    counts = ", ".join(f"{sum(split.table == name for split in whole)} {name}" for name in FEATURES)
    title = f"{' and '.join(kinds).capitalize()}: {ours}"
    return f"## {title}\n\n{len(whole)} splits ({counts}).\n\n{table(head, lines)}\n"


def _beside(
    ours: dict[Split, dict[str, float]], theirs: dict[Split, dict[str, float]], whole: list[Split]
) -> list[str]:
    """The paired difference of NLLs, and how often ours is lower."""
    if ours is theirs:
        return ["", ""]
    capped = [
        {split: min(each[split]["mnll"], MAX_NLL) for split in whole} for each in (ours, theirs)
    ]
    differences = {split: capped[0][split] - capped[1][split] for split in whole}
    wide = f" ± {half_width(differences):.3f}"
    wins = sum(ours[split]["mnll"] < theirs[split]["mnll"] for split in whole)
    return [f"{statistics.fmean(differences.values()):+.3f}{wide}", f"{wins} of {len(whole)}"]


def half_width(differences: Mapping[Split, float]) -> float:
    """Half the 95 % interval of the mean of paired differences, of splits of several tables.

    The mean over the J splits of a table has the variance `(1/J + n_test/n_train) s²` (Nadeau and
    Bengio 2003); means of different tables are independent.
    """
    names = {split.table for split in differences}
    variance, freedom = 0.0, 0
    for name in names:
        own = {split: value for split, value in differences.items() if split.table == name}
        if len(own) < 2:
            return math.inf
        ratio = statistics.fmean(TEST_TO_TRAIN[split.kind] for split in own)
        of_mean = (1 / len(own) + ratio) * statistics.variance(own.values())
        variance += (len(own) / len(differences)) ** 2 * of_mean
        freedom += len(own) - 1
    return float(stats.t.ppf(0.975, freedom)) * math.sqrt(variance)


def main() -> None:
    """Run splits, or write the page of what was run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["run", "page"])
    parser.add_argument("--splits", type=int, default=len(list(splits())))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "run":
        run(options.splits, options.seconds)
        return
    rows = read_rows()
    parts = [summary(rows, kinds, ours) for ours in OURS for kinds in (KINDS, *zip(KINDS))]
    page = "\n".join(part for part in parts if part)
    print(page)
    if options.out is not None:
        write_page(options.out, f"# Gaps and tails of real tables\n\n{__doc__}\n{page}", CODE)


if __name__ == "__main__":
    main()
