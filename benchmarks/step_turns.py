"""A training step of a few nets, this code and another checkout in turn, beside a plain step.

    HEADSTART_DATA=folder python benchmarks/step_turns.py --against ../other-checkout
    HEADSTART_DATA=folder python benchmarks/step_turns.py --against ../other-checkout --net lenet \
        --old "what that is" --since "What has changed since." --out docs/results/page.md

Each turn is a process with one thread, old and new by turns, so that both meet the same machine. In
a turn plain steps of torch (the same net, the same rows, Adam) and steps of `fit` at its defaults
follow one another in blocks. Seconds are those of the processor, medians over blocks. Beside the
ratios stands how many independent samples the shared draws of a step are worth.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from gradient_noise import BATCH, PROBLEMS, SAMPLES, Problem, effective_lines, problem
from tables import TRAINING, span, table, write_page
from torch import nn

import headstart as hs

NETS = ("mlp-1x50", "mlp-1x100")
WARM, BLOCKS, STEPS = 80, 24, 25
OUT = Path("docs/results/step-turns.md")
ROOT = Path(__file__).resolve().parents[1]


def plain_step(task: Problem) -> Callable[[], Any]:
    """A step of torch's Adam on the plain net and a batch."""
    classes = not task.y.is_floating_point()
    labels = task.y if classes else task.y.reshape(len(task.y), -1)
    shape = tuple(task.x.shape[1:])
    outputs = 10 if classes else labels.shape[1]
    plain = hs.models.create(task.net, shape if len(shape) > 1 else shape[0], outputs)
    adam = torch.optim.Adam(plain.parameters(), 1e-3)
    loss: nn.Module = nn.CrossEntropyLoss() if classes else nn.MSELoss()

    def step() -> None:
        chosen = torch.randint(len(task.x), (BATCH,))
        adam.zero_grad()
        loss(plain(task.x[chosen]), labels[chosen]).backward()
        adam.step()

    return step


def bayesian_step(task: Problem) -> Callable[[], Any]:
    """A step of `fit` at its defaults, after I-BLM."""
    rows = (task.x, task.y)
    training = hs.steps(task.model, task.likelihood, rows, steps=10**6, samples=task.samples)
    return lambda: next(training)


def turn(net: str, samples: int) -> dict[str, float]:
    """Milliseconds of the processor for a plain step and for one of ours."""
    torch.set_num_threads(1)
    task = problem(net, 0, samples)
    kinds = {"plain": plain_step(task), "ours": bayesian_step(task)}
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for step in kinds.values():
        for _ in range(WARM):
            step()
    for _ in range(BLOCKS):
        for kind, step in kinds.items():
            began = time.process_time()
            for _ in range(STEPS):
                step()
            seconds[kind].append((time.process_time() - began) / STEPS)
    return {kind: 1e3 * statistics.median(each) for kind, each in seconds.items()}


def run_one(source: Path, net: str, samples: int) -> dict[str, float]:
    """A turn in a process of its own, with the code of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(source / "src")}
    command = [sys.executable, __file__, "--one", net, "--samples", str(samples)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def lines(net: str, turns: int, samples: int, against: Path) -> list[str]:
    """The line of a net: medians and ranges over turns."""
    pairs = [tuple(run_one(code, net, samples) for code in (against, ROOT)) for _ in range(turns)]
    print(net, pairs, flush=True)
    olds, news = ([pair[index]["ours"] for pair in pairs] for index in (0, 1))
    cells = [net, f"{statistics.median([each['plain'] for pair in pairs for each in pair]):.2f}"]
    cells += [f"{statistics.median(each):.2f} ({span(each)})" for each in (olds, news)]
    for index in (0, 1):
        beside = [pair[index]["ours"] / pair[index]["plain"] for pair in pairs]
        cells.append(f"{statistics.median(beside):.2f} ({span(beside)})")
    gains = [old / new for old, new in zip(olds, news, strict=True)]
    return [*cells, f"**{statistics.median(gains):.2f}** ({span(gains)})"]


PAGE = """# A step of {nets} beside an earlier version

    export HEADSTART_DATA=folder
    python benchmarks/step_turns.py --against CHECKOUT --turns {turns} --samples {samples}{options}

{batch} rows, {samples} samples; `fit` at its default step sizes on {data}.
Old and new in turn, a process and one thread each, medians (ranges) over {turns} turns.
Milliseconds are those of the processor.
"Times plain" is beside Adam on the same net and as many rows, in the same process.

{table}

Samples that share draws are not worth as many independent ones; opposite noise may make
them worth more.
The variance of the gradient beside that of independent samples, before the first step, medians
(ranges) over five batches:

{worth}

Old is the code of {old}.
{since}
"""
SINCE_OF_CHAINS = """Since then the draws and the KL of a chain of dense layers are one pass with a
written-out gradient, where every layer, activation and KL were a node of torch's graph each.
What is left are the draws themselves, one for each sample and row, and the Python around a step.
The aim was twice a plain step."""


def _more_options(asked: argparse.Namespace) -> str:
    """The options that name a page of other nets."""
    if not asked.net:
        return ""
    nets = " ".join(f"--net {net}" for net in asked.net)
    return f" {nets} \\\n        --old ... --since ... --out {asked.out}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--one", metavar="NET")
    parser.add_argument("--against", type=Path)
    parser.add_argument("--old", default="the release before", help="what to call that checkout")
    parser.add_argument("--since", help="what has changed since then; needed with --net")
    parser.add_argument("--net", action="append", choices=PROBLEMS, help="may be repeated")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--samples", type=int, default=SAMPLES, help="of a step")
    parser.add_argument("--draws", type=int, default=64)
    parser.add_argument("--out", type=Path, help=f"the page; without --net {OUT}")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(turn(asked.one, asked.samples)))
        return
    if asked.against is None:
        parser.error("name the folder of another checkout: --against FOLDER")
    if asked.net and (asked.out is None or asked.since is None):
        parser.error("with --net the page needs a place and a last paragraph: --out, --since")
    head = ["net", "plain, ms", "old, ms", "new, ms"]
    head += ["old, times plain", "new, times plain", "old/new"]
    nets = asked.net or NETS
    found = [lines(net, asked.turns, asked.samples, asked.against.resolve()) for net in nets]
    worth_head = ["net", "data", "gradient of", "variance ratio", "effective samples"]
    worth = [line for net in nets for line in effective_lines(net, asked.draws, asked.samples)]
    page = PAGE.format(
        nets=" and ".join(nets),
        options=_more_options(asked),
        data=" and ".join(f"{PROBLEMS[net]} ({net})" for net in nets),
        since=asked.since or SINCE_OF_CHAINS,
        turns=asked.turns,
        batch=BATCH,
        samples=asked.samples,
        table=table(head, found),
        worth=table(worth_head, worth, left=3),
        old=asked.old,
    )
    write_page(asked.out or OUT, page, TRAINING)


if __name__ == "__main__":
    main()
