"""Noisy K-FAC beside plain SVI: what a step costs, and the way both go on a problem of two weights.

    python benchmarks/noisy_kfac.py --threads 2 --out docs/results/noisy-kfac-cost.md

Steps are timed in blocks, the methods in turn in one process, each block with its part of factors
and inverses.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from tables import table, write_page
from torch import Tensor, nn

import headstart as hs
from headstart.reporting.plots import COLORS, SVG_STYLE

CASES = {
    "mlp-1x100 (9 inputs)": ("mlp-1x100", (9,), 16),
    "mlp-5x100": ("mlp-5x100", (784,), 16),
    "lenet": ("lenet", (1, 28, 28), 16),
    "lenet, one sample": ("lenet", (1, 28, 28), 1),
}
METHODS = {"svi": hs.SVI, "noisy-kfac": hs.NoisyKFAC}
BATCH, ROWS = 64, 6400
OFTEN = {"factors_every": 1, "inverses_every": 10}


def running(name: str, method: hs.Inference) -> Iterator[hs.training.Step]:
    """The endless steps of a method on random labels."""
    model, shape, samples = CASES[name]
    torch.manual_seed(0)
    x, y = torch.randn(ROWS, *shape), torch.randint(10, (ROWS,))
    net = method.convert(hs.models.create(model, shape, 10))
    return hs.steps(
        net,
        hs.Categorical(10),
        (x, y),
        steps=10**9,
        samples=samples,
        batch_size=BATCH,
        inference=method,
    )


def cost(name: str, block: int, repeats: int) -> list[str]:
    """A line of the table: milliseconds a step of both, and their ratio block by block."""
    loops = {label: running(name, make()) for label, make in METHODS.items()}
    times: dict[str, list[float]] = {label: [] for label in loops}
    for repeat in range(repeats + 1):
        for label, loop in loops.items():
            start = time.perf_counter()
            for _ in range(block):
                next(loop)
            # The first block holds the inverses that come sooner, and torch's own start.
            if repeat:
                times[label].append((time.perf_counter() - start) / block * 1e3)
    ratios = [k / s for s, k in zip(*times.values(), strict=True)]
    cells = [f"{statistics.median(values):.1f}" for values in times.values()]
    line = [
        name,
        str(CASES[name][2]),
        *cells,
        f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f}–{max(ratios):.2f})",
    ]
    print(*line, flush=True)
    return line


def two_weights() -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    """Two correlated features: data, mean and covariance of the exact posterior, noise variance."""
    torch.manual_seed(0)
    shared, noise_var = torch.randn(100, 1), 0.5
    x = shared + 0.3 * torch.randn(100, 2)
    y = x @ torch.tensor([[1.0], [-0.5]]) + noise_var**0.5 * torch.randn(100, 1)
    covariance = torch.linalg.inv(x.T @ x / noise_var + torch.eye(2))
    return x, y, covariance @ (x.T @ y / noise_var).squeeze(1), covariance, noise_var


def ellipse(mean: Tensor, covariance: Tensor) -> np.ndarray:
    """Two standard deviations around."""
    angle = torch.linspace(0, 2 * np.pi, 200)
    circle = torch.stack([angle.cos(), angle.sin()])
    return (mean.unsqueeze(1) + 2 * torch.linalg.cholesky(covariance) @ circle).numpy()


def path(method: hs.Inference, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """The means of a method step by step, and where it ends: mean and covariance."""
    x, y, _, _, noise_var = two_weights()
    model = method.convert(nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        model.posterior.mean.copy_(torch.tensor([[-1.0, 1.0]]))
    means = [model.posterior.mean.detach().flatten().clone()]
    options = {"steps": steps, "batch_size": 100, "samples": 16, "lr": 0.03, "inference": method}
    for _ in hs.steps(model, hs.Gaussian(noise_var, learn_noise=False), (x, y), **options):
        means.append(model.posterior.mean.detach().flatten().clone())
    draws = model.posterior.sample(100_000).flatten(1).detach()
    return torch.stack(means), draws.mean(0), draws.T.cov()


def picture(out: Path, steps: int) -> list[list[str]]:
    """Both paths over the exact posterior; and a table of where they end."""
    _, _, mean, covariance, _ = two_weights()
    methods = {
        "mean-field SVI": (hs.SVI(), COLORS["orthogonal"]),
        "noisy K-FAC": (
            hs.NoisyKFAC(0.1, momentum=0.0, damping=0.0, kl_clip=None, **OFTEN),
            COLORS["iblm"],
        ),
    }
    with plt.rc_context(SVG_STYLE):
        figure, axes = plt.subplots(figsize=(6, 4.5), layout="constrained")
        axes.fill(*ellipse(mean, covariance), color="0.85", label="exact posterior, two sds")
        sd = covariance.diagonal().sqrt()
        ends = [
            [
                "exact",
                f"{mean[0]:.3f}, {mean[1]:.3f}",
                f"{sd[0]:.3f}",
                f"{covariance[0, 1] / sd.prod():.2f}",
                "",
            ]
        ]
        for label, (method, color) in methods.items():
            torch.manual_seed(1)
            means, end, spread = path(method, steps)
            axes.plot(*means.T, color=color, lw=1, marker=".", ms=3, label=label)
            axes.plot(*ellipse(end, spread), color=color, lw=1.5)
            far = ((means - mean) / sd).abs().amax(1) > 0.5
            late = int(far.nonzero().max()) + 1 if bool(far.any()) else 0
            sds = spread.diagonal().sqrt()
            correlation = f"{spread[0, 1] / sds.prod():.2f}"
            ends.append(
                [label, f"{end[0]:.3f}, {end[1]:.3f}", f"{sds[0]:.3f}", correlation, str(late)]
            )
        axes.set(xlabel="first weight", ylabel="second weight")
        axes.legend(frameon=False)
        figure.savefig(out, metadata={"Date": None})
    return ends


def main() -> None:
    """Measure, draw, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600, help="Of the two weights.")
    parser.add_argument("--out", type=Path, default=Path("docs/results/noisy-kfac-cost.md"))
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    image = chosen.out.with_suffix(".svg")
    ends = picture(image, chosen.steps)
    block = hs.NoisyKFAC().inverses_every
    costs = [cost(name, block, chosen.repeats) for name in CASES]
    head = ["net", "samples", "SVI, ms a step", "noisy K-FAC, ms a step", "ratio, median (range)"]
    columns = ["", "mean", "sd of the first weight", "correlation"]
    columns.append("steps until the mean stays within half an sd")
    command = (
        f"python benchmarks/noisy_kfac.py --threads {chosen.threads} --repeats {chosen.repeats} "
        f"--steps {chosen.steps}"
    )
    write_page(
        chosen.out,
        f"""# Noisy K-FAC beside SVI

    {command}

## What a step costs

Batch {BATCH}, {chosen.threads} threads, default settings: factors every
{hs.NoisyKFAC().factors_every} steps, inverses every {block}; blocks of {block} steps in turn in one
process, {chosen.repeats} of each. The machine was shared: its load was {os.getloadavg()[0]:.1f} at
the end. Only the ratios mean anything.

{table(head, costs)}

## Two weights

Linear regression on two features that go together, noise known, the whole data in every batch,
{chosen.steps} steps from (−1, 1); SVI with Adam at 0.03, noisy K-FAC at 0.1 without momentum,
damping or clip, factors every step. Ellipses are two standard deviations.

![The paths of both methods over the exact posterior]({image.name})

{table(columns, ends)}
""",
    )


if __name__ == "__main__":
    main()
