"""The recipe of tables by default, on splits of four published tables: test NLL, RMSE, coverage.

    HEADSTART_DATA=... python benchmarks/table_recipe.py --splits 2
    HEADSTART_DATA=... python benchmarks/table_recipe.py --splits 20 --table energy --table concrete

For powerplant and protein take five.

energy and concrete have their 20 published splits; powerplant and protein have seeded ones, a tenth
of the rows each. Beside ours stand the trees alone: their mean over folds, with the squared error
of their out-of-fold predictions as the variance of Gaussian noise. Rows are appended to --out as
they are made; what is there already is not run again. The defaults were chosen on training rows of
the first two splits of energy and concrete and of the first one of the others, never on test rows;
test rows of other splits are among those. One thread.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from headstart.experiments.code import code_hash
from headstart.predictive import Predictive
from headstart.tabular.fit import fit_table
from headstart.training.boosting import boost
from headstart.training.recipe import Recipe

CODE = "headstart.tabular.fit"
"""The module that stands for the code of the rows."""
TABLES = {
    "energy": ("data.txt.gz", " ", None),
    "concrete": ("data.txt.gz", " ", None),
    "powerplant": ("Folds5x2_pp_Sheet1.csv.gz", ",", "PE"),
    "protein": ("CASP.csv.gz", ",", "RMSD"),
}
"""The file of each table, its separator, its target; None: the last column, without a header."""


def read(name: str, split: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """A table whose target is called so, and its training and test rows."""
    file, separator, target = TABLES[name]
    folder = Path(os.environ["HEADSTART_DATA"]) / name
    if target is None:
        frame = pd.read_csv(folder / file, sep=r"\s+", header=None)
        frame.columns = [*(f"x{i}" for i in range(frame.shape[1] - 1)), "target"]
        test = np.load(folder / "splits.npz")[f"test_{split}"].astype("int64")
    else:
        frame = pd.read_csv(folder / file, sep=separator).rename(columns={target: "target"})
        test = np.random.default_rng(split).permutation(len(frame))[: len(frame) // 10]
    return frame, np.setdiff1d(np.arange(len(frame)), test), test


def ours(train: pd.DataFrame, test: pd.DataFrame, recipe: Recipe) -> dict[str, Any]:
    """Fit the training rows, and score the test rows."""
    start = time.process_time()
    run = fit_table(train, "target", task="regression", recipe=recipe, test_share=0.0)
    seconds = time.process_time() - start
    y = torch.tensor(test["target"].to_numpy(float))
    pred = run.predict(test)
    chosen = run.found["tried"][0]
    return {
        **{name: pred.evaluate(y)[name] for name in ("rmse", "mnll", "coverage_95")},
        "fifths": by_fifth(pred, y),
        "chosen": f"{'trees' if chosen['trees'] else 'net'}, {run.found['recipe']['noise']}",
        "seconds": round(seconds, 1),
    }


def by_fifth(pred: Predictive, y: torch.Tensor) -> list[float]:
    """The coverage of 95 % intervals in each fifth of the prediction, the smallest first."""
    low, high = pred.interval(0.95)
    low, high = low[:, 0], high[:, 0]
    inside = ((y >= low) & (y <= high)).double()[pred.mean[:, 0].argsort()]
    return [float(part.mean()) for part in inside.tensor_split(5)]


def trees_alone(train: pd.DataFrame, test: pd.DataFrame) -> dict[str, float]:
    """What the trees would say without a net."""
    x, y = (train.drop(columns="target").to_numpy(float), train["target"].to_numpy(float))
    # On the scale that a net's trees have.
    center, scale = y.mean(), y.std()
    trees, held_out = boost(x, (y - center) / scale, "squared_error")
    var = float(((y - center) / scale - held_out[:, 0]).var()) * scale**2
    mean = center + scale * trees.features(test.drop(columns="target").to_numpy(float))[:, 0]
    squares = (test["target"].to_numpy(float) - mean) ** 2
    nll = 0.5 * (squares / var + math.log(2 * math.pi * var))
    inside = squares <= 1.959964**2 * var
    return {
        "rmse": math.sqrt(squares.mean()),
        "mnll": float(nll.mean()),
        "coverage_95": float(inside.mean()),
    }


def summary(found: list[dict[str, Any]]) -> str:
    """Means over splits, with the standard error of the NLL's."""
    means = {
        name: statistics.fmean(row[name] for row in found)
        for name in ("mnll", "rmse", "coverage_95")
    }
    error = "–"
    if len(found) > 1:
        error = f"{statistics.stdev(row['mnll'] for row in found) / math.sqrt(len(found)):.3f}"
    return (
        f"NLL {means['mnll']:.3f} ± {error}  RMSE {means['rmse']:.3f}  "
        f"coverage {means['coverage_95']:.3f}  over {len(found)} splits"
    )


def main() -> None:
    """Run what is not there yet, and print the means."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--table", action="append", choices=sorted(TABLES))
    parser.add_argument("--effort", default="default")
    parser.add_argument("--out", type=Path, default=Path("out/table-recipe.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.touch()
    known = {}
    for line in options.out.read_text().splitlines():
        row = json.loads(line)
        known[row["table"], row["split"], row["effort"], row["code"]] = row
    for name in options.table or TABLES:
        rows = []
        for split in range(options.splits):
            key = (name, split, options.effort, code_hash(CODE))
            if key not in known:
                frame, train, test = read(name, split)
                parts = frame.iloc[train], frame.iloc[test]
                about = dict(zip(("table", "split", "effort", "code"), key, strict=True))
                recipe = Recipe(effort=options.effort, seed=split)
                known[key] = about | ours(*parts, recipe) | {"trees": trees_alone(*parts)}
                with options.out.open("a") as file:
                    file.write(json.dumps(known[key]) + "\n")
                print(json.dumps(known[key]), flush=True)
            rows.append(known[key])
        print(f"{name:11s} ours   {summary(rows)}", flush=True)
        print(f"{name:11s} trees  {summary([row['trees'] for row in rows])}", flush=True)


if __name__ == "__main__":
    main()
