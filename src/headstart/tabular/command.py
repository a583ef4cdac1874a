"""What `headstart fit` and `headstart predict` do and say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import typer
from rich.console import Console

from headstart.errors import HeadstartError, Interrupted, printable
from headstart.storage.checkpoints import Keeper
from headstart.tabular.columns import listing, plural
from headstart.tabular.config import make_recipe, read_config
from headstart.tabular.fit import fit_table, in_words
from headstart.tabular.frames import STDIN, read_frame
from headstart.tabular.page import write_page
from headstart.tabular.predict import predict_table
from headstart.tabular.run import TableRun, refuse_folder
from headstart.tabular.schema import strange_in_words


def fit(
    table: str,
    target: str,
    out: Path,
    *,
    task: str,
    given: dict[str, Any],
    config: Path | None,
    conformal: bool,
    noise: str,
    ignore: list[str],
    test_share: float,
    threads: int,
    overwrite: bool,
    resume: bool,
    as_json: bool,
) -> None:
    """Read, learn, write the folder with its page, and say what matters."""
    console = Console(stderr=True)
    refuse_folder(out, overwrite=overwrite)
    unfinished = Keeper(out.parent / f".{out.name}.unfinished")
    if unfinished.any() and not resume:
        raise HeadstartError(
            f"A fit that was interrupted is in {unfinished.folder}: add --resume to go on with it, or delete that folder."
        )
    recipe = make_recipe(read_config(config) if config else {}, **given)
    frame = read_frame(table)
    torch.set_num_threads(threads)
    try:
        run = fit_table(
            frame,
            target,
            task=task,
            recipe=recipe,
            conformal=conformal,
            noise=noise,
            ignore=tuple(ignore),
            test_share=test_share,
            checkpoint=unfinished.folder,
            progress=console.is_terminal,
        )
    except Interrupted as stop:
        console.print(
            f"headstart: {stop} Here: the same command with --resume.",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(130) from stop
    run.save(out, overwrite=overwrite)
    unfinished.clear()
    page = write_page(out)
    kind = run.schema.target
    what = f"one of {len(kind.classes)} classes" if kind.classes else "a quantity"
    say = [
        f"{target} is taken for {what}, from {plural(len(run.schema.columns), 'column')} of {plural(run.found['rows'], 'row')}."
    ]
    kinds: dict[str, list[str]] = {}
    for column in run.schema.columns:
        kinds.setdefault(column.describe(), []).append(column.name)
    say += [f"Taken for {kind}: {listing(names, 12)}." for kind, names in kinds.items()]
    say += [f"Not used: {name!r} {reason}." for name, reason in run.schema.left_out.items()]
    say += [f"Note: {warning}" for warning in run.warnings]
    say += [*in_words(run), f"The model: {out}; the report: {page}"]
    for line in say:
        console.print(printable(line), markup=False, highlight=False, soft_wrap=True)
    if as_json:
        typer.echo(
            json.dumps({"out": str(out), "report": str(page), "task": kind.task, **_numbers(run)})
        )


def _numbers(run: TableRun) -> dict[str, Any]:
    names = (
        "scores",
        "trivial",
        "coverage",
        "rows",
        "train_rows",
        "test_rows",
        "seconds",
        "best_step",
        "conformal",
    )
    return {name: run.found[name] for name in names if name in run.found}


def predict(
    folder: Path, table: str, out: str, *, with_inputs: bool, threads: int, as_json: bool
) -> None:
    """Write the predictions, and say how many rows are unlike the training data."""
    if as_json and out == STDIN:
        raise HeadstartError(
            "--json and the predictions would share standard output: write those to a file with --out."
        )
    run = TableRun.load(folder)
    torch.set_num_threads(threads)
    told = predict_table(run, table, out, with_inputs=with_inputs)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "rows": told.rows,
                    "unlike_training": told.unlike,
                    "strange": dict(told.strange),
                    "out": out,
                }
            )
        )
        return
    console = Console(stderr=True)
    lines = [
        f"{plural(told.rows, 'row')} predicted, {told.unlike} of them unlike the training data"
        + ("." if out == STDIN else f": {out}")
    ]
    lines += [f"Note: {sentence}" for sentence in strange_in_words(told.strange)]
    for line in lines:
        console.print(printable(line), markup=False, highlight=False, soft_wrap=True)
