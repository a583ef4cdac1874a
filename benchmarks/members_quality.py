"""What members are worth: a mixture beside one posterior, separate models and a deep ensemble.

    export HEADSTART_DATA=...
    python benchmarks/members_quality.py starts --page docs/results/members-starts.md
    python benchmarks/members_quality.py small --page docs/results/members.md
    python benchmarks/members_quality.py full --page docs/results/members-full.md

`starts` compares on validation rows how the members may differ before training; `small` and `full`
compare methods on test rows. One thread; seconds are those of the processor, start and training.
Rows are appended to --out as they are made; what is there already is not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from members_cases import ALTERED, SUITES, Problem, Rows, load
from tables import table, write_page
from torch import Tensor, nn

import headstart as hs
from headstart import metrics
from headstart.experiments.code import code_hash
from headstart.experiments.paired import paired_difference
from headstart.network.layer import count_members
from headstart.reporting.text import plural

Row = dict[str, Any]
ADAM_LR, WARM_UP_STEPS = 1e-3, 10
Draws = list[tuple[Tensor, hs.Likelihood]]
Outputs = Callable[[Tensor], Draws]
"""Draws of the outputs of each of several models at given inputs, and their likelihoods."""


def new_net(problem: Problem, rows: Rows) -> nn.Module:
    return hs.models.create(problem.model, tuple(rows.x_test.shape[1:]), rows.classes or 1)


def initialize_members_(
    model: nn.Module, likelihood: hs.Likelihood, rows: Rows, kind: str, seed: int
) -> None:
    """Start the members by I-BLM as `kind` says; "own draws" is what `initialize_` does."""
    if kind == "own draws":
        hs.initialize_(model, "iblm", likelihood, rows.start, seed=seed)
        return
    members, total = count_members(model), rows.count
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(total, generator=generator)
    for index in range(members):
        which = torch.arange(total)
        if kind == "bootstrap rows":
            which = torch.randint(total, (total,), generator=generator)
        elif kind == "disjoint rows":
            which = order[index::members]
        own = seed if kind == "copies" else 1000 * seed + index
        with hs.member(model, index):
            hs.initialize_(model, "iblm", likelihood, rows.take(which), seed=own, num_data=total)


@lru_cache(maxsize=1)
def fitted(
    problem: Problem, split: int, seed: int, members: int, steps: int, kind: str
) -> tuple[nn.Module, hs.Likelihood, float, float]:
    """A Bayesian net from I-BLM and its likelihood, the seconds of its start and of its training.

    The last one is kept: what comes after training need not train again.
    """
    rows = load(problem, split)
    torch.manual_seed(seed)
    model = hs.bayesianize(new_net(problem, rows), members=members)
    likelihood = rows.likelihood()
    begun = time.process_time()
    initialize_members_(model, likelihood, rows, kind, seed)
    started = time.process_time()
    settings: Any = {"samples": problem.samples, "progress": False, "seed": seed}
    hs.fit(model, likelihood, rows.train, steps=steps, **settings)
    return model, likelihood, started - begun, time.process_time() - started


def train(
    problem: Problem,
    split: int,
    members: int,
    steps: int,
    kind: str = "own draws",
    conditioned: int = 0,
    seed: int | None = None,
) -> tuple[Outputs, float, float]:
    """Outputs of a Bayesian net from I-BLM, the seconds of its start and of its training.

    With `conditioned`, so many draws of the layers below each member's last one get an exact
    posterior of it after training. The seed is the split's number, unless there is another.
    """
    seed, rows = split if seed is None else seed, load(problem, split)
    model, likelihood, start, training = fitted(problem, split, seed, members, steps, kind)
    predict: Callable[[Tensor], hs.Predictive] = partial(
        hs.predict, model, likelihood, samples=problem.eval_samples, seed=seed
    )
    if conditioned:
        draws, begun = conditioned * members, time.process_time()
        mixture = hs.condition(model, likelihood, rows.start, draws=draws, widen=False)
        predict = partial(mixture.predict, samples=problem.eval_samples, seed=seed)
        training += time.process_time() - begun

    def outputs(x: Tensor) -> Draws:
        found = predict(x)
        return [(found.draws, found.likelihood)]

    return outputs, start, training


def train_separately(problem: Problem, split: int) -> tuple[Outputs, float, float]:
    """As many models as there are members, each alone, with as many samples as the mixture."""
    share = problem._replace(eval_samples=math.ceil(problem.eval_samples / problem.members))
    found = [
        train(share, split, 1, problem.steps, seed=1000 * split + index)
        for index in range(problem.members)
    ]

    def outputs(x: Tensor) -> Draws:
        return [each for predict, _, _ in found for each in predict(x)]

    return outputs, sum(each[1] for each in found), sum(each[2] for each in found)


def batches(rows: Rows) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of 64 rows without end."""
    while True:
        if isinstance(rows.train, tuple):
            x, y = rows.train
            yield from ((x[some], y[some]) for some in torch.randperm(len(x)).split(64))
        else:
            yield from rows.train


def train_ensemble(
    problem: Problem, rows: Rows, seed: int, steps: int
) -> tuple[Outputs, float, float]:
    """A deep ensemble: plain nets from torch's own starts by Adam.

    Each has the noise of its own errors on training rows; Adam's steps do not depend on it.
    """
    torch.manual_seed(seed)
    found: list[tuple[nn.Module, hs.Likelihood]] = []
    begun = time.process_time()
    for _ in range(problem.members):
        net, likelihood, stream = new_net(problem, rows), rows.likelihood(), batches(rows)
        adam = torch.optim.Adam(net.parameters(), ADAM_LR)
        for _ in range(steps):
            x, y = next(stream)
            f = net(x).unsqueeze(0)
            adam.zero_grad()
            (-likelihood.log_prob(f, likelihood.check(y, f.shape[-1])).mean()).backward()
            adam.step()
        found.append((net.eval(), likelihood))
        if isinstance(rows.train, tuple):
            x, y = rows.train
            with torch.no_grad():
                f = net(x).unsqueeze(0)
                likelihood.fit_(f, likelihood.check(y, f.shape[-1]))
    ended = time.process_time()

    @torch.no_grad()
    def outputs(x: Tensor) -> Draws:
        return [(net(x).unsqueeze(0), likelihood) for net, likelihood in found]

    return outputs, 0.0, ended - begun


@torch.no_grad()
def score(rows: Rows, outputs: Outputs) -> Row:
    """NLL, error or RMSE, ECE and AUROCs of the mixture of all draws."""
    found = outputs(rows.x_test)
    pairs = [(f, likelihood.check(rows.y_test, f.shape[-1]), likelihood) for f, likelihood in found]
    log_prob = torch.cat([likelihood.log_prob(f, y) for f, y, likelihood in pairs]).double()
    nll = math.log(len(log_prob)) - float(log_prob.logsumexp(0).mean())
    if rows.classes is None:
        mean = torch.cat([likelihood.mean(f) for f, _, likelihood in pairs]).mean(0)
        rmse = float(metrics.rmse(mean, rows.y_test)) * rows.y_scale
        return {"nll": nll + rows.log_scale, "error": rmse}

    def probs(each: Draws) -> Tensor:
        return torch.cat([likelihood.probs(f) for f, likelihood in each])

    inside, y = probs(found), pairs[0][1]
    scores = {"nll": nll}
    for name in ("error", "ece"):
        scores[name] = float(getattr(metrics, name)(inside.mean(0), y))
    for name, x in rows.outside.items():
        other = probs(outputs(x))
        by_entropy = metrics.auroc(metrics.entropy(inside.mean(0)), metrics.entropy(other.mean(0)))
        by_information = metrics.auroc(
            metrics.mutual_information(inside), metrics.mutual_information(other)
        )
        scores |= {f"{name} entropy": float(by_entropy), f"{name} MI": float(by_information)}
    return scores


ONE, MIXTURE, SEPARATE, ENSEMBLE = "1 posterior", "mixture", "separate models", "deep ensemble"
CONDITIONED, DRAWS_BELOW = "mixture, conditioned", 2
"""After training `hs.condition`, with so many draws of the layers below for each member."""
ONE_LONGER, ENSEMBLE_LONGER = (f"{name}, seconds of the mixture" for name in (ONE, ENSEMBLE))
STARTS = ("own draws", "bootstrap rows", "disjoint rows", "copies")
METHODS = {
    "starts": STARTS,
    "small": (ONE, MIXTURE, ONE_LONGER, SEPARATE, ENSEMBLE, ENSEMBLE_LONGER),
}
METHODS["full"] = (ONE, MIXTURE, CONDITIONED, *METHODS["small"][2:])


def run(problem: Problem, method: str, split: int, known: dict[str, Row]) -> Row:
    """Train by a method on a split and score it; `known` are the rows of the split by method."""
    rows, steps = load(problem, split), problem.steps
    if method in (ONE_LONGER, ENSEMBLE_LONGER):
        # As many steps as fit into the seconds of the mixture.
        plain, mixture = known[ONE if method == ONE_LONGER else ENSEMBLE], known[MIXTURE]
        left = mixture["start"] + mixture["training"] - plain["start"]
        steps = max(1, round(steps * left / plain["training"]))
    if method in (ONE, ONE_LONGER):
        found = train(problem, split, 1, steps)
    elif method == SEPARATE:
        found = train_separately(problem, split)
    elif method in (ENSEMBLE, ENSEMBLE_LONGER):
        found = train_ensemble(problem, rows, split, steps)
    else:
        kind = method if method in STARTS else "own draws"
        below = DRAWS_BELOW if method == CONDITIONED else 0
        found = train(problem, split, problem.members, steps, kind, below)
    outputs, start, training = found
    times = {"start": start, "training": training, "taken": steps}
    return {**score(rows, outputs), **times, "test_to_train": rows.test_to_train}


def collect(problem: Problem, methods: tuple[str, ...], out: Path) -> dict[str, dict[int, Row]]:
    """The rows of a problem by method and split, those that are not there yet made."""
    about = {**problem._asdict(), "code": code_hash()}
    del about["splits"]
    found: dict[str, dict[int, Row]] = {method: {} for method in methods}
    for line in out.read_text().splitlines():
        row = json.loads(line)
        same = all(row.get(name) == value for name, value in about.items())
        if same and row["method"] in found and row["split"] < problem.splits:
            found[row["method"]][row["split"]] = row
    missing = [
        (split, method)
        for split in range(problem.splits)
        for method in methods
        if split not in found[method]
    ]
    if missing:
        # The first steps of a process are slower: take some before any are timed.
        train(problem, missing[0][0], 1, WARM_UP_STEPS)
    for split, method in missing:
        known = {name: each[split] for name, each in found.items() if split in each}
        row = {**about, "method": method, "split": split}
        row |= run(problem, method, split, known)
        found[method][split] = row
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        spent = f"{row['start']:.1f} + {row['training']:.1f} s"
        print(problem.dataset, split, method, f"{row['nll']:.4f}", spent, flush=True)
    return found


def lines(found: dict[str, dict[int, Row]], columns: dict[str, tuple[str, ...]]) -> list[list[str]]:
    """A line of the table for each method: means over splits, and the paired difference in NLL."""
    reference, cells = next(iter(found)), []
    for method, rows in found.items():
        mean = {
            name: statistics.fmean(row[key] for row in rows.values() for key in keys)
            for name, keys in columns.items()
        }
        seconds = statistics.fmean(row["start"] + row["training"] for row in rows.values())
        steps = statistics.fmean(row["taken"] for row in rows.values())
        each = [
            {(split, split): row["nll"] for split, row in found[name].items()}
            for name in (method, reference)
        ]
        difference = paired_difference(*each, next(iter(rows.values()))["test_to_train"])
        text = "-"
        if method != reference and difference is not None:
            text = f"{difference.mean:+.4f}"
            text += f" ± {difference.half_width:.4f}" if difference.half_width is not None else ""
        numbers = [f"{value:.4f}" for value in mean.values()]
        cells.append([method, f"{steps:.0f}", numbers[0], text, *numbers[1:], f"{seconds:.1f}"])
    return cells


def section(problem: Problem, found: dict[str, dict[int, Row]]) -> str:
    """The part of the page about one problem."""
    some = next(iter(next(iter(found.values())).values()))
    columns: dict[str, tuple[str, ...]] = {"NLL": ("nll",)}
    columns["error" if "ece" in some else "RMSE"] = ("error",)
    columns |= {"ECE": ("ece",)} if "ece" in some else {}
    groups = {"altered": ALTERED, problem.unseen: (problem.unseen,)}
    for group, names in groups.items():
        for kind in ("entropy", "MI"):
            keys = tuple(f"{name} {kind}" for name in names)
            columns |= {f"AUROC {group}, {kind}": keys} if keys[0] in some else {}
    reference = next(iter(found))
    head = ["method", "steps", "NLL", f"minus {reference}", *list(columns)[1:], "CPU s"]
    kind = "validation" if problem.validation else "test"
    over = plural(problem.splits, "split" if some["test_to_train"] else "seed")
    budget = (
        f"{problem.members} members, {problem.samples} samples of a step, "
        f"{problem.eval_samples} draws of a prediction, {kind} rows; "
        f"means over {over}."
    )
    title = f"## {problem.model} on {problem.dataset}"
    if problem.rows is not None:
        title += f", {problem.rows} rows"
    return f"{title}\n\n{budget}\n\n{table(head, lines(found, columns))}\n"


NOTES = """The difference in NLL has a 95 % interval over splits (Nadeau and Bengio) or seeds.
"Seconds of the mixture": as many steps as fit into them, its start included.
A step divides its samples among the members: each separate model has all of them.
Altered images are the scored ones rotated by 90 degrees, with pixels shuffled, and uniform noise.
"Conditioned": `hs.condition` after training, with 2 draws of the layers below for each member.
A deep ensemble is plain nets by Adam at 1e-3, from torch's own starts; batches have 64 rows.
CPU seconds are those of start and training, without prediction.
"""


def main() -> None:
    """Run what is not there yet, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suite", choices=list(SUITES))
    parser.add_argument("--datasets", nargs="+", help="Only these.")
    parser.add_argument("--methods", nargs="+", help="Only these.")
    parser.add_argument("--splits", type=int, help="How many splits; None: those of the suite.")
    parser.add_argument("--out", type=Path, default=Path("out/members"))
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    store = options.out / "rows.jsonl"
    store.touch()
    parts, known = [], METHODS[options.suite]
    methods = tuple(name for name in known if name in (options.methods or known))
    for problem in SUITES[options.suite]:
        if options.datasets is None or problem.dataset in options.datasets:
            problem = problem._replace(splits=options.splits or problem.splits)
            parts.append(section(problem, collect(problem, methods, store)))
            print(parts[-1], flush=True)
    if options.page is not None:
        command = f"`python benchmarks/members_quality.py {options.suite}`, one thread.\n"
        text = f"# What members are worth: {options.suite}\n\n{command}{NOTES}\n"
        write_page(options.page, text + "\n".join(parts))


if __name__ == "__main__":
    main()
