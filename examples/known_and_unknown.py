"""The picture of the README: what a net knows, and where it knows that it does not.

python examples/known_and_unknown.py --out docs/known.png
"""

from __future__ import annotations

import argparse

import matplotlib as mpl
import torch
from torch import nn

import headstart as hs

mpl.use("Agg")
import matplotlib.pyplot as plt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="known.png")
    options = parser.parse_args()
    torch.manual_seed(0)
    x = torch.cat([torch.rand(200, 1) - 2, torch.rand(200, 1) + 1])
    y = (2 * x).sin() + 0.1 * torch.randn_like(x)

    net = nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 1))
    model, lik = hs.bayesianize(net), hs.Gaussian()
    hs.initialize_(model, "iblm", lik, (x, y), seed=0)
    hs.fit(model, lik, (x, y), progress=False, seed=0)
    grid = torch.linspace(-3.5, 3.5, 281).unsqueeze(1)
    pred = hs.condition(model, lik, (x, y)).predict(grid, samples=1024, seed=0)

    place, mean = grid[:, 0], pred.mean[:, 0]
    figure, axis = plt.subplots(figsize=(8.4, 3.4), layout="constrained")
    for std, color, label in (
        (pred.std[:, 0], "#c6dbef", "a new observation, 95 %"),
        (pred.epistemic_std[:, 0], "#6baed6", "the function, 95 %"),
    ):
        axis.fill_between(
            place, mean - 1.96 * std, mean + 1.96 * std, color=color, lw=0, label=label
        )
    axis.plot(place, mean, color="#08519c", lw=1.5, label="mean")
    axis.plot(x[:, 0], y[:, 0], "k.", ms=2.5, label="training rows")
    for at, word in (
        (-2.9, "unknown"),
        (-1.5, "known"),
        (0, "unknown"),
        (1.5, "known"),
        (2.9, "unknown"),
    ):
        axis.text(at, 3.45, word, ha="center", va="top", fontsize=10, color="#444444")
    for edge in (-2, -1, 1, 2):
        axis.axvline(edge, color="#999999", lw=0.6, ls=":")
    axis.set(xlim=(-3.5, 3.5), ylim=(-3.7, 3.7), xlabel="x", ylabel="y")
    axis.legend(loc="lower center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(options.out, dpi=120)


if __name__ == "__main__":
    main()
