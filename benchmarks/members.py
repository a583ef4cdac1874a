"""What a step costs with several members, and what memory: in turn, in one run, with one thread.

    python benchmarks/members.py --rounds 15 --out docs/results/members-cost.md

Sixteen samples of a step are divided among the members, batches of 64 rows, SVI with Adam. Ratios
are those to one member, round by round: seconds are of this machine. The variance of the gradient
by the means, summed over weights, is set beside that by as many independent samples of each member:
a step's samples share the draws of the first layers, and have antithetic and common noise.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from tables import table, write_page
from torch import Tensor, nn

import headstart as hs
from headstart.bench.measure import Timing, measure

ROWS, SAMPLES = 64, 16


class Case(NamedTuple):
    """A net, and how many members it is tried with."""

    model: str
    inputs: tuple[int, ...]
    outputs: int
    members: tuple[int, ...]
    bound: float
    """How many times the step of one member that of the most members may cost."""


CASES = (
    Case("mlp-5x100", (784,), 10, (1, 2, 4), 2.0),
    Case("lenet", (1, 28, 28), 10, (1, 2, 4), 1.5),
    Case("mlp-1x50", (8,), 1, (1, 4, 8), 2.0),
)


class Problem(NamedTuple):
    """A model and rows to train it on."""

    model: nn.Module
    likelihood: hs.Likelihood
    x: Tensor
    y: Tensor


def make_problem(case: Case, members: int, rows: int = ROWS) -> Problem:
    """Labels are a noisy function of a few inputs."""
    torch.manual_seed(0)
    net = hs.models.create(case.model, case.inputs, case.outputs)
    x = torch.randn(rows, *case.inputs)
    y = x.flatten(1)[:, :4].sin().sum(1) + 0.3 * torch.randn(rows)
    likelihood: hs.Likelihood = hs.Gaussian()
    if case.outputs > 1:
        likelihood, y = hs.Categorical(case.outputs), (y > 0).long()
    return Problem(hs.bayesianize(net, members=members), likelihood, x, y)


def make_step(case: Case, members: int) -> Callable[[], None]:
    """A function that takes one step of SVI."""
    model, likelihood, x, y = make_problem(case, members)
    method = hs.SVI()
    method.bind(model, likelihood, num_data=10_000, samples=SAMPLES, lr=1e-3, clip=None)

    def step() -> None:
        method.update(x, y, 1.0)

    return step


def gradient_variance(case: Case, members: int, repeats: int) -> float:
    """The variance of a step's gradient by the means, beside that by independent samples."""
    problem = make_problem(case, members, 1000)
    hs.initialize_(problem.model, "iblm", problem.likelihood, problem[2:])
    hs.fit(*problem[:2], problem[2:], steps=40, samples=SAMPLES, progress=False, seed=0)
    means = [layer.posterior.mean for layer in hs.bayesian_layers(problem.model).values()]
    x, y = problem.x[:ROWS], problem.y[:ROWS]
    y = problem.likelihood.check(y, case.outputs)

    def variance(averaged: bool) -> float:
        found = []
        for _ in range(repeats):
            draws = hs.draw(problem.model, x, SAMPLES, averaged=averaged)
            loss = -problem.likelihood.log_prob(draws, y).mean()
            gradients = torch.autograd.grad(loss, means)
            found.append(torch.cat([gradient.flatten() for gradient in gradients]))
        return float(torch.stack(found).var(0).sum())

    return variance(averaged=True) / variance(averaged=False)


def parameter_bytes(case: Case, members: int) -> int:
    """The bytes of the parameters; Adam keeps twice that beside them."""
    net = hs.models.create(case.model, case.inputs, case.outputs)
    model = hs.bayesianize(net, members=members)
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def lines(case: Case, rounds: int, repeats: int) -> list[list[str]]:
    """The rows of the table for one net."""
    steps = {str(members): make_step(case, members) for members in case.members}
    found: dict[str, Timing] = measure(steps, rounds)
    one = found["1"]
    cells = []
    for members in case.members:
        timing = found[str(members)]
        ratios = timing.ratios(one)
        low, middle, high = (
            min(ratios),
            statistics.median(ratios),
            max(ratios),
        )
        bound = f"{case.bound:g}" if members == case.members[-1] else "-"
        cells.append(
            [
                case.model,
                str(members),
                f"{1e3 * timing.median:.2f}",
                f"{middle:.2f} ({low:.2f} to {high:.2f})",
                bound,
                f"{timing.memory / 2**20:.1f}",
                f"{parameter_bytes(case, members) / 2**20:.2f}",
                f"{gradient_variance(case, members, repeats):.2f}",
            ]
        )
        print(*cells[-1], sep=" | ", flush=True)
    return cells


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = [line for case in CASES for line in lines(case, arguments.rounds, arguments.repeats)]
    head = ["net", "members", "ms a step", "times one (range)", "at most", "peak MB", "weights MB"]
    head.append("gradient variance")
    if arguments.out is not None:
        command = (
            f"python benchmarks/members.py --rounds {arguments.rounds} "
            f"--repeats {arguments.repeats}"
        )
        write_page(
            arguments.out,
            "# What members cost\n\n"
            f"A step of SVI with {SAMPLES} samples, divided among the members, and {ROWS} rows; "
            f"one thread, all numbers of a net in turn in one run; `{command}`.\n"
            "The ratio is the median over rounds, with its range.\n"
            "Peak memory is what a step allocates beyond the weights and Adam's two averages, "
            "which take three times the weights together.\n"
            f"The variance of the gradient, over {arguments.repeats} steps, is set beside that by "
            "as many independent samples.\n\n"
            f"{table(head, found)}\n",
        )


if __name__ == "__main__":
    main()
