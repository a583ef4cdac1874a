"""`fit` until converged on two small tables: test scores on their published splits.

    HEADSTART_DATA=... python benchmarks/small_tables.py --splits 5

A net with one hidden layer of 50 units, I-BLM, batches of 64 rows, everything else by default.
Rows are appended to --out as they are made; what is there already is not run again.
The defaults were chosen on validation rows of these tables that are no test rows of the first five
splits (docs/step-sizes.md). Other splits share rows with those.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch

import headstart as hs
from headstart.experiments.code import code_hash

TABLES = ("energy", "concrete")
TRAININGS: dict[str, dict[str, Any]] = {
    "averaged": {},
    "adam": {"optimizer": "adam", "steps": 2000},
    "adam 1e-2, cosine": {"lr": 1e-2, "lr_schedule": "cosine", "steps": 2000},
}


def run(table: str, split: int, training: str, samples: int) -> dict[str, Any]:
    """Train on the training rows of a split and score its test rows, in the target's units."""
    folder = Path(os.environ["HEADSTART_DATA"]) / table
    with gzip.open(folder / "data.txt.gz", "rt") as file:
        rows = torch.tensor(np.loadtxt(file), dtype=torch.float64)
    held = torch.as_tensor(np.load(folder / "splits.npz")[f"test_{split}"].astype("int64"))
    keep = torch.ones(len(rows), dtype=torch.bool)
    keep[held] = False
    mean, sd = rows[keep].mean(0), rows[keep].std(0).clamp_min(1e-12)
    scaled = ((rows - mean) / sd).float()
    (x, y), test = (
        (part[:, :-1].contiguous(), part[:, -1:].contiguous())
        for part in (scaled[keep], scaled[~keep])
    )
    torch.manual_seed(split)
    model = hs.bayesianize(hs.models.create("mlp-1x50", x.shape[1], 1))
    likelihood = hs.Gaussian()
    hs.initialize_(model, "iblm", likelihood, (x, y), seed=split)
    history = hs.fit(
        model,
        likelihood,
        (x, y),
        samples=samples,
        progress=False,
        seed=split,
        **TRAININGS[training],
    )
    scores = hs.evaluate(model, likelihood, test, samples=256, seed=0)
    return {
        "nll": scores["mnll"] + math.log(float(sd[-1])),
        "rmse": scores["rmse"] * float(sd[-1]),
        "coverage_95": scores["coverage_95"],
        "steps": len(history.steps),
        "stopped": history.stopped,
        "seconds": round(history.steps[-1].seconds, 1),
    }


def main() -> None:
    """Run what is not there yet, and print the means."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--out", type=Path, default=Path("out/small-tables.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.touch()
    known = {}
    for line in options.out.read_text().splitlines():
        row = json.loads(line)
        known[row["table"], row["split"], row["training"], row["samples"], row["code"]] = row
    for table in TABLES:
        for training in TRAININGS:
            found = []
            for split in range(options.splits):
                key = (table, split, training, options.samples, code_hash())
                if key not in known:
                    about = dict(
                        zip(("table", "split", "training", "samples", "code"), key, strict=True)
                    )
                    known[key] = about | run(table, split, training, options.samples)
                    with options.out.open("a") as file:
                        file.write(json.dumps(known[key]) + "\n")
                found.append(known[key])
            print(f"{table:9s} {training:18s} " + summary(found), flush=True)


def summary(found: list[dict[str, Any]]) -> str:
    """Means over splits, with the standard error of the NLL's."""
    means = {
        name: statistics.fmean(row[name] for row in found)
        for name in ("nll", "rmse", "coverage_95", "steps", "seconds")
    }
    error = statistics.stdev(row["nll"] for row in found) / math.sqrt(len(found))
    return (
        f"NLL {means['nll']:.3f} ± {error:.3f}  RMSE {means['rmse']:.3f}  "
        f"coverage {means['coverage_95']:.3f}  {means['steps']:.0f} steps  "
        f"{means['seconds']:.0f} s"
    )


if __name__ == "__main__":
    main()
