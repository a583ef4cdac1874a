"""What a posterior knows away from its data, beside Hamiltonian Monte Carlo on the same net.

    python benchmarks/gap.py hmc --out docs/results/gap_hmc.json
    python benchmarks/gap.py compare --truth docs/results/gap_hmc.json --out docs/results/gap.md

Nets have one hidden layer of 50 tanh units and the prior N(0, 1); the noise is known. The first
command runs the chains and keeps the mean and the sd of the function at a few points; the second
trains, refines and compares. One thread. Columns "… / HMC's" are ratios of the median sd of the
function; coverage is that of 2000 new rows inside the data by 95 % intervals. "Variances by
curvature" are those of the diagonal Gauss-Newton matrix at the trained means, prior included.
`condition` multiplies the variances of the layers below by the factor of the best bound, which the
lines "conditioned, variances × …" name; lines without a factor leave them as they were trained.
Read-outs keep the prior N(0, 1) here, as the chains do. On the linear problem noise and prior are
learned: means over four seeds, and their range.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gap_problems import PROBLEMS, Problem, make
from hmc import Chains, net_outputs, r_hat
from tables import table, write_page
from torch import Tensor, nn

import headstart as hs

HIDDEN, CHAINS = 50, 8
CODE = "headstart.training.conditional"
"""The module that stands for the code of the page."""
PLACES = ("inside", "gap", "outside")


def summarize(problem: Problem, draws: dict[str, Tensor]) -> dict[str, Any]:
    """Mean and sd of the function at each point, or of the probability, from draws (S, N)."""
    found: dict[str, Any] = {}
    for place, f in draws.items():
        values = f.sigmoid() if problem.noise is None else f
        found[place] = {
            "mean": [round(v, 5) for v in values.mean(0).tolist()],
            "sd": [round(v, 5) for v in values.std(0).tolist()],
        }
    return found


def run_hmc(name: str, warm_up: int, moves: int, length: float) -> dict[str, Any]:
    """The posterior of the function by Hamiltonian Monte Carlo."""
    problem = make(name)
    x, y = problem.x.double(), problem.y.double()
    exact = Problem(x, y, problem.points, problem.noise)
    size = HIDDEN * (x.shape[1] + 2) + 1

    def log_density(weights: Tensor) -> Tensor:
        f = net_outputs(weights, x, HIDDEN)
        return exact.log_likelihood(f) - 0.5 * weights.square().sum(1)

    start, chains = (
        time.perf_counter(),
        Chains(log_density, 0.3 * torch.randn(CHAINS, size, dtype=torch.float64)),
    )
    chains.warm_up(warm_up, length)
    every = torch.cat(list(problem.points.values())).double()
    seen = chains.run(moves, length, lambda at: net_outputs(at, every, HIDDEN))
    worst = r_hat(seen)
    parts = seen.flatten(0, 1).split([len(at) for at in problem.points.values()], 1)
    found = summarize(problem, dict(zip(problem.points, parts, strict=True)))
    print(
        f"{name}: step {chains.step:.4f}, r-hat median {float(worst.median()):.3f}, "
        f"max {float(worst.max()):.3f}, {time.perf_counter() - start:.0f} s",
        flush=True,
    )
    return {
        "places": found,
        "r_hat": round(float(worst.max()), 4),
        "chains": CHAINS,
        "moves": moves,
        "warm_up": warm_up,
    }


def net(inputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))


def train(
    problem: Problem, posterior: Any, steps: int, members: int = 1
) -> tuple[nn.Module, hs.Likelihood]:
    """I-BLM, then Adam with cosine decay."""
    model = hs.bayesianize(net(problem.x.shape[1]), posterior=posterior, members=members)
    lik = problem.likelihood()
    hs.initialize_(model, "iblm", lik, problem.data)
    hs.fit(
        model,
        lik,
        problem.data,
        steps=steps,
        samples=8,
        lr=1e-2,
        lr_schedule="cosine",
        progress=False,
        seed=0,
    )
    return model, lik


def widen_(model: nn.Module, factor: float) -> None:
    """Multiply the variances of the hidden layer."""
    with torch.no_grad():
        for layer in list(hs.bayesian_layers(model).values())[:-1]:
            layer.posterior.logvar.add_(math.log(factor))


Predictor = Callable[[Tensor], hs.Predictive]


def seen_by(problem: Problem, predict: Predictor) -> dict[str, Any]:
    """What is said of the points of each place, and of new rows inside the data."""
    draws = {place: predict(at).draws.squeeze(-1) for place, at in problem.points.items()}
    found = summarize(problem, draws)
    if problem.fresh is not None:
        x, y = problem.fresh
        found["coverage"] = predict(x).evaluate(y.unsqueeze(1))["coverage_95"]
    return found


def kinds(model: nn.Module, lik: hs.Likelihood, data: Any) -> Iterator[tuple[str, Predictor]]:
    """A trained posterior as it is, conditioned with and without wider variances, and refined."""

    def plain(x: Tensor) -> hs.Predictive:
        return hs.predict(model, lik, x, samples=512, seed=0)

    yield "", plain
    for widen in (False, True):
        mixture = hs.condition(model, lik, data, draws=64, widen=widen, learn_prior=False)
        label = f", variances × {mixture.factor:g}" if widen else ""
        yield f", conditioned{label}", partial(mixture.predict, samples=512, seed=0)
    hs.refine_(model, lik, data, learn_prior=False)
    yield ", refined", plain


def by_curvature(model: nn.Module, problem: Problem) -> nn.Module:
    """The trained means with the variances of the diagonal Gauss-Newton matrix there."""
    made = hs.bayesianize(hs.mean_network(model))
    hs.initialize_(made, "laplace", problem.likelihood(), problem.data)
    return made


def methods(problem: Problem, steps: int) -> dict[str, dict[str, Any]]:
    """What each way to a posterior says of the points."""
    found: dict[str, dict[str, Any]] = {}

    def keep(name: str, model: nn.Module, lik: hs.Likelihood) -> None:
        for label, predict in kinds(model, lik, problem.data):
            found[name + label] = seen_by(problem, predict)

    model, lik = train(problem, "mean_field", steps)
    widened, curved = copy.deepcopy(model), by_curvature(model, problem)
    keep("mean-field", model, lik)
    widen_(widened, 4.0)
    keep("mean-field, hidden variances × 4", widened, lik)
    keep("mean-field, variances by curvature", curved, lik)
    first_full = {"0": "full_covariance", "*": "mean_field"}
    keep("full covariance", *train(problem, "full_covariance", steps))
    keep("first layer full", *train(problem, first_full, steps))
    keep("4 members", *train(problem, "mean_field", steps, members=4))
    return found


def lines(problem: Problem, each: dict[str, dict[str, Any]]) -> list[list[str]]:
    """A row for each method: median sd inside, sd beside it elsewhere, and how far from HMC."""
    rows = []
    for name, places in each.items():
        sds = {place: float(torch.tensor(places[place]["sd"]).median()) for place in problem.points}
        cells = [name, f"{sds['inside']:.3g}"]
        if problem.noise is None:
            p = torch.tensor(places["outside"]["mean"])
            confidence = torch.maximum(p, 1 - p).mean()
            labels = problem.y[: len(places["inside"]["mean"])] > 0.5
            error = ((torch.tensor(places["inside"]["mean"]) > 0.5) != labels).float().mean()
            cells += [f"{float(confidence):.3f}", f"{float(error):.3f}"]
        else:
            cells += [f"{sds[place] / sds['inside']:.2f}" for place in ("gap", "outside")]
            cells += [
                f"{sds[place] / float(torch.tensor(each['HMC'][place]['sd']).median()):.2f}"
                for place in PLACES
            ]
            cells += [f"{places['coverage']:.3f}" if "coverage" in places else "-"]
        rows.append(cells)
    return rows


def linear(rows: int, steps: int, seeds: int = 4) -> list[list[str]]:
    """A linear problem in five dimensions, noise and prior learned: what intervals cover."""
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(seeds):
        torch.manual_seed(seed)
        x = torch.randn(rows + 4000, 5)
        y = (x @ torch.tensor([1.0, -1.0, 0.5, 0.2, 0.0]) + 0.5 * torch.randn(len(x))).unsqueeze(1)
        data, test, labels = (x[:rows], y[:rows]), x[rows:], y[rows:]
        model, lik = hs.bayesianize(hs.models.create("mlp-1x50", 5, 1)), hs.Gaussian()
        hs.initialize_(model, "iblm", lik, data)
        settings: Any = {"lr": 1e-2, "lr_schedule": "cosine", "samples": 8, "progress": False}
        hs.fit(model, lik, data, steps=steps, seed=0, **settings)
        scores = {"mean-field": hs.predict(model, lik, test, seed=0)}
        scores["conditioned"] = hs.condition(model, lik, data).predict(test, 256, seed=0)
        hs.refine_(model, lik, data)
        scores["refined"] = hs.predict(model, lik, test, seed=0)
        lik.predictive_ratio.fill_(1.0)
        scores["refined, noise of the bound"] = hs.predict(model, lik, test, seed=0)
        for name, predicted in scores.items():
            found.setdefault(name, []).append(predicted.evaluate(labels))
    return [
        [name, str(rows)]
        + [
            f"{sum(each[k] for each in scores) / seeds:.4f} "
            f"({min(e[k] for e in scores):.4f}–{max(e[k] for e in scores):.4f})"
            for k in ("coverage_95", "mnll", "rmse")
        ]
        for name, scores in found.items()
    ]


def main() -> None:
    """Run the chains, or compare with them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["hmc", "compare"])
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--truth", type=Path, default=Path("docs/results/gap_hmc.json"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--warm-up", type=int, default=300)
    parser.add_argument("--moves", type=int, default=300)
    parser.add_argument("--length", type=float, default=3.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "hmc":
        found = json.loads(options.out.read_text()) if options.out.exists() else {}
        for name in options.problems:
            found[name] = run_hmc(name, options.warm_up, options.moves, options.length)
            options.out.write_text(json.dumps(found) + "\n")
        return
    truth, parts = json.loads(options.truth.read_text()), []
    for name in options.problems:
        problem = make(name)
        each = {"HMC": truth[name]["places"], **methods(problem, options.steps)}
        head = ["posterior", "sd inside"]
        if problem.noise is None:
            head += ["confidence outside", "error on training rows"]
        else:
            head += ["gap / inside", "outside / inside"]
            head += [f"{place} / HMC's" for place in PLACES] + ["95 % coverage"]
        parts += [f"## {name}", "", table(head, lines(problem, each)), ""]
        print("\n".join(parts[-4:]), flush=True)
    coverage = [line for rows in (200, 1000) for line in linear(rows, options.steps // 2)]
    head = ["posterior", "rows", "95 % coverage", "MNLL", "RMSE"]
    parts += ["## Linear, five dimensions, a ReLU net of 50 units", "", table(head, coverage), ""]
    print("\n".join(parts[-4:]), flush=True)
    text = "\n".join(["# Away from the data", "", __doc__ or "", *parts])
    write_page(options.out, text, CODE)


if __name__ == "__main__":
    main()
