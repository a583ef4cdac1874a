"""What `refine_` costs, in training steps, and what it does to the bound.

    python benchmarks/refine.py --out docs/results/refine.md

Nets are initialized by I-BLM on synthetic rows, trained for some steps and refined; a step is one
of `fit` with its defaults (batches of 64, 8 samples). One thread; only ratios mean anything.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import torch
from tables import table, write_page
from torch import Tensor

import headstart as hs

CODE = "headstart.training.refine"
"""The module that stands for the code of the page."""


class Case(NamedTuple):
    """A net, the shape of a row, the rows, and a likelihood by its name."""

    net: str
    inputs: tuple[int, ...]
    rows: int
    kind: str


CASES = [
    Case("mlp-1x50", (8,), 500, "gaussian"),
    Case("mlp-1x100", (9,), 40_000, "gaussian"),
    Case("mlp-5x100", (9,), 40_000, "gaussian"),
    Case("mlp-1x50", (8,), 500, "heteroscedastic"),
    Case("mlp-1x50", (8,), 500, "bernoulli"),
    Case("mlp-5x100", (14,), 14_000, "bernoulli"),
    Case("mlp-1x50", (8,), 4000, "poisson"),
    Case("mlp-5x100", (784,), 10_000, "categorical"),
    Case("lenet", (1, 28, 28), 10_000, "categorical"),
    Case("lenet-20-50", (1, 28, 28), 10_000, "categorical"),
]


def problem(case: Case) -> tuple[hs.Likelihood, int, Tensor, Tensor]:
    """A likelihood, the outputs it reads, inputs and labels."""
    torch.manual_seed(0)
    x = torch.randn(case.rows, *case.inputs)
    flat = x.flatten(1)
    signal = (flat[:, 0] * 2).sin() + flat[:, 1] * flat[:, 2]
    if case.kind == "gaussian":
        return hs.Gaussian(), 1, x, signal + 0.3 * torch.randn(case.rows)
    if case.kind == "heteroscedastic":
        y = signal + 0.3 * flat[:, 3].exp() * torch.randn(case.rows)
        return hs.Heteroscedastic(), 2, x, y
    if case.kind == "bernoulli":
        return hs.Bernoulli(), 1, x, (signal + 0.5 * torch.randn(case.rows) > 0).long()
    if case.kind == "poisson":
        return hs.Poisson(), 1, x, torch.poisson(signal.clamp_max(3).exp())
    y = torch.randint(10, (case.rows,))
    # Ten patterns under noise.
    return hs.Categorical(10), 10, 0.5 * x + torch.randn(10, *case.inputs)[y], y


def run(case: Case, steps: int) -> list[str]:
    """A line of the table."""
    lik, outputs, x, y = problem(case)
    model = hs.bayesianize(hs.models.create(case.net, case.inputs, outputs))
    hs.initialize_(model, "iblm", lik, (x, y))
    hs.fit(model, lik, (x, y), steps=3, progress=False, seed=0)
    start = time.perf_counter()
    hs.fit(model, lik, (x, y), steps=steps, progress=False, seed=0)
    step = (time.perf_counter() - start) / steps
    report = hs.refine_(model, lik, (x, y))
    gain = (report.nelbo_before - report.nelbo_after) / case.rows
    cells = [
        case.net,
        case.kind,
        f"{case.rows:,}",
        f"{report.seconds:.2f}",
        f"{report.seconds / step:.0f}",
        str(report.steps),
        f"{gain:.3f}",
    ]
    print(*cells, flush=True)
    return cells


def main() -> None:
    """Run the cases and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--cases", type=int, nargs="+", default=list(range(len(CASES))))
    options = parser.parse_args()
    torch.set_num_threads(1)
    head = [
        "net",
        "likelihood",
        "rows",
        "seconds",
        "in training steps",
        "natural-gradient steps",
        "gain in nats a row",
    ]
    lines = [run(CASES[number], options.steps) for number in options.cases]
    if options.out is not None:
        text = f"# The cost of `refine_`\n\n{__doc__}\n{table(head, lines, 2)}\n"
        write_page(options.out, text, CODE)


if __name__ == "__main__":
    main()
