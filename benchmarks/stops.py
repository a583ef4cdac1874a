"""How often `fit(steps=None)` stops too early: simulated records, and small tables trained on.

    HEADSTART_DATA=... python benchmarks/stops.py --splits 1 --out docs/results/stops.md

A record is checked every 40 steps, as by default with at most 2000 steps, but with no maximum in
the way. After T steps it is called a plateau, and training goes on regardless, to 2T (on tables to
8000 steps at most; a run without a stop by then has none).
A stop is false where the mean of the record, without its noise, falls by more than 0.005 nats per
row (or 0.005 of its level, where that is above 1) from T to 1.2 T, the window that the rule would
have looked at next. What is lost is its fall from T to 2T, and that of the test NLL.

Simulated records have the level 1 and fall from 1 above it by a power law `(1 + t/tau)^-0.5`,
exponentially or not at all, with independent noise of each step, Gaussian or Student-t with 3
degrees of freedom; their means are known. Beside today's rule stands the one before it, in which a
gain below 0 made up for its standard error.

Tables have a net with one hidden layer of 50 units from I-BLM, batches of 64, everything else by
default; a tenth of the training rows are validation rows. The mean of the record is the NELBO of
all training rows, with the same 64 draws at each check. Two rules are asked of each run: that of
the NELBO, and that of the score of the validation rows.

Rows are appended to --rows as they are made; what is there already is not run again. Simulations
like these, with other seeds, chose between the two rules, so that today's is shown at its best
there; tables chose nothing. One thread.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import beta
from tables import TRAINING, table, write_page
from torch import Tensor

import headstart as hs
from headstart.experiments.code import code_hash
from headstart.training.convergence import MIN_GAIN, PATIENCE, improvement, plateau_reached
from headstart.training.history import MIN_STEPS, History
from headstart.training.loop import Training

RULE = "headstart.training.convergence"
"""The module that stands for the code of simulated records."""
EVERY = 40
"""Steps between two checks."""
TABLES = ("energy", "concrete")
HORIZON = 8000
"""Steps of a run on a table, or fewer where both rules have ended it after half of them."""
SIMULATED_STEPS = 4000
"""Steps of a simulated record."""
MEANS = (
    ("flat", 1.0),
    ("exponential", 300.0),
    ("exponential", 1500.0),
    ("power", 300.0),
    ("power", 1500.0),
)
"""What simulated records fall by, and on which scale of time."""
NOISES, TAILS = (0.05, 0.3, 1.0), ("gaussian", "student-t")


def is_false(before: float, after: float) -> bool:
    """Whether the mean of a record falls by more than what matters."""
    return before - after > MIN_GAIN * max(1.0, abs(after))


def interval(count: int, total: int) -> str:
    """A rate with its 95 % interval by Clopper and Pearson."""
    if not total:
        return "–"
    low = beta.ppf(0.025, count, total - count + 1) if count else 0.0
    high = beta.ppf(0.975, count + 1, total - count) if count < total else 1.0
    return f"{count} of {total} ({low:.2f} to {high:.2f})"


def mean_record(name: str, tau: float) -> np.ndarray:
    """The mean of a simulated record, twice as long as the steps that may be its last."""
    time = np.arange(1, 2 * SIMULATED_STEPS + 1) / tau
    falls = {"flat": 0 * time, "exponential": np.exp(-time), "power": (1 + time) ** -0.5}
    return 1 + falls[name]


def earlier_rule(values: list[float]) -> bool:
    """A plateau by the gain and its error alone: a gain below 0 makes up for the error."""
    for check in range(PATIENCE):
        seen = values[: len(values) - check * EVERY]
        if len(seen) < MIN_STEPS or sum(improvement(seen)) >= MIN_GAIN * max(1.0, abs(seen[-1])):
            return False
    return True


RULES: dict[str, Callable[[list[float]], bool]] = {
    "now": lambda values: plateau_reached(values, EVERY, MIN_STEPS),
    "before": earlier_rule,
}


def simulate(name: str, tau: float, sd: float, tail: str, repeats: int) -> dict[str, Any]:
    """Stops of records around one mean, by today's rule and by the one before it."""
    rng = np.random.default_rng([MEANS.index((name, tau)), NOISES.index(sd), TAILS.index(tail)])
    mean = mean_record(name, tau)
    stops: dict[str, list[int]] = {rule: [] for rule in RULES}
    for _ in range(repeats):
        noise = rng.normal(size=SIMULATED_STEPS)
        if tail == "student-t":
            noise = rng.standard_t(3, size=SIMULATED_STEPS) / math.sqrt(3)
        record = (mean[:SIMULATED_STEPS] + sd * noise).tolist()
        for rule, says in RULES.items():
            steps = (t for t in range(MIN_STEPS, SIMULATED_STEPS + 1, EVERY) if says(record[:t]))
            stops[rule] += [t for t in [next(steps, None)] if t is not None]
    found: dict[str, Any] = {"part": "simulated", "mean": name, "tau": tau, "sd": sd, "tail": tail}
    found["repeats"] = repeats
    for rule, steps in stops.items():
        falls = [[float(mean[round(factor * t) - 1]) for factor in (1, 1.2, 2)] for t in steps]
        found[rule] = {
            "steps": steps,
            "false": sum(is_false(before, after) for before, after, _ in falls),
            "lost": [before - later for before, _, later in falls],
        }
    return found


def split_rows(name: str, split: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Training, validation and test rows of a published split, standardized."""
    folder = Path(os.environ["HEADSTART_DATA"]) / name
    with gzip.open(folder / "data.txt.gz", "rt") as file:
        rows = torch.tensor(np.loadtxt(file), dtype=torch.float64)
    test = torch.as_tensor(np.load(folder / "splits.npz")[f"test_{split}"].astype("int64"))
    keep = torch.ones(len(rows), dtype=torch.bool)
    keep[test] = False
    others = keep.nonzero().squeeze(1)
    others = others[torch.randperm(len(others), generator=torch.Generator().manual_seed(split))]
    held = len(others) // 10
    mean, sd = rows[others[held:]].mean(0), rows[others[held:]].std(0).clamp_min(1e-12)
    scaled = ((rows - mean) / sd).float()
    parts = {"train": others[held:], "validation": others[:held], "test": test}
    return {
        part: (scaled[at, :-1].contiguous(), scaled[at, -1:].contiguous())
        for part, at in parts.items()
    }


def train_on(name: str, split: int) -> dict[str, Any]:
    """A run that goes on to twice the steps after which each rule would have ended it."""
    rows = split_rows(name, split)
    x = rows["train"][0]
    torch.manual_seed(split)
    model, lik = hs.bayesianize(hs.models.create("mlp-1x50", x.shape[1], 1)), hs.Gaussian()
    hs.initialize_(model, "iblm", lik, rows["train"], seed=split)
    training = Training(model, lik, rows["train"], steps=HORIZON)
    history, looks, stops = History(), dict[int, dict[str, float]](), dict[str, int]()
    for record in training:
        history.steps.append(record)
        if record.step % EVERY:
            continue
        looks[record.step] = scores(model, lik, rows)
        score = {"step": record.step, "mnll": looks[record.step]["validation"]}
        history.validation.append(score)
        for rule, seen in (("NELBO", []), ("validation", history.validation)):
            asked = History(history.steps, seen)
            if rule not in stops and asked.plateau("mnll", EVERY, len(x)):
                stops[rule] = record.step
        if len(stops) == 2 and record.step >= 2 * max(stops.values()):
            break
    found: dict[str, Any] = {"part": "table", "table": name, "split": split, "stops": {}}
    for rule, stop in stops.items():
        if 1.2 * stop > HORIZON:
            continue
        later = [nearest(factor * stop, looks) for factor in (1, 1.2, 2)]
        found["stops"][rule] = {"step": stop, "looks": [looks[step] for step in later]}
    return found


def nearest(step: float, looks: dict[int, dict[str, float]]) -> int:
    """The check next to a step."""
    return min(looks, key=lambda each: abs(each - step))


@torch.no_grad()
def scores(
    model: torch.nn.Module, lik: hs.Likelihood, rows: dict[str, tuple[Tensor, Tensor]]
) -> dict[str, float]:
    """NELBO per training row, and NLL of validation and test rows, with the same draws each time.

    Random numbers of the training stay as they are.
    """
    x, y = rows["train"]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        whole = float(hs.nelbo(model, lik, x, y, num_data=len(x), samples=64).value)
    # As many draws as `fit` takes.
    held = {
        part: hs.evaluate(model, lik, rows[part], samples=32, seed=0)["mnll"]
        for part in ("validation", "test")
    }
    return {"nelbo": whole / len(x), **held}


def simulated_page(known: list[dict[str, Any]]) -> str:
    """A line for each mean and noise."""
    lines = []
    for row in known:
        about = row["mean"] if row["mean"] == "flat" else f"{row['mean']}, tau {row['tau']:.0f}"
        cells = [about, f"{row['sd']}", row["tail"]]
        for rule in RULES:
            found = row[rule]
            cells.append(f"{len(found['steps'])} of {row['repeats']}")
            cells.append(f"{statistics.median(found['steps']):.0f}" if found["steps"] else "–")
            cells.append(f"{found['false']}")
        lines.append(cells)
    head = ["mean", "noise sd", "noise"]
    head += [f"{what}, rule {rule}" for rule in RULES for what in ("stopped", "step", "false")]
    totals = [
        f"- Rule {rule}: {interval(sum(row[rule]['false'] for row in known), total)} of the stops "
        f"are false; {interval(sum(row[rule]['false'] for row in falling), every)} of the "
        "records that are not flat ended in such a one."
        for falling in [[row for row in known if row["mean"] != "flat"]]
        for every in [sum(row["repeats"] for row in falling)]
        for rule, total in ((rule, sum(len(row[rule]["steps"]) for row in known)) for rule in RULES)
    ]
    return table(head, lines, 3) + "\n\n" + "\n".join(totals) + "\n"


def tables_page(known: list[dict[str, Any]]) -> str:
    """A line for each table and rule."""
    lines = []
    for name in TABLES:
        runs = [row for row in known if row["table"] == name]
        for rule in ("NELBO", "validation"):
            found = [row["stops"][rule] for row in runs if rule in row["stops"]]
            falls = [
                [look["nelbo" if rule == "NELBO" else "validation"] for look in each["looks"]]
                for each in found
            ]
            tests = [[look["test"] for look in each["looks"]] for each in found]
            lines.append(
                [
                    name,
                    rule,
                    f"{len(found)} of {len(runs)}",
                    steps_of([each["step"] for each in found]),
                    interval(sum(is_false(fall[0], fall[1]) for fall in falls), len(falls)),
                    *(mean_fall(each) for each in (falls, tests)),
                ]
            )
    head = [
        "table",
        "rule",
        "stopped",
        "median step (range)",
        "false",
        "fall of its record, T to 2T",
        "fall of the test NLL, T to 2T",
    ]
    return table(head, lines, 2)


def steps_of(steps: list[int]) -> str:
    """Median and range."""
    if not steps:
        return "–"
    return f"{statistics.median(steps):.0f} ({min(steps)} to {max(steps)})"


def mean_fall(values: list[list[float]]) -> str:
    """The mean over splits of what is lost, with its range."""
    lost = [each[0] - each[2] for each in values]
    return f"{statistics.fmean(lost):+.3f} ({min(lost):+.3f} to {max(lost):+.3f})" if lost else "–"


def main() -> None:
    """Run what is not there yet, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--rows", type=Path, default=Path("out/stops.jsonl"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    options.rows.touch()
    codes = {simulate: code_hash(RULE), train_on: code_hash(TRAINING)}
    known = {}
    for line in options.rows.read_text().splitlines():
        row = json.loads(line)
        known[row["key"], row["code"]] = row

    def row_of(key: str, make: Any, *about: Any) -> dict[str, Any]:
        code = codes[make]
        if (key, code) not in known:
            known[key, code] = {"key": key, "code": code, **make(*about)}
            with options.rows.open("a") as file:
                file.write(json.dumps(known[key, code]) + "\n")
            print(key, flush=True)
        return known[key, code]

    simulated = [
        row_of(f"{mean} {sd} {tail} {options.repeats}", simulate, *mean, sd, tail, options.repeats)
        for tail in TAILS
        for mean in MEANS
        for sd in NOISES
    ]
    trained = [
        row_of(f"{name} {split}", train_on, name, split)
        for name in TABLES
        for split in range(options.splits)
    ]
    page = (
        f"# How often training until convergence stops too early\n\n{__doc__}\n"
        f"## Simulated records\n\n{simulated_page(simulated)}\n"
        f"## Tables, the first {options.splits} published splits each\n\n{tables_page(trained)}\n\n"
        "Splits of a table share rows, so that intervals over them are too narrow.\n"
    )
    print(page)
    if options.out is not None:
        write_page(options.out, page, TRAINING)


if __name__ == "__main__":
    main()
