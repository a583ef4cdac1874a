"""The demo: six initializers race on the toy function of the paper; a live table, one picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.console import Console
from rich.live import Live
from rich.table import Table
from torch import Tensor

from headstart import data
from headstart.initializers import initialize_
from headstart.likelihoods import Gaussian
from headstart.models import create
from headstart.network.convert import bayesianize
from headstart.predictive import predict
from headstart.reporting import plots
from headstart.training.loop import steps

DEMO_INITIALIZERS = ("uninformative", "heuristic", "xavier", "orthogonal", "lsuv", "iblm")
DEMO_MODEL = "mlp-4x50-tanh"
EVALUATE_EVERY = 50


@dataclass
class Racer:
    """One initializer on its way.

    Args:
        name: The initializer.
        curve: Steps with their test RMSE and test MNLL.
        before: Predictions along a line after initialization.
        after: The same after training.
    """

    name: str
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    before: plots.Band | None = None
    after: plots.Band | None = None


def race_initializers(
    out: Path, *, total: int = 600, seed: int = 0, console: Console | None = None
) -> list[Racer]:
    """Race and draw `demo.png`; the same seed gives the same race.

    Args:
        out: The folder to draw into.
        total: Training steps of each initializer.
        seed: The seed of the data and of every run.
        console: Where the live table is shown.

    Returns:
        The racers, with their curves.
    """
    console = console or Console()
    out.mkdir(parents=True, exist_ok=True)
    raw = data.split(data.load("toy"), 0, seed=seed)
    split, scaling = data.standardize(raw, targets=False)
    grid = torch.linspace(-15, 15, 301).unsqueeze(1)
    racers = [Racer(name) for name in DEMO_INITIALIZERS]
    with Live(_live_table(racers, total), console=console, refresh_per_second=4) as live:
        for racer in racers:
            for _ in _train_racer(racer, split, (grid, scaling.inputs(grid)), total, seed):
                live.update(_live_table(racers, total))
    plots.draw_race(racers, (raw.x_train, raw.y_train), data.toy_function, out / "demo.png")
    return racers


def _train_racer(
    racer: Racer, split: data.Split, line: tuple[Tensor, Tensor], total: int, seed: int
) -> Iterator[Racer]:
    torch.manual_seed(seed)
    train, test = (split.x_train, split.y_train), (split.x_test, split.y_test)
    likelihood = Gaussian(noise_var=0.1).standardize_(split.y_train)
    model = bayesianize(create(DEMO_MODEL, 1, 1))
    initialize_(model, racer.name, likelihood, train, seed=seed)

    def evaluate(step: int) -> None:
        scores = predict(model, likelihood, test[0], samples=64, seed=seed).evaluate(test[1])
        racer.curve.append((step, scores["rmse"], scores["mnll"]))

    def band() -> plots.Band:
        # Samples of the weights are whole functions: their bands are smooth.
        pred = predict(model, likelihood, line[1], samples=128, sampler="weights", seed=seed)
        return plots.Band(line[0], pred.mean, pred.epistemic_std, pred.std)

    evaluate(0)
    racer.before = racer.after = band()
    yield racer
    for record in steps(model, likelihood, train, steps=total):
        if record.step % EVALUATE_EVERY == 0 or record.step == total:
            evaluate(record.step)
            yield racer
    racer.after = band()


def _live_table(racers: list[Racer], total: int) -> Table:
    table = Table(
        title=f"Six starts, one race: {DEMO_MODEL} on the toy function, {total} steps of SVI"
    )
    for column in (
        "initializer",
        "step",
        "RMSE at step 0",
        "RMSE now",
        "MNLL at step 0",
        "MNLL now",
    ):
        table.add_column(column, justify="left" if column == "initializer" else "right")
    finished = [r.curve[-1][2] for r in racers if r.curve]
    for racer in racers:
        if not racer.curve:
            table.add_row(racer.name, *["·"] * 5)
            continue
        (_, rmse0, mnll0), (step, rmse, mnll) = racer.curve[0], racer.curve[-1]
        style = "bold green" if mnll == min(finished) else None
        table.add_row(
            racer.name,
            str(step),
            f"{rmse0:.3f}",
            f"{rmse:.3f}",
            f"{mnll0:.2f}",
            f"{mnll:.2f}",
            style=style,
        )
    return table


def race_summary(racers: list[Racer]) -> list[dict[str, float | str]]:
    """The race as rows for machines."""
    return [
        {"init": r.name, "step": step, "rmse": rmse, "mnll": mnll}
        for r in racers
        for step, rmse, mnll in r.curve
    ]
