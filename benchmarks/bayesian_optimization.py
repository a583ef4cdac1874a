"""Bayesian optimization of standard functions: conditioned nets beside BoTorch's SingleTaskGP.

    python benchmarks/bayesian_optimization.py --out docs/results/bayesian-optimization.md

Every run begins with the same Sobol points as its rivals of that seed, and then takes the point of
the largest log expected improvement, one evaluation after another. "net" is a net of
one hidden layer of 50 units, initialized by I-BLM and conditioned (`hs.condition`,
`BotorchModel`), without a gradient step; "gp" is `SingleTaskGP` with BoTorch's own settings, fitted
anew every time; "sobol" goes on with Sobol points, that is, at random. Inputs are scaled to [0, 1],
labels are standardized. Regret is the optimum less the best value found: lower is better.
Differences are paired over seeds, with 95 % t intervals.
Rows that are in the file already are not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch
from botorch import fit_gpytorch_mll
from botorch.acquisition import LogExpectedImprovement, qLogExpectedImprovement
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.test_functions import Ackley, Branin, Hartmann
from botorch.test_functions.synthetic import SyntheticTestFunction
from gpytorch.mlls import ExactMarginalLogLikelihood
from tables import table, write_page
from torch import Tensor

import headstart as hs
from headstart.experiments.code import code_hash
from headstart.experiments.paired import paired_difference
from headstart.integrations import BotorchModel

CODE = "headstart.training.conditional"
"""The module that stands for the code of the page."""
FUNCTIONS: dict[str, Callable[[], SyntheticTestFunction]] = {
    "branin (2)": lambda: Branin(negate=True),
    "ackley (2)": lambda: Ackley(dim=2, negate=True),
    "hartmann (6)": lambda: Hartmann(dim=6, negate=True),
}
RIVAL = "gp"
Row = dict[str, Any]
KEY = ("function", "method", "seed", "steps", "code")
"""What tells one run from another."""


def net_improvement(x: Tensor, y: Tensor) -> AcquisitionFunction:
    """Log expected improvement by functions of conditioned nets."""
    x, y = x.float(), y.float()
    model = hs.bayesianize(hs.models.create("mlp-1x50", x.shape[1], 1))
    lik = hs.Gaussian(noise_var=1e-3, learn_noise=False)
    hs.initialize_(model, "iblm", lik, (x, y), seed=0)
    found = hs.condition(model, lik, (x, y), draws=16, widen=False)
    surrogate = BotorchModel(found.nets, found.likelihood, samples=64, seed=0)
    return qLogExpectedImprovement(surrogate, best_f=float(y.max()))


def gp_improvement(x: Tensor, y: Tensor) -> AcquisitionFunction:
    """Log expected improvement by a Gaussian process."""
    model = SingleTaskGP(x, y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return LogExpectedImprovement(model, best_f=float(y.max()))


SURROGATES = {"net": net_improvement, "gp": gp_improvement, "sobol": None}


def regrets(function: SyntheticTestFunction, method: str, seed: int, steps: int) -> Iterator[float]:
    """The regret after the first points, and after every further one."""
    low, high = function.bounds.double()
    sobol = torch.quasirandom.SobolEngine(function.dim, scramble=True, seed=seed)
    start = 2 * function.dim + 2
    points = sobol.draw(start + steps, dtype=torch.float64)
    x, surrogate = points[:start], SURROGATES[method]
    torch.manual_seed(seed)

    def values(at: Tensor) -> Tensor:
        return function(low + (high - low) * at).unsqueeze(1)

    y = values(x)
    for step in range(steps):
        yield function.optimal_value - float(y.max())
        place = points[start + step : start + step + 1]
        if surrogate is not None:
            place, _ = optimize_acqf(
                surrogate(x, (y - y.mean()) / y.std()),
                torch.stack([torch.zeros_like(low), torch.ones_like(low)]),
                q=1,
                num_restarts=4,
                raw_samples=64,
                options={"maxiter": 50},
            )
        x, y = torch.cat([x, place]), torch.cat([y, values(place)])
    yield function.optimal_value - float(y.max())


def run(path: Path, seeds: int, steps: int) -> list[Row]:
    """All rows, those that are missing run and appended."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    code = code_hash(CODE)
    there = {tuple(row[key] for key in KEY) for row in rows}
    for seed, (name, make), method in product(range(seeds), FUNCTIONS.items(), SURROGATES):
        if (name, method, seed, steps, code) in there:
            continue
        begun = time.process_time()
        found = list(regrets(make(), method, seed, steps))
        row = {"function": name, "method": method, "seed": seed, "steps": steps, "code": code}
        row |= {"regret": found, "seconds": time.process_time() - begun}
        rows.append(row)
        print(name, method, seed, f"{found[-1]:.4g}", flush=True)
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
    return [r for r in rows if r["steps"] == steps and r["seed"] < seeds and r["code"] == code]


def regret_at(
    rows: list[Row], function: str, method: str, at: float
) -> dict[tuple[int, int], float]:
    """Regrets by seed after a fraction of the evaluations."""
    found = [row for row in rows if row["function"] == function and row["method"] == method]
    return {(row["seed"], 0): row["regret"][round(at * row["steps"])] for row in found}


def beside(rows: list[Row], function: str, method: str, other: str, at: float = 1.0) -> str:
    """The paired difference of two methods with its interval, and which is ahead."""
    ours, theirs = (regret_at(rows, function, name, at) for name in (method, other))
    paired = paired_difference(ours, theirs)
    if paired is None or paired.half_width is None:
        return ""
    return f"{paired.mean:+.2g} ± {paired.half_width:.2g}, {paired.verdict(-1)}"


def cells(name: str, method: str, rows: list[Row]) -> list[str]:
    """A line of the table: mean regrets of a method on a function, and differences from the GP."""
    regrets = [regret_at(rows, name, method, at).values() for at in (0.0, 0.5, 1.0)]
    differences = [
        "" if method == RIVAL else beside(rows, name, method, RIVAL, at) for at in (0.5, 1.0)
    ]
    seconds = statistics.mean(
        row["seconds"] / row["steps"]
        for row in rows
        if row["function"] == name and row["method"] == method
    )
    means = [f"{statistics.mean(found):.2g}" for found in regrets]
    return [name, method, *means, *differences, f"{seconds:.2g}"]


def verdicts(rows: list[Row]) -> str:
    """Where the net is ahead and where it is behind in the end, a line for each function."""
    return "\n".join(
        f"- {name}: regret of the net less that of the gp {beside(rows, name, 'net', RIVAL)}; "
        f"less that of sobol {beside(rows, name, 'net', 'sobol')}."
        for name in FUNCTIONS
    )


def main() -> None:
    """Run what is missing, print, write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rows", type=Path, default=Path("out/bayesian-optimization.jsonl"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    # Advice of BoTorch's about precision and scales.
    warnings.simplefilter("ignore")
    rows = run(options.rows, options.seeds, options.steps)
    head = ["function", "method", "regret at first", "halfway", "in the end"]
    head += ["less the gp's, halfway", "less the gp's, in the end", "CPU seconds an evaluation"]
    lines = [cells(name, method, rows) for name, method in product(FUNCTIONS, SURROGATES)]
    page = table(head, lines, left=2)
    print(page)
    if options.out is not None:
        count = f"{options.steps} evaluations after the first points, {options.seeds} seeds."
        means = "Means over seeds; differences with 95 % intervals, ahead where they exclude zero."
        end = f"In the end:\n\n{verdicts(rows)}"
        text = f"# Bayesian optimization\n\n{__doc__}\n{count}\n{means}\n\n{page}\n\n{end}\n"
        write_page(options.out, text, CODE)


if __name__ == "__main__":
    main()
