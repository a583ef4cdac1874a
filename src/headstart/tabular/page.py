"""`headstart report` of a fitted table: one self-contained page, in words and pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from headstart.errors import untrusted
from headstart.reporting import plots
from headstart.reporting.document import Block, Entry, Figure, Heading, Table, Text, to_html
from headstart.reporting.plots import COLOURS, SVG_STYLE, to_svg
from headstart.storage.files import atomic_write
from headstart.tabular.fit import in_words
from headstart.tabular.run import PAGE, TableRun


def write_page(folder: Path) -> Path:
    """Write the page into the run's own folder."""
    run = TableRun.load(folder)
    with untrusted(folder, "does not hold what a report shows"):
        text = to_html(f"{run.schema.target.name}: what the model knows", blocks(run))
    path = folder / PAGE
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def blocks(run: TableRun) -> list[Block]:
    """The page, from the few numbers that matter to the rows that puzzle the model most."""
    found, target = run.found, run.schema.target
    recipe = found["recipe"]
    classes = bool(target.classes)
    return [
        Heading(1, f"Predicting {target.name}"),
        *(Text(sentence) for sentence in in_words(run)),
        Heading(2, "The table"),
        Text(
            f"{found['rows']} rows: {found['train_rows']} to learn from, a share of them held out to know when to stop, and "
            f"{found['test_rows']} for the numbers on this page. {target.name} is "
            + (f"one of {len(target.classes)} classes." if classes else "a quantity.")
        ),
        *(Text(f"Note: {warning}") for warning in run.warnings),
        _columns(run),
        Heading(2, "The start"),
        *(Text(sentence) for sentence in start_in_words(found["initialisation"])),
        Heading(2, "Learning"),
        Text(
            f"{recipe['model']}, {recipe['steps']} steps at most of {recipe['samples']} samples and {recipe['batch_size']} rows, learning rate "
            f"{recipe['lr']:g} falling to zero; seed {recipe['seed']}; {found['seconds']:.0f} s in all. The parameters of step "
            f"{found['best_step']} were kept: {found['stopped']}."
        ),
        Figure(
            "learning",
            _learning(found["validation"], "error" if classes else "rmse"),
            "Held-out rows while training" + ("." if classes else ", the target standardised."),
        ),
        Heading(2, "Calibration"),
        *_calibration(run),
        Heading(2, "Where the model knows least"),
        Text(
            "The test rows with the largest epistemic part: "
            + (
                "nats of mutual information."
                if classes
                else f"a standard deviation in the units of {target.name}."
            )
            + f" A row is called unlike the training data above {run.familiar:.3g}."
        ),
        _uncertain(found["uncertain"]),
    ]


def start_in_words(start: Mapping[str, Any]) -> list[str]:
    """What the initialiser left, layer by layer."""
    sds = [layer["sd"] for layer in start["layers"] if layer["sd"] is not None]
    sentences = [
        f"{start['initializer']} placed the posterior of {len(start['layers'])} layers in {start['seconds']:.2f} s, before any training step."
    ]
    if sds:
        sentences.append(
            f"The signal keeps its size on the way: pre-activations have standard deviations between {min(sds):.2g} and {max(sds):.2g}."
        )
    if start["expected_nll"] is not None:
        sentences.append(
            f"The objective began with {start['expected_nll']:.4g} nats of misfit on all rows and {start['kl']:.4g} nats of divergence from the prior."
        )
    return sentences + [f"Note: {warning}" for warning in start["warnings"]]


def _columns(run: TableRun) -> Table:
    used = [[Entry(column.name), Entry(column.describe())] for column in run.schema.columns]
    unused = [
        [Entry(name, quiet=True), Entry(f"not used: it {reason}", quiet=True)]
        for name, reason in run.schema.left_out.items()
    ]
    return Table([Entry("column"), Entry("taken for")], [*used, *unused])


def _calibration(run: TableRun) -> list[Block]:
    found = run.found
    if run.schema.target.classes:
        part = found["reliability"]
        total = sum(part["rows"])
        diagram = plots.Reliability(
            [rows / total for rows in part["rows"]],
            part["confidence"],
            part["accuracy"],
            found["scores"]["ece"],
        )
        picture = plots.reliabilities({run.schema.target.name: {"this model": diagram}})
        return [
            Figure(
                "reliability",
                picture,
                "Of predictions made with some confidence, how many were right; on the dotted line as many as said.",
            )
        ]
    caption = "Left: the share of test rows inside central intervals; on the dotted line as many as promised. Right: predictions and truth, and their distance in standard deviations."
    return [Figure("coverage", _coverage(found), caption)]


def _uncertain(rows: list[dict[str, str]]) -> Table:
    names = list(rows[0]) if rows else ["predicted"]
    return Table(
        [Entry(name) for name in names], [[Entry(row[name]) for name in names] for row in rows]
    )


def _learning(validation: list[dict[str, float]], metric: str) -> str:
    with plt.rc_context(SVG_STYLE):
        figure, panels = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
        steps = [row["step"] for row in validation]
        for panel, name in zip(panels, ("mnll", metric), strict=True):
            panel.plot(steps, [row[name] for row in validation], "o-", ms=3, color=COLOURS["iblm"])
            panel.set(
                xlabel="step",
                ylabel={"mnll": "MNLL (nats per row)", "rmse": "RMSE", "error": "error"}[name],
            )
            panel.grid(alpha=0.3)
        return to_svg(figure)


def _coverage(found: Mapping[str, Any]) -> str:
    points = found["points"]
    levels = sorted(map(float, found["coverage"]))
    with plt.rc_context(SVG_STYLE):
        figure, panels = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
        panels[0].plot([0, 1], [0, 1], ":", color="black", lw=0.8)
        panels[0].plot(
            levels,
            [found["coverage"][f"{level:g}"] for level in levels],
            "o-",
            ms=3,
            color=COLOURS["iblm"],
        )
        panels[0].set(xlabel="interval", ylabel="share of rows inside", xlim=(0, 1), ylim=(0, 1))
        panels[1].plot(
            points["predicted"], points["true"], ".", ms=3, alpha=0.5, color=COLOURS["orthogonal"]
        )
        ends = [min(points["predicted"]), max(points["predicted"])]
        panels[1].plot(ends, ends, ":", color="black", lw=0.8)
        panels[1].set(xlabel="predicted", ylabel="true")
        z = [
            (t - p) / s
            for p, s, t in zip(points["predicted"], points["sd"], points["true"], strict=True)
        ]
        panels[2].hist(
            [max(-4.5, min(4.5, value)) for value in z],
            bins=37,
            range=(-4.6, 4.6),
            density=True,
            color=COLOURS["orthogonal"],
            alpha=0.6,
        )
        grid = [-4.5 + 0.05 * k for k in range(181)]
        panels[2].plot(
            grid,
            [math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi) for x in grid],
            color="black",
            lw=0.8,
        )
        panels[2].set(xlabel="(true − predicted) / sd", ylabel="density")
        for panel in panels:
            panel.grid(alpha=0.3)
        return to_svg(figure)
