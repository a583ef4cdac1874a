"""A picture of what posteriors know away from their data, beside Hamiltonian Monte Carlo.

    python benchmarks/gap_picture.py --out docs/gap.png

The one-dimensional problem of `gap.py`: rows on both sides of a gap, a net with 50 tanh units, the
prior N(0, 1), the noise known. Bands are the mean of the function and two standard deviations,
without noise. Bars are those of Hamiltonian Monte Carlo, where its chains kept them.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import torch
from gap import net
from gap_problems import Problem, make
from matplotlib.axes import Axes
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from torch import Tensor

import headstart as hs

mpl.use("Agg")
from matplotlib import pyplot as plt

SAMPLES = 1024


class Band(NamedTuple):
    """Mean and standard deviation of a function at the points of the grid."""

    mean: Tensor
    sd: Tensor


def of_draws(draws: Tensor) -> Band:
    """Of draws (S, N, 1)."""
    return Band(draws.mean(0).squeeze(-1), draws.std(0).squeeze(-1))


def nets(problem: Problem, grid: Tensor, steps: int, members: int) -> list[Band]:
    """As trained, refined, and conditioned."""
    data, lik = (problem.x, problem.y.unsqueeze(1)), problem.likelihood()
    model = hs.bayesianize(net(1), members=members)
    hs.initialize_(model, "iblm", lik, data, seed=0)
    hs.fit(
        model,
        lik,
        data,
        steps=steps,
        samples=8 * members,
        lr=1e-2,
        lr_schedule="cosine",
        progress=False,
        seed=0,
    )
    trained = hs.predict(model, lik, grid, samples=SAMPLES, seed=0).draws
    conditioned = hs.condition(model, lik, data, draws=64, learn_prior=False)
    followed = conditioned.predict(grid, SAMPLES, seed=0).draws
    hs.refine_(model, lik, data, learn_prior=False)
    refined = hs.predict(model, lik, grid, samples=SAMPLES, seed=0).draws
    return [of_draws(each) for each in (trained, refined, followed)]


def gaussian_process(problem: Problem, grid: Tensor) -> Band:
    """With the kernel variance and the length that are likeliest, the noise as it is known."""
    kernel = ConstantKernel(1.0, (1e-2, 1e3)) * RBF(1.0, (1e-1, 1e1))
    process = GaussianProcessRegressor(kernel, alpha=problem.noise)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        process.fit(problem.x.numpy(), problem.y.numpy())
    found = process.predict(grid.numpy(), return_std=True)
    mean, sd = (torch.as_tensor(part) for part in found)
    return Band(mean, sd)


def draw(axes: Axes, title: str, problem: Problem, grid: Tensor, band: Band, truth: Band) -> None:
    """One panel: the band, the bars of HMC and the rows."""
    at, color = grid.squeeze(1), "#3b6fb6"
    axes.fill_between(
        at,
        band.mean - 2 * band.sd,
        band.mean + 2 * band.sd,
        color=color,
        alpha=0.3,
        lw=0,
        label="mean ± 2 sd of the function",
    )
    axes.plot(at, band.mean, color=color, lw=1.2)
    places = torch.cat(list(problem.points.values())).squeeze(1)
    axes.errorbar(
        places,
        truth.mean,
        2 * truth.sd,
        fmt="none",
        ecolor="#d1495b",
        elinewidth=0.9,
        zorder=3,
        label="the same by HMC",
    )
    axes.plot(
        problem.x.squeeze(1), problem.y, ".", color="black", ms=2.5, zorder=4, label="training rows"
    )
    axes.set(title=title, xlim=(-6.2, 6.2), ylim=(-7, 7))
    axes.title.set_fontsize(10)
    axes.tick_params(labelsize=7)


def main() -> None:
    """Train, refine, condition, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--truth", type=Path, default=Path("docs/results/gap_hmc.json"))
    parser.add_argument("--out", type=Path, default=Path("docs/gap.png"))
    parser.add_argument("--steps", type=int, default=3000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    problem, grid = make("gap-1d"), torch.linspace(-6.2, 6.2, 249).unsqueeze(1)
    places = json.loads(options.truth.read_text())["gap-1d"]["places"]
    mean, sd = (
        torch.tensor([v for name in problem.points for v in places[name][key]])
        for key in ("mean", "sd")
    )
    plain, refined, conditioned = nets(problem, grid, options.steps, members=1)
    mixture, _, followed = nets(problem, grid, options.steps, members=4)
    panels = {
        "mean-field, fit": plain,
        "refined (hs.refine_)": refined,
        "conditioned (hs.condition)": conditioned,
        "mixture (members=4)": mixture,
        "mixture, conditioned": followed,
        "Gaussian process": gaussian_process(problem, grid),
    }
    figure, every = plt.subplots(2, 3, figsize=(9, 5), sharex=True, sharey=True)
    for axes, (title, band) in zip(every.flat, panels.items(), strict=True):
        draw(axes, title, problem, grid, band, Band(mean, sd))
    handles, labels = every[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=3, fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(options.out, dpi=110)


if __name__ == "__main__":
    main()
