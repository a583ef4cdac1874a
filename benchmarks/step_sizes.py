"""Which training keeps an I-BLM start and converges: step sizes judged on validation rows.

    python benchmarks/step_sizes.py --case mlp-5x100/mnist --recipe adam --recipe averaged
    python benchmarks/step_sizes.py --case lenet/mnist --recipe averaged,change=1.25 --steps 500
    python benchmarks/step_sizes.py --show

A recipe is a list of settings `name=value` (see `Trial`); `averaged` is
`headstart.training.step_sizes`, `adam` the paper's protocol: Adam, 1e-3, constant.
Every run appends JSON lines to --out, one for each step at which the validation rows are scored,
the last with the NELBO of every step. Runs that are there already are skipped, so a stopped sweep
goes on; starts are kept beside --out.
A run's key does not know the constants of the module: after changing one, name another --out.
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
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from step_size_cases import CASES, rows_of, started
from torch import nn

import headstart as hs
from headstart.batching import Batches
from headstart.kernels.adam import Adam
from headstart.network.layer import bayesian_layers
from headstart.predictive import evaluate
from headstart.training import step_sizes
from headstart.training.schedules import LR_SCHEDULES

CHECKPOINTS = (0, 10, 25, 50, 100, 200, 350, 500, 750, 1000, 1500, 2000, 3000, 4000, 6000, 8000)


# Recipes.
@dataclass(frozen=True)
class Trial:
    """What a recipe may set; `averaged=1` is `headstart.training.step_sizes`.

    `change` is C, `max_rate` the bound on the rate times hidden layers, `warmup` the steps of the
    warm-up (0: as chosen there). Without `averaged` it is Adam, with one rate `lr` for all or,
    given `layer`, the rate `layer / E Σ|x_l|` for the means of layer l; `schedule` lowers it after
    the `warmup`, and `ema` scores an exponential average of the parameters. `lr_var` is the rate of
    the log-variances, `natural` that of steps `log s² ← log s² − log(1 + 2ρ ∂)` instead.
    """

    averaged: int = 0
    change: float = step_sizes.CHANGE
    max_rate: float = step_sizes.MAX_RATE
    lr: float = 1e-3
    layer: float | None = None
    lr_var: float | None = None
    natural: float | None = None
    lr_likelihood: float | None = None
    warmup: int = 0
    schedule: str = "constant"
    ema: float | None = None
    prior: str = "1.0"
    init: str = "iblm"
    samples: int = 0


def parse(text: str) -> Trial:
    """`adam` or `averaged`, and settings, as in `averaged,change=1.25,warmup=50`."""
    values: dict[str, Any] = {}
    kinds = {f.name: str(f.type) for f in fields(Trial)}
    for part in text.split(","):
        if part in ("adam", "averaged"):
            values["averaged"] = int(part == "averaged")
            continue
        name, _, value = part.partition("=")
        values[name] = (
            int(value) if kinds[name] == "int" else value if kinds[name] == "str" else float(value)
        )
    return Trial(**values)


@dataclass(frozen=True)
class Kinds:
    """The parameters of a run by what they are."""

    means: dict[str, nn.Parameter]
    spreads: list[nn.Parameter]
    others: list[nn.Parameter]
    likelihood: list[nn.Parameter]


def kinds_of(model: nn.Module, likelihood: nn.Module) -> Kinds:
    """Means by layer, other parameters of posteriors, of the model, and of the likelihood."""
    layers = bayesian_layers(model)
    means = {name: layer.posterior.mean for name, layer in layers.items()}
    every = [p for layer in layers.values() for p in layer.posterior.parameters()]
    spreads = [p for p in every if all(p is not mean for mean in means.values())]
    inner = {id(p) for p in every}
    return Kinds(
        means,
        spreads,
        [p for p in model.parameters() if id(p) not in inner],
        list(likelihood.parameters()),
    )


class Optimizers:
    """The recipe's optimizers: one for means, one for the rest."""

    def __init__(self, kinds: Kinds, sums: dict[str, float], trial: Trial) -> None:
        self.trial, self.kinds = trial, kinds
        scale = trial.change / step_sizes.CHANGE
        rates = step_sizes.choose_rates([each / scale for each in sums.values()])
        lr_var, lr_likelihood = trial.lr_var, trial.lr_likelihood
        self.averaged = None
        groups: list[dict[str, Any]] = []
        if trial.averaged:
            warmup = trial.warmup or step_sizes.choose_rates(list(sums.values())).warmup
            lr = min(rates.mean, trial.max_rate / max(1, len(sums) - 1))
            self.averaged = step_sizes.Averaged([*kinds.means.values(), *kinds.others], lr, warmup)
            lr_var = min(step_sizes.MAX_SPREAD_RATE if lr_var is None else lr_var, lr)
            lr_likelihood = lr_likelihood or rates.likelihood
        else:
            for name, mean in kinds.means.items():
                lr = trial.lr if trial.layer is None else trial.layer / sums[name]
                groups.append({"params": [mean], "lr": lr})
            groups.append({"params": kinds.others, "lr": trial.lr})
        lr_var = trial.lr if lr_var is None else lr_var
        groups.append({"params": kinds.spreads, "lr": lr_var})
        groups.append({"params": kinds.likelihood, "lr": lr_likelihood or 10 * trial.lr})
        self.adam = Adam([group for group in groups if group["params"]], lr=trial.lr)
        self.base = [group["lr"] for group in self.adam.param_groups]

    def before(self) -> None:
        """Where the gradient is taken, and none yet."""
        if self.averaged is not None:
            self.averaged.ahead_()
            self.averaged.zero_grad()
        self.adam.zero_grad()

    def step(self, share: float) -> None:
        """One step of each."""
        if self.trial.natural is not None:
            self._natural(2 * share * self.trial.natural)
        for group, rate in zip(self.adam.param_groups, self.base, strict=True):
            group["lr"] = rate * share
        if self.averaged is not None:
            self.averaged.step()
        self.adam.step()

    @torch.no_grad()
    def _natural(self, rate: float) -> None:
        for p in self.kinds.spreads:
            assert p.grad is not None
            p.sub_(torch.log1p(rate * p.grad.clamp(-20, 20)).clamp(-0.2, 0.2))
            p.grad = None


def share_of(trial: Trial, step: int, steps: int) -> float:
    """The schedule's part of Adam's rates at a step (from 1)."""
    if trial.averaged:
        return 1.0
    up = min(1.0, step / trial.warmup) if trial.warmup else 1.0
    return up * LR_SCHEDULES[trial.schedule]((step - 1) / steps)


class Average:
    """An exponential average of parameters."""

    def __init__(self, parameters: list[nn.Parameter], decay: float) -> None:
        self.parameters, self.decay, self.count = parameters, decay, 0
        self.values = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def update(self) -> None:
        """Take in the parameters as they are."""
        self.count += 1
        for value, parameter in zip(self.values, self.parameters, strict=True):
            value.lerp_(parameter, max(1 - self.decay, 1 / self.count))

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange average and parameters."""
        for value, parameter in zip(self.values, self.parameters, strict=True):
            held = parameter.detach().clone()
            parameter.copy_(value)
            value.copy_(held)


def learn_priors(model: nn.Module) -> None:
    """The closed-form update of every prior that has one."""
    for layer in bayesian_layers(model).values():
        layer.prior.update_(layer.posterior)


def train(name: str, trial: Trial, steps: int, seed: int, starts: Path) -> Iterator[dict[str, Any]]:
    """Run a recipe, yielding a row at every checkpoint."""
    case = CASES[name]
    rows = rows_of(case.source, case.rows, case.val_rows, seed)
    prior = float(trial.prior) if trial.prior.replace(".", "").isdigit() else trial.prior
    model, likelihood = started(starts, name, case, rows, trial.init, prior, seed)
    torch.manual_seed(seed + 77)
    learn_priors(model)
    batches = Batches(rows.train, batch_size=64, like=model)
    stream = batches.forever()
    kinds = kinds_of(model, likelihood)
    optimizers = Optimizers(kinds, step_sizes.input_sums(model, next(batches.take(256))[0]), trial)
    average = None if trial.ema is None else Average(list(model.parameters()), trial.ema)
    spent, trace = 0.0, list[float]()

    def score(step: int) -> dict[str, Any]:
        if average is not None and step:
            average.swap()
        found = evaluate(model, likelihood, rows.validation, case.val_samples, seed=0)
        if average is not None and step:
            average.swap()
        metric = "rmse" if "rmse" in found else "error"
        logvar = float(torch.cat([p.detach().flatten() for p in kinds.spreads]).mean())
        kept: dict[str, Any] = {
            "step": step,
            "mnll": found["mnll"] + rows.nll_offset,
            metric: found[metric],
        }
        kept |= {"kl": float(hs.kl(model).detach()), "logvar": logvar, "seconds": round(spent, 2)}
        return kept | ({"trace": trace} if step == steps else {})

    yield score(0)
    model.train()
    samples = trial.samples or case.samples
    for step in range(1, steps + 1):
        begun = time.perf_counter()
        x, y = next(stream)
        optimizers.before()
        loss = hs.nelbo(
            model,
            likelihood,
            x,
            y,
            num_data=batches.num_data,
            samples=samples,
            sampler=case.sampler,
        )
        loss.value.backward()
        optimizers.step(share_of(trial, step, steps))
        if average is not None:
            average.update()
        if step % 100 == 0:
            learn_priors(model)
        trace.append(float(f"{float(loss.value.detach()):.7g}"))
        spent += time.perf_counter() - begun
        if not math.isfinite(trace[-1]):
            yield {"step": step, "mnll": math.inf}
            return
        if step in CHECKPOINTS or step == steps:
            yield score(step)


def main() -> None:
    """Run what is asked for and not there yet, or show what is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", action="append", default=[])
    parser.add_argument("--recipe", action="append", default=[])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/ablation.jsonl"))
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
    known = {(row["case"], row["recipe"], row["steps"], row["seed"]) for row in done}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for name in options.case:
        for seed in range(options.seeds):
            for recipe in options.recipe:
                key = (name, recipe, options.steps, seed)
                if key in known:
                    continue
                trial = parse(recipe)
                found = []
                for row in train(name, trial, options.steps, seed, options.out.parent / "starts"):
                    found.append(
                        {
                            "case": name,
                            "recipe": recipe,
                            "steps": options.steps,
                            "seed": seed,
                            **row,
                        }
                    )
                with options.out.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in found)
                known.add(key)
                print(line(found), flush=True)


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
        runs.setdefault((row["case"], row["steps"], row["recipe"], row["seed"]), []).append(row)
    for key in sorted(runs):
        if not cases or key[0] in cases:
            print(line(runs[key]))


if __name__ == "__main__":
    main()
