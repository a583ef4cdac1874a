"""Two ranks against one, the bytes that ranks exchange, and what that makes of more workers.

    python benchmarks/scaling.py --out docs/results/scaling.md

Starts itself under torchrun with two ranks (gloo). They take turns: the first alone, then both,
block after block, so that a busy neighbor slows both alike. Random images and labels; seed 0.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from tables import TRAINING, span, table, write_page

import headstart as hs
from headstart.distributed.rows import ShardedRows
from headstart.reporting.plots import COLORS, SVG_STYLE

CASES = {"mlp-5x100": ((784,), 256, 16), "lenet": ((1, 28, 28), 64, 16)}
"""Inputs, rows of the global batch, samples."""
ROWS, CLASSES = 8192, 10
STEPS_OF_A_BLOCK = 8
SIZES = [2**power for power in range(8, 23, 2)]
"""Numbers in a message whose time is taken."""
WORKERS = [2**power for power in range(11)]
BATCH, WEAK_ROWS = 1024, 64
"""Rows of a batch that workers divide, and of each worker where the batch grows with them."""
NETWORKS = {"this machine, gloo": None, "assumed: 12.5 GB/s, 10 µs": (10e-6, 12.5e9)}
"""Seconds of a hop and bytes a second; None is measured."""
CLOCK, PROCESSOR = 0, 1
Found = dict[str, Any]


class Traffic:
    """What ranks have sent, from here on."""

    messages = bytes = 0

    def __init__(self) -> None:
        plain = ShardedRows.sum

        def counted(rows: ShardedRows, values: torch.Tensor) -> torch.Tensor:
            self.messages, self.bytes = (
                self.messages + 1,
                self.bytes + values.numel() * values.element_size(),
            )
            return plain(rows, values)

        ShardedRows.sum = counted  # type: ignore[method-assign]

    def since(self, before: tuple[int, int]) -> tuple[int, int]:
        return self.messages - before[0], self.bytes - before[1]


def problem(name: str) -> tuple[torch.nn.Module, hs.Likelihood, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    shape = CASES[name][0]
    x, y = torch.randn(ROWS, *shape), torch.randint(CLASSES, (ROWS,))
    return hs.bayesianize(hs.models.create(name, shape, CLASSES)), hs.Categorical(CLASSES), (x, y)


def stepping(name: str, fabric: Any, batch: int | None = None) -> Iterator[Any]:
    model, likelihood, data = problem(name)
    _, rows, samples = CASES[name]
    return hs.steps(
        model,
        likelihood,
        data,
        steps=10**9,
        samples=samples,
        batch_size=batch or rows,
        fabric=fabric,
    )


def turns(
    fabric: Any, acts: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, list[list[float]]]:
    """Seconds of each act, by the clock and by the first rank's processor; `one`: it alone."""
    times: dict[str, list[list[float]]] = {name: [] for name in acts}
    for number in range(rounds + 1):
        for name, act in acts.items():
            fabric.barrier()
            clock, processor = time.perf_counter(), time.process_time()
            if fabric.global_rank == 0 or not name.startswith("one"):
                act()
            busy = time.process_time() - processor
            fabric.barrier()
            # The first round is torch's own start.
            if number:
                times[name].append([time.perf_counter() - clock, busy])
    return times


def block(loop: Iterator[Any]) -> Callable[[], None]:
    def act() -> None:
        for _ in range(STEPS_OF_A_BLOCK):
            next(loop)

    return act


def measure(fabric: Any, rounds: int) -> Found:
    """On each of two ranks."""
    traffic, few = Traffic(), max(2, rounds // 3)
    found: Found = {"cases": {}, "messages": {}}
    for name, (_, batch, _) in CASES.items():
        loops = {
            "one": stepping(name, None),
            "two": stepping(name, fabric),
            "both, half a batch, nothing exchanged": stepping(name, None, batch // 2),
            "both, an eighth, nothing exchanged": stepping(name, None, batch // 8),
        }
        next(loops["two"])
        before = traffic.since((0, 0))
        next(loops["two"])
        case: Found = {"step": traffic.since(before)}
        case["steps"] = turns(fabric, {label: block(loop) for label, loop in loops.items()}, rounds)
        case["weights"] = sum(
            layer.posterior.mean.numel() for layer in hs.bayesian_layers(problem(name)[0]).values()
        )
        before = traffic.since((0, 0))
        case["iblm"] = turns(
            fabric, {"one": partial(start, name, None), "two": partial(start, name, fabric)}, few
        )
        case["start"] = [count / (few + 1) for count in traffic.since(before)]
        model, likelihood, (x, _) = problem(name)
        ask = partial(hs.predict, model, likelihood, x[:1024], 32, seed=0)
        case["predict"] = turns(fabric, {"one": ask, "two": partial(ask, fabric=fabric)}, few)
        found["cases"][name] = case
    for size in SIZES:
        each = turns(fabric, {"sum": partial(sums, torch.zeros(size))}, 9)["sum"]
        found["messages"][size * 4] = statistics.median(clock for clock, _ in each) / 20
    return found


def sums(message: torch.Tensor) -> None:
    for _ in range(20):
        torch.distributed.all_reduce(message)


def start(name: str, fabric: Any) -> None:
    model, likelihood, data = problem(name)
    hs.initialize_(model, "iblm", likelihood, data, seed=0, fabric=fabric)


def network(messages: dict[str, float]) -> tuple[float, float]:
    """Seconds of a hop and bytes a second: least squares of `t = 2 · hop + bytes / speed`."""
    size, seconds = (
        np.array(part, dtype=float)
        for part in zip(*((int(k), v) for k, v in messages.items()), strict=True)
    )
    design = np.stack([2 / seconds, size / seconds], axis=1)
    hop, per_byte = np.linalg.lstsq(design, np.ones(len(size)), rcond=None)[0]
    return float(max(hop, 1e-7)), float(1 / per_byte)


def exchange(workers: int, size: int, hop: float, speed: float) -> float:
    """Seconds of a ring: `2 (w − 1)` hops, each with a w-th of the message."""
    return 2 * (workers - 1) * (hop + size / workers / speed)


def compute(case: Found, batch: int) -> tuple[float, float]:
    """Seconds of a step that every rank repeats, and of each row, from two sizes of the batch."""
    few, many = (
        middle(case["steps"][f"both, {part}, nothing exchanged"], PROCESSOR) / STEPS_OF_A_BLOCK
        for part in ("an eighth", "half a batch")
    )
    row = (many - few) / (batch // 2 - batch // 8)
    return max(0.0, few - row * (batch // 8)), row


def middle(times: list[list[float]], which: int) -> float:
    return statistics.median(each[which] for each in times)


def draw(found: Found, path: Path) -> list[list[str]]:
    """Speed beside one worker, strong and weak; returns lines of the table."""
    measured, lines = network(found["messages"]), []
    styles = dict(zip(NETWORKS, ("-", ":"), strict=True))
    with plt.rc_context(SVG_STYLE):
        figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
        for (name, case), color in zip(
            found["cases"].items(), (COLORS["iblm"], COLORS["orthogonal"]), strict=True
        ):
            fixed, row = compute(case, CASES[name][1])
            for label, given in NETWORKS.items():
                hop, speed = given or measured

                waits = [exchange(w, case["step"][1], hop, speed) for w in WORKERS]
                divided, each = fixed + row * BATCH, fixed + row * WEAK_ROWS
                strong = [
                    divided / (fixed + row * BATCH / w + wait)
                    for w, wait in zip(WORKERS, waits, strict=True)
                ]
                weak = [w * each / (each + wait) for w, wait in zip(WORKERS, waits, strict=True)]
                for panel, line in zip(panels, (strong, weak), strict=True):
                    panel.loglog(
                        WORKERS, line, styles[label], color=color, label=f"{name}, {label}"
                    )
                best = int(np.argmax(strong))
                lines.append(
                    [name, label, f"{strong[best]:.1f} at {WORKERS[best]}", f"{strong[-1]:.2f}"]
                    + [f"{weak[WORKERS.index(w)] / w:.0%}" for w in (2, 8, 64, 1024)]
                )
        for panel, title in zip(
            panels, ("a batch of 1024 rows, divided", "64 rows for each worker"), strict=True
        ):
            panel.loglog(WORKERS, WORKERS, color="0.8", zorder=0)
            panel.set_xlabel("workers")
            panel.set_title(title)
            panel.set_xticks(WORKERS[::2], [str(w) for w in WORKERS[::2]])
            panel.minorticks_off()
        panels[0].set_ylabel("rows a second, beside one worker")
        panels[0].legend(frameon=False, fontsize=7)
        figure.savefig(path, metadata={"Date": None})
    return lines


def ratio(times: dict[str, list[list[float]]], which: int) -> str:
    """How many times as fast two are, round by round."""
    each = [one[which] / two[which] for one, two in zip(times["one"], times["two"], strict=True)]
    return f"{statistics.median(each):.2f} ({span(each)})"


def line(words: list[str], times: dict[str, list[list[float]]], scale: float) -> list[str]:
    clock, processor = (
        [
            *(f"{scale * middle(times[who], which):.3g}" for who in ("one", "two")),
            ratio(times, which),
        ]
        for which in (CLOCK, PROCESSOR)
    )
    return [*words, *clock, *processor]


def page(found: Found, command: str, load: float, figure: Path) -> str:
    cases = found["cases"]
    lines = [
        line([name, what], case[key], scale)
        for key, what, scale in (
            ("steps", "a step, ms", 1e3 / STEPS_OF_A_BLOCK),
            ("iblm", "initialize_, s", 1.0),
            ("predict", "predict, s", 1.0),
        )
        for name, case in cases.items()
    ]
    traffic = [
        [
            name,
            f"{case['weights']:,}",
            str(case["step"][0]),
            f"{case['step'][1]:,}",
            f"{case['start'][0]:.0f}",
            f"{case['start'][1]:,.0f}",
        ]
        for name, case in cases.items()
    ]
    hop, speed = network(found["messages"])
    head = [
        "net",
        "what",
        "one",
        "two",
        "times as fast",
        "processor: one",
        "each of two",
        "times as little",
    ]
    return PAGE.format(
        command=command,
        load=load,
        lines=table(head, lines, left=2),
        traffic=table(
            [
                "net",
                "weights",
                "messages a step",
                "bytes a step",
                "messages of I-BLM",
                "bytes of I-BLM",
            ],
            traffic,
        ),
        messages=table(
            ["bytes", "milliseconds"],
            [
                [f"{int(size):,}", f"{1e3 * seconds:.3f}"]
                for size, seconds in found["messages"].items()
            ],
            left=0,
        ),
        hop=1e6 * hop,
        speed=speed / 1e9,
        model="; ".join(
            f"{name}: {1e3 * fixed:.1f} ms and {1e6 * row:.0f} µs a row"
            for name, (fixed, row) in (
                (name, compute(case, CASES[name][1])) for name, case in cases.items()
            )
        ),
        figure=figure.name,
        scaling=table(
            [
                "net",
                "network",
                "divided: most",
                "divided: at 1024",
                "weak: at 2",
                "at 8",
                "at 64",
                "at 1024",
            ],
            draw(found, figure),
            left=2,
        ),
    )


PAGE = """# Two ranks against one, and a model of more

    {command}

Two ranks with one thread each (gloo) against the first of them alone, in turn in one run, on a
machine with two cores; medians, and ranges over the turns. A step of mlp-5x100 is on 256 rows, of
LeNet on 64, with 16 samples; I-BLM on 8192 rows; 32 draws of 1024 rows. The machine was shared: its
load was {load:.1f} when this began. Beside the clock stands the processor time of the first rank:
what two ranks would gain without neighbors, the waiting apart.

{lines}

I-BLM solves its systems on every rank, and draws the noise of all rows on each; what is divided is
forward passes and Gram matrices.

## What is exchanged

{traffic}

A step is one message: a number for each learned parameter (a mean and a log-variance for each
weight), the three parts of the loss and the number of rows, 4 bytes each. I-BLM's messages are Gram
matrices, right-hand sides, means and variances, 8 bytes a number, and the parameters at the end;
all of them once, before training.

## Messages

An all-reduce of two ranks over loopback:

{messages}

By least squares (relative): a hop takes {hop:.0f} µs, and {speed:.2f} GB a second go through.

## A model of more workers

`t(w) = fixed + rows(w) · row + 2 (w − 1) · (hop + bytes / (w · speed))`

`fixed` is what every rank repeats (KL, optimizer, Python), `row` the work for each row, both from
the processor time of steps with an eighth and with half of the batch, nothing exchanged: {model}.
The last term is a ring that begins when the gradients are there, as it does here.

![Speed beside one worker, to 1024 workers]({figure})

{scaling}

`divided` is a batch of 1024 rows divided among all workers, in times the speed of one; `weak` 64
rows for each worker, in per cent of the ideal.

Assumptions: every worker is as fast as a rank here; all links are alike and used by nothing else;
messages are rings (libraries switch to trees for many workers, whose latency grows with log w, not
w); nothing overlaps; loading the data costs nothing. The first network is this machine's loopback
under gloo, the second a made-up one of 100 Gbit/s: its lines are no measurement. Nothing beyond two
workers was run.
"""


def main() -> None:
    """Measure everything and write the page; or, under torchrun, be one of its ranks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path("docs/results/scaling.md"))
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.into is not None:
        from lightning_fabric import Fabric

        torch.set_num_threads(1)
        fabric = Fabric(accelerator="cpu", devices=2)
        fabric.launch()
        found = measure(fabric, asked.rounds)
        if fabric.global_rank == 0:
            asked.into.write_text(json.dumps(found))
        # Its threads would abort the interpreter's end.
        torch.distributed.destroy_process_group()
        return
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder) / "found.json"
        ranks = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            __file__,
        ]
        subprocess.run(
            [*ranks, "--rounds", str(asked.rounds), "--into", str(into)],
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        found = json.loads(into.read_text())
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    command = f"python benchmarks/scaling.py --rounds {asked.rounds} --out {asked.out}"
    write_page(asked.out, page(found, command, load, asked.out.with_suffix(".svg")), TRAINING)


if __name__ == "__main__":
    main()
