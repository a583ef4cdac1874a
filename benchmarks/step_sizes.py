"""Which training keeps an I-BLM start and converges, judged on validation rows.

    python benchmarks/step_sizes.py --case mlp-5x100/mnist --recipe averaged --recipe adam
    python benchmarks/step_sizes.py --case lenet/mnist --recipe averaged,lr=1e-3 --steps 500
    python benchmarks/step_sizes.py --case mlp-1x50/energy --recipe adam,lr=1e-2,lr_schedule=cosine
    python benchmarks/step_sizes.py --case mlp-5x100/mnist --recipe kl,lr=3e-3,bound=1
    python benchmarks/step_sizes.py --show

A recipe is an optimizer of `fit`, or a rule of `step_size_rules.py`, and options of it,
`name=value` (see `Trial`).
Every run appends JSON lines to --out, one for each step at which the validation rows are scored,
the last with the NELBO of every step. Runs that are there already are skipped, so a stopped sweep
goes on; starts are kept beside --out. A row knows the hash of the code that made it.
Validation rows are held out of the training rows; test rows are never read. Of the energy and
concrete tables the test rows of the first five published splits are never validated on.
Data sets are read from the folder that HEADSTART_DATA names.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from step_size_cases import CASES, rows_of, started
from step_size_rules import RULES
from torch import nn

import headstart as hs
from headstart.experiments.code import code_hash
from headstart.inference import SVI, svi
from headstart.network.layer import bayesian_layers
from headstart.predictive import evaluate
from headstart.training import step_sizes

CHECKPOINTS = (0, 10, 25, 50, 100, 200, 350, 500, 750, 1000, 1500, 2000, 3000, 4000, 6000, 8000)


@dataclass(frozen=True)
class Trial:
    """What a recipe may set: options of `fit`, prior, initializer, constants of the rule."""

    optimizer: str
    lr: float | None = None
    lr_schedule: str = "constant"
    prior: float | str = 1.0
    init: str = "iblm"
    samples: int | None = None
    bound: float | None = None
    slow_after: int = step_sizes.SPREAD_STEPS
    spread_rate: float = step_sizes.MAX_SPREAD_RATE

    def of_fit(self, model: nn.Module) -> dict[str, Any]:
        """The options of `hs.steps`: `optimizer` by name, or a rule of step_size_rules.py."""
        if self.optimizer not in RULES:
            return {"optimizer": self.optimizer, "lr": self.lr, "lr_schedule": self.lr_schedule}
        options = {"lr": self.lr, "bound": self.bound}
        given = {name: value for name, value in options.items() if value is not None}
        return {"optimizer": lambda groups: RULES[self.optimizer](groups, model, **given)}


def parse(text: str) -> Trial:
    """An optimizer and settings, as in `averaged,lr=1e-3,prior=fan-in`."""
    optimizer, *settings = text.split(",")
    values: dict[str, Any] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        number = value.replace(".", "").replace("e-", "").isdigit()
        whole = name in ("samples", "slow_after")
        values[name] = int(value) if whole else float(value) if number else value
    return Trial(optimizer, **values)


def train(name: str, trial: Trial, steps: int, seed: int, starts: Path) -> Iterator[dict[str, Any]]:
    """Run a recipe, yielding a row at every checkpoint."""
    case = CASES[name]
    rows = rows_of(case.source, case.rows, case.val_rows, seed)
    model, likelihood = started(starts, name, case, rows, trial.init, trial.prior, seed)
    # Constants of the rule, which nobody sets but a comparison.
    svi.SPREAD_STEPS, step_sizes.MAX_SPREAD_RATE = trial.slow_after, trial.spread_rate
    torch.manual_seed(seed + 77)
    trace: list[float] = []

    def score(step: int, seconds: float) -> dict[str, Any]:
        found = evaluate(model, likelihood, rows.validation, case.val_samples, seed=0)
        metric = "rmse" if "rmse" in found else "error"
        variances = [layer.posterior.variance() for layer in bayesian_layers(model).values()]
        logvar = float(torch.cat([part.detach().flatten() for part in variances]).log().mean())
        kept = {
            "step": step,
            "mnll": found["mnll"] + rows.nll_offset,
            metric: found[metric],
            "kl": float(hs.kl(model).detach()),
            "logvar": logvar,
            "seconds": round(seconds, 2),
        }
        return kept | ({"trace": trace} if step == steps else {})

    yield score(0, 0.0)
    model.train()
    spent, begun = 0.0, time.perf_counter()
    for record in hs.steps(
        model,
        likelihood,
        rows.train,
        steps=steps,
        samples=trial.samples or case.samples,
        inference=SVI(case.sampler),
        **trial.of_fit(model),
    ):
        trace.append(float(f"{record.nelbo:.7g}"))
        if record.step in CHECKPOINTS or record.step == steps:
            spent += time.perf_counter() - begun
            yield score(record.step, spent)
            model.train()
            begun = time.perf_counter()


def main() -> None:
    """Run what is asked for and not there yet, or show what is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", action="append", default=[])
    parser.add_argument("--recipe", action="append", default=[])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/step-sizes.jsonl"))
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    done = (
        [json.loads(line) for line in options.out.read_text().splitlines()]
        if options.out.exists()
        else []
    )
    if options.show:
        show(done, options.case)
        return
    known = {tuple(row[part] for part in KEY) for row in done}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for name in options.case:
        for seed in range(options.seeds):
            for recipe in options.recipe:
                about = dict(
                    zip(KEY, (name, options.steps, recipe, seed, code_hash()), strict=True)
                )
                if tuple(about.values()) in known:
                    continue
                starts = options.out.parent / "starts"
                found = [
                    about | row for row in train(name, parse(recipe), options.steps, seed, starts)
                ]
                with options.out.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in found)
                print(line(found), flush=True)


KEY = ("case", "steps", "recipe", "seed", "code")
"""What tells a run from another."""


def line(found: list[dict[str, Any]]) -> str:
    """A run in a line: the validation NLL at each checkpoint, and where it ended."""
    head, last = found[0], found[-1]
    cells = " ".join(f"{row['step']}:{row['mnll']:.3f}" for row in found)
    metric = last.get("error", last.get("rmse", math.nan))
    kl, logvar, seconds = (last.get(name, 0) for name in ("kl", "logvar", "seconds"))
    tail = f"{metric:.3f} kl {kl:.3g} log s2 {logvar:.2f} {seconds:.0f} s"
    return f"{head['case']:22s} seed {head['seed']} {head['recipe']:30s} {cells} | {tail}"


def show(done: list[dict[str, Any]], cases: list[str]) -> None:
    """All runs, one a line, case by case."""
    runs: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in done:
        runs.setdefault(tuple(row[part] for part in KEY), []).append(row)
    for key in sorted(runs):
        if not cases or key[0] in cases:
            print(line(runs[key]))


if __name__ == "__main__":
    main()
