"""I-BLM of this code and of another checkout, in turn: CPU seconds, and quality after the start.

    HEADSTART_DATA=folder python benchmarks/iblm_turns.py --against ../other-checkout

Each start has a process of its own with one thread, old and new by turns with the same seed, so
that both meet the same machine. Ratios are of CPU seconds, pair by pair. The quality is that of
2000 rows which were taken out of the training images, never of test rows. Rows are appended to
`--rows` as they are made, and what is there is not made again; `benchmarks/iblm.py` measures what
a start costs beside the plain loop, and how that grows.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from tables import peak, span, spread, table, write_page

import headstart as hs
from headstart import data, models
from headstart.initializers.registry import BATCH_SIZE

NETS = {"mlp-5x100": "mnist", "lenet": "mnist", "mlp-3x1000": "mnist", "vgg16": "cifar10"}
VALIDATION = 2000
DRAWS = {"vgg16": 2}
"""Draws of the net for its predictions, where they are not 16."""
ROOT = Path(__file__).resolve().parents[1]


def start(name: str, seed: int) -> dict[str, Any]:
    """One start of a net: CPU seconds, NLL and error on validation rows."""
    torch.set_num_threads(1)
    parts = data.split(data.load(NETS[name]), 0)
    scaling = data.fit_scaling(parts, targets=False)
    order = torch.randperm(len(parts.x_train), generator=torch.Generator().manual_seed(0))
    held_out, kept = order[:VALIDATION], order[VALIDATION:]
    source = data.Images(
        parts.x_train[kept],
        parts.y_train[kept],
        scaling,
        batch_size=BATCH_SIZE,
        channels_last=True,
    )
    torch.manual_seed(seed)
    model = hs.bayesianize(models.create(name, tuple(source.x.shape[1:]), 10))
    began = time.process_time()
    hs.initialize_(model, "iblm", hs.Categorical(10), source)
    seconds = time.process_time() - began
    rows = data.Images(
        parts.x_train[held_out],
        parts.y_train[held_out],
        scaling,
        batch_size=VALIDATION,
        channels_last=True,
    )
    x, y = next(iter(rows))
    with torch.no_grad():
        probs = hs.draw(model, x, DRAWS.get(name, 16), "weights").softmax(-1).mean(0)
    nll = -probs[torch.arange(len(y)), y].clamp_min(1e-30).log().mean()
    error = (probs.argmax(-1) != y).double().mean()
    return {"cpu": seconds, "nll": float(nll), "error": float(error), "peak": peak()}


def run_one(source: Path, name: str, seed: int) -> dict[str, Any]:
    """`start` in a process of its own, with the code of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(source / "src")}
    command = [sys.executable, __file__, "--one", name, str(seed)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    row: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return row


def measure(nets: list[str], seeds: int, against: Path, path: Path) -> list[dict[str, Any]]:
    """All rows, those that are missing made now."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(row["net"], row["seed"], row["code"]) for row in rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    for seed in range(seeds):
        for name in nets:
            for code, source in (("old", against), ("new", ROOT)):
                if (name, seed, code) in done:
                    continue
                key = {"net": name, "seed": seed, "code": code}
                row = {**key, **run_one(source.resolve(), name, seed)}
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)
                rows.append(row)
    return rows


def lines(rows: list[dict[str, Any]]) -> list[list[str]]:
    """A line for each net, of the seeds that both codes have."""
    found = []
    for name in NETS:
        by_code = [
            {row["seed"]: row for row in rows if row["net"] == name and row["code"] == code}
            for code in ("old", "new")
        ]
        seeds = sorted(by_code[0].keys() & by_code[1].keys())
        if not seeds:
            continue
        old, new = ([each[seed] for seed in seeds] for each in by_code)
        ratios = [a["cpu"] / b["cpu"] for a, b in zip(old, new, strict=True)]
        cells = [name, NETS[name], f"{len(seeds)}"]
        cells += [spread([row["cpu"] for row in each]) for each in (old, new)]
        cells.append(f"**{statistics.median(ratios):.2f}** ({span(ratios)})")
        cells += [spread([row["nll"] for row in each]) for each in (old, new)]
        cells += [f"{max(row['peak'] for row in each):.2f}" for each in (old, new)]
        found.append(cells)
    return found


PAGE = """# I-BLM beside an earlier version{some}

    {command}

Old and new in turn, a process and one thread each, the same seeds; median (range) over seeds.
Ratios are of CPU seconds, seed by seed.
NLL after the start, before any training, on 2000 rows taken out of the training images.

{table}

Rows go through a chain of layers once, and those of the read-out serve every layer but the first.
Before, each layer had rows of its own, whose passes began at the inputs of the net.
What hidden units copy from their inputs is read off the Gram matrix, not computed row by row.
"""


def main() -> None:
    """Measure what is missing and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--one", nargs=2, metavar=("NET", "SEED"))
    parser.add_argument("--against", type=Path)
    parser.add_argument("--nets", nargs="+", default=list(NETS), choices=list(NETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=Path, default=Path("out/iblm-turns.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("docs/results/iblm-turns.md"))
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(start(asked.one[0], int(asked.one[1]))))
        return
    if asked.against is None:
        parser.error("name the folder of another checkout: --against FOLDER")
    rows = measure(asked.nets, asked.seeds, asked.against, asked.rows)
    head = ["net", "images", "seeds", "CPU s, old", "CPU s, new", "old/new"]
    head += ["NLL, old", "NLL, new", "peak GB, old", "peak GB, new"]
    command = f"python benchmarks/iblm_turns.py --against CHECKOUT --seeds {asked.seeds}"
    some = "" if asked.nets == list(NETS) else f": {' and '.join(asked.nets)}"
    command += f" --nets {' '.join(asked.nets)}" if some else ""
    found = table(head, lines(rows), left=2)
    write_page(asked.out, PAGE.format(command=command, table=found, some=some))


if __name__ == "__main__":
    main()
