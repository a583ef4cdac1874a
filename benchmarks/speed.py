"""What a training step costs beside plain torch and other libraries, and what it is worth.

    python benchmarks/speed.py --threads 2 --rounds 7 --out docs/results/speed.md

    python benchmarks/speed.py --effective-samples --threads 1

prints only what the samples of a step are worth, beside independent ones, before the first step.

Everything that is compared takes turns in one process. Other libraries are measured where they are
installed (docs/bench.md). MNIST and PROTEIN are read from the folder that HEADSTART_DATA names.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from gradient_noise import PROBLEMS, SAMPLES, STEPS, effective_samples, worth
from tables import peak, table, write_page

import headstart as hs
from headstart.bench.cases import CASES, Case
from headstart.bench.command import TABLE_HEAD, run_benchmarks, table_cells, time_case
from headstart.bench.rivals import RIVALS, TORCH_ON_BATCH, TORCH_ON_SAMPLES
from headstart.reporting.plots import COLORS, SVG_STYLE

BASE = CASES["mlp-5x100"]
GROWTH: dict[str, dict[int, Case]] = {
    "samples": {s: replace(BASE, samples=s) for s in (1, 4, 16, 64)},
    "rows of the batch": {b: replace(BASE, batch=b) for b in (16, 64, 256)},
    "width": {w: replace(BASE, model=f"mlp-5x{w}") for w in (50, 100, 200, 400)},
    "depth": {d: replace(BASE, model=f"mlp-{d}x100") for d in (1, 2, 5, 10)},
    "samples, lenet": {s: replace(CASES["lenet"], samples=s) for s in (1, 4, 16)},
}
MINE = [rival for rival in RIVALS if rival.name in (TORCH_ON_BATCH, TORCH_ON_SAMPLES, "headstart")]
LINE_COLORS = {
    "torch, S·B rows none": "0.4",
    "headstart local": COLORS["iblm"],
    "headstart weights": COLORS["orthogonal"],
}


def growth(rounds: int) -> dict[str, dict[int, list[dict[str, Any]]]]:
    """The rows of plain torch and headstart for every size on every axis."""
    found: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for axis, cases in GROWTH.items():
        found[axis] = {
            size: time_case(f"{axis} {size}", case, MINE, rounds) for size, case in cases.items()
        }
        print(
            axis,
            {size: [round(row["ratio"], 2) for row in rows] for size, rows in found[axis].items()},
            flush=True,
        )
    return found


def draw_growth(found: Mapping[str, Mapping[int, list[dict[str, Any]]]], path: Path) -> None:
    """A panel for each axis: milliseconds of a step."""
    with plt.rc_context(SVG_STYLE):
        figure, panels = plt.subplots(
            1, len(found), figsize=(3 * len(found), 3.2), layout="constrained"
        )
        for panel, (axis, sizes) in zip(panels, found.items(), strict=True):
            for title, color in LINE_COLORS.items():
                line = [
                    1e3 * row["seconds"]
                    for rows in sizes.values()
                    for row in rows
                    if _title(row) == title
                ]
                panel.loglog(
                    list(sizes),
                    line,
                    marker="o",
                    ms=4,
                    color=color,
                    label=title.replace(" none", ""),
                )
            panel.set_xlabel(axis)
            panel.set_xticks(list(sizes), [str(size) for size in sizes])
            panel.minorticks_off()
        panels[0].set_ylabel("milliseconds of a step")
        panels[0].legend(frameon=False, fontsize=8)
        figure.savefig(path, metadata={"Date": None})


def _title(row: Mapping[str, Any]) -> str:
    return f"{row['library']} {row['sampler']}"


def growth_table(found: Mapping[str, Mapping[int, list[dict[str, Any]]]]) -> str:
    """How many times plain torch's step on S·B rows; for one sample also of that on B rows."""
    lines = []
    for axis, sizes in found.items():
        for size, rows in sizes.items():
            by_title = {_title(row): row for row in rows}
            local, weights = (by_title[f"headstart {sampler}"] for sampler in ("local", "weights"))
            lines.append(
                [
                    axis,
                    str(size),
                    *(f"{row['ratio']:.2f}" for row in (local, weights)),
                    f"{local['memory_ratio']:.2f}",
                ]
            )
    return table(["axis", "size", "local", "weights", "memory, local"], lines)


def predicting(sampler: str, samples: int, rows: int, threads: int) -> tuple[float, float, float]:
    """Seconds of a prediction, and the process's peak memory before and after, in GB."""
    torch.set_num_threads(threads)
    model, x = hs.bayesianize(CASES["lenet"].net()), torch.randn(rows, 1, 28, 28)
    hs.predict(model, hs.Categorical(10), x[:10], samples=2, sampler=sampler)
    before, start = peak(), time.perf_counter()
    hs.predict(model, hs.Categorical(10), x, samples=samples, sampler=sampler, seed=0)
    return time.perf_counter() - start, before, peak()


def alone(call: Callable[..., Any], *arguments: Any) -> Any:
    """In a process of its own, whose peak memory is its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(call, *arguments).result()


def main() -> None:
    """Measure everything and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--draws", type=int, default=64, help="Gradients whose variance is taken.")
    parser.add_argument("--out", type=Path, default=Path("docs/results/speed.md"))
    parser.add_argument(
        "--effective-samples", action="store_true", help="Print only that; write no page."
    )
    parser.add_argument(
        "--samples", type=int, default=SAMPLES, help="Of a step, with --effective-samples."
    )
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    if asked.effective_samples:
        print(effective_samples(asked.draws, asked.samples))
        return
    load = os.getloadavg()[0]
    rows = run_benchmarks(list(CASES), rounds=asked.rounds, threads=asked.threads)
    steps = "\n\n".join(
        _steps(name, [row for row in rows if row["case"] == name]) for name in CASES
    )
    found = growth(asked.rounds)
    figure = asked.out.with_suffix(".svg")
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    draw_growth(found, figure)
    gradients = [line for net in PROBLEMS for line in worth(net, asked.draws, asked.rounds)]
    predictions = []
    for sampler in ("local", "weights"):
        for images in (1000, 10_000):
            seconds, before, after = alone(predicting, sampler, 128, images, asked.threads)
            predictions.append(
                [sampler, str(images), f"{seconds:.1f}", f"{before:.2f}", f"{after:.2f}"]
            )
            print(*predictions[-1], flush=True)
    write_page(
        asked.out,
        PAGE.format(
            command=f"python benchmarks/speed.py --threads {asked.threads} "
            f"--rounds {asked.rounds} --draws {asked.draws}",
            threads=asked.threads,
            load=load,
            steps=steps,
            figure=figure.name,
            growth=growth_table(found),
            draws=asked.draws,
            warm=STEPS,
            effective=effective_samples(asked.draws),
            gradients=table(
                [
                    "net",
                    "data",
                    "estimator",
                    "noise: means",
                    "noise: log-variances",
                    "with batches: means",
                    "with batches: log-variances",
                    "seconds",
                    "× seconds: means",
                    "× seconds: log-variances",
                ],
                gradients,
                left=3,
            ),
            predictions=table(
                ["draws", "images", "seconds", "peak GB before", "peak GB after"], predictions
            ),
        ),
        "headstart.bench.command",
    )


def _steps(name: str, rows: list[dict[str, Any]]) -> str:
    lines = table(list(TABLE_HEAD), [table_cells(row) for row in rows], left=2)
    return f"### {name}, {rows[0]['samples']} samples\n\n{lines}"


PAGE = """# What a step costs

    {command}

One training step, 64 rows, {threads} threads; every library in turn in one process, medians and
ranges over the turns. The machine was shared: its load was {load:.1f} when this began. Only the
ratios mean anything. What is compared, and how to install the other libraries: [How fast is a
step?](../bench.md).

## Beside plain torch and other libraries

`times S·B rows` is beside a deterministic step of the same net on as many rows as the samples make,
`times B rows` beside one on the batch. Memory is the batch and what a step allocates at its peak.

{steps}

## Growth

From mlp-5x100 with 16 samples and 64 rows, one axis at a time; and LeNet over samples. The table
holds ratios to the deterministic step on S·B rows.

![Milliseconds of a step against samples, rows, width and depth]({figure})

{growth}

## What a gradient is worth

The variance of the gradient of the expected log-likelihood (batches of 64, 16 samples, {draws}
gradients), I-BLM's start and {warm} steps of SVI behind it, all relative to sixteen independent
samples of the outputs. `noise` is what the draws alone make on one batch, `with batches` the whole:
what a step has to put up with. `× seconds` multiplies the whole by the time of a gradient: the
price of precision. The other libraries draw weights afresh for each sample: their variance is that
of the last line but one, their seconds are above.

{gradients}

### Effective number of samples

The variance that the draws alone make in the gradient before the first step, sixteen samples that
share early draws beside sixteen independent ones; medians and ranges over five batches. Sixteen
divided by that ratio is the number of independent samples that would be as precise.

{effective}

## Prediction

128 draws of LeNet, peak memory of the whole process.

{predictions}
"""


if __name__ == "__main__":
    main()
