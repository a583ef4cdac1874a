"""What I-BLM costs: against the plain loop over units, in seconds and memory, and as data grow.

    python benchmarks/iblm.py --threads 2 --out docs/results/iblm-speed.md

The plain loop is the one the tests judge by (tests/oracle.py) with a batch, a forward pass and a
Cholesky for every unit. MNIST and CIFAR10 are read from the folder that HEADSTART_DATA names.
Threads wait asleep (OMP_WAIT_POLICY=passive): beside a busy neighbor, threads that wait by spinning
make two threads fifteen times slower than one.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import matplotlib.pyplot as plt
import torch
from tables import peak, span, spread, table, write_page
from tests.oracle import Plain, plain_iblm_
from torch import nn

import headstart as hs
from headstart import data, models
from headstart.batching import Batches
from headstart.initializers.iblm import MIN_IMAGES, MIN_ROWS, iblm_
from headstart.initializers.registry import BATCH_SIZE
from headstart.initializers.settings import DEFAULT_SETTINGS, PAPER_SETTINGS, IBLMSettings
from headstart.linalg.blm import GRAM_BLOCK

NETS = {"mlp-5x100": "mnist", "mlp-3x1000": "mnist", "lenet": "mnist", "vgg16": "cifar10"}
UNITS_TIMED = {"mlp-5x100": None, "mlp-3x1000": 4, "lenet": 4}
"""Nets that race against the plain loop, and on how many units of a layer (None: all)."""
BASE = {"rows": 4096, "features": 256, "units": 256}
GROWTH = {
    "rows": [256, 512, 1024, 2048, 4096, 8192, 16384],
    "features": [16, 32, 64, 128, 256, 512, 1024, 2048],
    "units": [16, 32, 64, 128, 256, 512, 1024, 2048],
}
Call = Callable[..., Any]


def images(name: str) -> data.Images:
    """The training images of a net, as bytes that are scaled batch by batch."""
    parts = data.split(data.load(NETS[name]), 0)
    scaling = data.fit_scaling(parts, targets=False)
    return data.Images(
        parts.x_train, parts.y_train, scaling, batch_size=BATCH_SIZE, channels_last=True
    )


def fresh(name: str, source: data.Images) -> nn.Module:
    """A Bayesian net for these images."""
    return hs.bayesianize(models.create(name, tuple(source.x.shape[1:]), 10))


def seconds(call: Call, *args: Any, **options: Any) -> float:
    """Wall-clock time of a call."""
    start = time.perf_counter()
    call(*args, **options)
    return time.perf_counter() - start


def alone(call: Call, *args: Any) -> Any:
    """The result of a call in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(call, *args).result()


# (a) Against the plain loop.
@dataclass(frozen=True)
class Race:
    """Seconds of one net: the library's, and the plain loop's at the same and the paper's rows."""

    fast: list[float]
    plain: list[float]
    paper: list[float]


def race(name: str, threads: int, repeats: int) -> Race:
    """The library and the plain loop in turn, so that both meet the same machine."""
    torch.set_num_threads(threads)
    source = images(name)
    likelihood, found = hs.Categorical(10), Race([], [], [])
    each = replace(DEFAULT_SETTINGS, units_per_batch=1, read_out=False)
    hs.initialize_(fresh(name, source), "iblm", likelihood, source)
    for _ in range(repeats):
        model = fresh(name, source)
        found.fast.append(seconds(hs.initialize_, model, "iblm", likelihood, source))
        for settings, times in ((each, found.plain), (PAPER_SETTINGS, found.paper)):
            # No more than a unit of any layer uses.
            size = settings.rows or MIN_IMAGES
            small = data.Images(
                source.x, source.y, source.scaling, batch_size=size, channels_last=True
            )
            batches = Batches(small, like=model)
            times.append(plain_seconds(model, likelihood, batches, settings, UNITS_TIMED[name]))
    return found


@torch.no_grad()
def plain_seconds(
    model: nn.Module,
    likelihood: hs.Likelihood,
    batches: Batches,
    settings: IBLMSettings,
    timed: int | None,
) -> float:
    """The plain loop over all units, or scaled up from `timed` random units of each layer."""
    if timed is None:
        return seconds(plain_iblm_, model, likelihood, batches, settings)
    layers, total = hs.bayesian_layers(model), 0.0
    plain = Plain(
        model, likelihood, batches, settings, 10, next(iter(batches))[0][:2], len(layers) - 1
    )
    for number, layer in enumerate(layers.values()):
        count, stream = layer.posterior.units, plain.stream(layer, first=number == 0)
        chosen = torch.randperm(count)[:timed].tolist()
        total += seconds(plain.regress_, layer, stream, chosen) * count / len(chosen)
    return total


def race_table(name: str, found: Race) -> list[list[str]]:
    """A line for each rival, with how many times longer it takes."""
    timed = UNITS_TIMED[name]
    how = "every unit" if timed is None else f"{timed} units a layer, scaled up"
    lines = [[name, "I-BLM", "its own", spread(found.fast), "1"]]
    for rows, times in (("the same", found.plain), (f"{PAPER_SETTINGS.rows}", found.paper)):
        ratios = [slow / quick for slow, quick in zip(times, found.fast, strict=True)]
        cells = [name, f"plain loop ({how})", rows, spread(times)]
        lines.append([*cells, f"**{statistics.median(ratios):.3g}** ({span(ratios)})"])
    return lines


# (b) Seconds and memory.
def absolute(name: str, threads: int, repeats: int) -> tuple[list[float], float, float, float]:
    """Seconds of each repeat, CPU seconds of one, and peak memory before and after them, in GB."""
    torch.set_num_threads(threads)
    source = images(name)
    before, start = peak(), time.process_time()
    times = [
        seconds(hs.initialize_, fresh(name, source), "iblm", hs.Categorical(10), source)
        for _ in range(repeats)
    ]
    return times, (time.process_time() - start) / repeats, before, peak()


def growth(axis: str, threads: int, repeats: int) -> list[float]:
    """Seconds of the first layer of a net, the best of some repeats, at each size along an axis."""
    torch.set_num_threads(threads)
    return [min(one_layer(**{**BASE, axis: size}) for _ in range(repeats)) for size in GROWTH[axis]]


def one_layer(rows: int, features: int, units: int) -> float:
    """Seconds of one hidden layer: its batches, its regression and its rescaling."""
    x, y = torch.randn(2 * rows, features), torch.randint(10, (2 * rows,))
    model = hs.bayesianize(
        nn.Sequential(nn.Linear(features, units), nn.ReLU(), nn.Linear(units, 10))
    )
    batches = Batches((x, y), batch_size=1024, like=model)
    return seconds(
        next, iblm_(model, hs.Categorical(10), batches, replace(DEFAULT_SETTINGS, rows=rows))
    )


def arithmetic(rows: int, features: int, units: int) -> dict[str, float]:
    """Multiply-adds of one hidden layer whose units share their noise."""
    n, d, u = rows, features + 1, units
    return {
        # What lies above the diagonal is copied.
        "Gram N·D²": n * d * d * (1 if d < 2 * GRAM_BLOCK else 0.5 + GRAM_BLOCK / d / 2),
        "random projections N·D·U, in single precision": n * d * u / 2,
        "moments N·D·U": n * d * u,
        "Cholesky D³/6": d**3 / 6,
        "solves D²·U": d * d * u,
        # Two products at twice the speed.
        "rescaling 2·N·D·U, in single precision": min(n, MIN_ROWS) * d * u,
    }


def slope(sizes: Iterable[float], values: Iterable[float]) -> float:
    """The exponent of the last four points: least squares in logarithms."""
    xs, ys = ([math.log(v) for v in list(part)[-4:]] for part in (sizes, values))
    return statistics.linear_regression(xs, ys).slope


def predicted(axis: str) -> list[float]:
    """The arithmetic along an axis."""
    return [sum(arithmetic(**{**BASE, axis: size}).values()) for size in GROWTH[axis]]


def draw_growth(measured: dict[str, list[float]], path: Path) -> None:
    """A panel for each axis: seconds measured, and the arithmetic at one common speed."""
    speed = statistics.median(
        flops / t
        for axis, times in measured.items()
        for flops, t in zip(predicted(axis)[-4:], times[-4:], strict=True)
    )
    plt.rcParams["svg.hashsalt"] = "headstart"
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.4), sharey=True, constrained_layout=True)
    for panel, (axis, times) in zip(panels, measured.items(), strict=True):
        panel.loglog(
            GROWTH[axis], times, "o-", label=f"measured, slope {slope(GROWTH[axis], times):.2f}"
        )
        line = [flops / speed for flops in predicted(axis)]
        panel.loglog(
            GROWTH[axis],
            line,
            "--",
            color="0.5",
            label=f"arithmetic, slope {slope(GROWTH[axis], line):.2f}",
        )
        others = ", ".join(f"{value} {name}" for name, value in BASE.items() if name != axis)
        panel.set(xlabel=axis, title=others)
        panel.legend(frameon=False)
    panels[0].set_ylabel("seconds of one hidden layer")
    figure.savefig(path, metadata={"Date": None})


# The page.
def main() -> None:
    """Measure everything and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("docs/results/iblm-speed.md"))
    asked = parser.parse_args()
    load = os.getloadavg()[0]
    absolutes, races = [], []
    for name in NETS:
        times, cpu, before, after = alone(absolute, name, asked.threads, asked.repeats)
        absolutes.append(
            [name, NETS[name], spread(times), f"{cpu:.3g}", f"{before:.2f}", f"{after:.2f}"]
        )
        print(*absolutes[-1], flush=True)
    measured = {axis: alone(growth, axis, asked.threads, 3) for axis in GROWTH}
    print(measured, flush=True)
    for name in UNITS_TIMED:
        races += race_table(name, alone(race, name, asked.threads, 3))
        print(*races[-3:], sep="\n", flush=True)
    figure = asked.out.with_suffix(".svg")
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    draw_growth(measured, figure)
    slopes = [
        [
            axis,
            f"{sizes[0]}–{sizes[-1]}",
            f"{slope(sizes, measured[axis]):.2f}",
            f"{slope(sizes, predicted(axis)):.2f}",
        ]
        for axis, sizes in GROWTH.items()
    ]
    base = arithmetic(**BASE)
    shares = ", ".join(f"{what} {work / sum(base.values()):.0%}" for what, work in base.items())
    write_page(
        asked.out,
        PAGE.format(
            command="python benchmarks/iblm.py "
            f"--threads {asked.threads} --repeats {asked.repeats}",
            threads=asked.threads,
            load=load,
            absolutes=table(
                ["net", "images", "seconds", "CPU seconds", "peak GB before", "peak GB after"],
                absolutes,
                left=2,
            ),
            races=table(
                ["net", "how", "rows of a regression", "seconds", "times I-BLM"], races, left=2
            ),
            figure=figure.name,
            slopes=table(
                ["axis", "from–to", "measured slope", "slope of the arithmetic"], slopes, left=2
            ),
            shares=shares,
        ),
    )


PAGE = """# What I-BLM costs

    {command}

MNIST (60 000 images) and CIFAR10 (50 000), {threads} threads, torch's threads waiting asleep;
median (range) over repeats. The machine was shared: its load was {load:.1f} when this began, and a
range that is wide says that a neighbor was busy.

## Seconds and memory

{absolutes}

CPU seconds are summed over threads: where they are no more than the seconds, neighbors left the
process one core. Peak memory is that of the whole process; before the initialization it holds torch
and the images as bytes.

## Against the plain loop

Each unit with a batch, a forward pass and a Cholesky of its own, as Algorithm 1 reads, in turn with
the library in the same process. The loop is given less to do: its last layer sees one batch a unit
where the library's sees thousands of rows. The paper's 256 rows a unit are a smaller problem than
the library's; the loop is timed on it all the same.

{races}

## Growth

One hidden layer, classes as labels, default settings; one axis at a time, the others at {base}.

![Seconds against rows, features and units]({figure})

{slopes}

Slopes are over the last four points. In multiply-adds, with N rows, D features and U units:
{shares} at the middle point. Over rows everything that is summed over rows is linear, but rescaling
takes 4096 of them at most; over units the Gram matrix and its factor, shared by all units, are a
constant, so the slope reaches 1 only where U is well above D; over features N·D² takes over from
N·D·U where D exceeds U, and D³ would where D exceeds N, but there the dual (an N×N factor) steps
in. At the left of the last two panels the time is that of what the axis does not touch: passes over
the N×U targets (features), the Gram matrix and the batches (units). It is why the measured slope
over features lies below that of the multiply-adds, which leave such passes out.
""".replace("{base}", ", ".join(f"{value} {name}" for name, value in BASE.items()))


if __name__ == "__main__":
    main()
