"""What a prediction of one row costs, in plain forward passes of one row, taken in turn.

    python benchmarks/one_row.py --out out/one-row.md

CPU time of one thread. Each round times a block of plain passes and then a block of predictions, so
that both meet the same load; the page has the median of the rounds' ratios and their range. The
second half of the page is that of a process whose C library keeps the memory that is freed, as that
of headstart's own commands does.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from tables import TRAINING, spread, table, write_page
from torch import Tensor, nn

import headstart as hs
from headstart.kernels.allocator import keep_freed
from headstart.models import create

NETS: dict[str, tuple[int, ...]] = {"lenet": (1, 28, 28), "mlp-5x100": (784,)}
SAMPLES, ROUNDS, PASSES = 128, 15, 100


def cpu_time(act: Callable[[], object], times: int) -> float:
    """CPU seconds of one of several calls."""
    start = time.process_time()
    for _ in range(times):
        act()
    return (time.process_time() - start) / times


def ratios(name: str, samples: int, rounds: int) -> list[float]:
    """Predictions of one row in plain passes, round by round."""
    torch.manual_seed(0)
    shape = NETS[name]
    net, likelihood = create(name, shape, 10).eval(), hs.Categorical(10)
    model, x = hs.bayesianize(net), torch.randn(1, *shape)

    def plain(given: nn.Module = net) -> Tensor:
        with torch.no_grad():
            return given(x)  # type: ignore[no-any-return]

    def predict() -> hs.Predictive:
        return hs.predict(model, likelihood, x, samples)

    found = []
    for _ in range(rounds + 1):
        one = cpu_time(plain, PASSES)
        found.append(cpu_time(predict, max(1, PASSES // 20)) / one)
    # The first round compiles nothing, but asks what the net does with rows.
    return found[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/one-row.md"))
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for memory in ("default", "kept"):
        if memory == "kept":
            keep_freed()
        for name in NETS:
            found = spread(ratios(name, options.samples, options.rounds))
            lines.append([name, memory, str(options.samples), found])
    head = ["net", "freed memory", "samples", "plain passes (range)"]
    text = table(head, lines, left=2)
    print(text)
    about = "What `hs.predict` of one row costs, in plain passes of one row, in CPU time.\n"
    about += "`python benchmarks/one_row.py --out docs/results/one-row.md` makes this page.\n"
    about += "Kept: after `headstart.kernels.allocator.keep_freed()`, which commands call.\n"
    write_page(options.out, f"# Predictions of one row\n\n{about}\n{text}\n", TRAINING)


if __name__ == "__main__":
    main()
