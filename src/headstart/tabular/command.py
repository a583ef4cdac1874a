"""What `headstart fit` and `headstart predict` do and say."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import typer
from rich.console import Console

from headstart.errors import HeadstartError, Interrupted, printable
from headstart.kernels.devices import usable_device
from headstart.kernels.private import sparing_compiler
from headstart.reporting.text import plural
from headstart.storage.checkpoints import Keeper
from headstart.storage.files import read_json, write_json
from headstart.tabular.config import make_recipe, read_config
from headstart.tabular.conformal import infinite_levels
from headstart.tabular.fit import fit_table
from headstart.tabular.frames import STDIN, read_with_texts
from headstart.tabular.page import write_page
from headstart.tabular.places import make_folder
from headstart.tabular.predict import PredictionOptions, predict_table
from headstart.tabular.run import TableRun, jsonable, refuse_folder
from headstart.tabular.schema import unseen_in_words
from headstart.tabular.words import (
    infinite_in_words,
    scores_in_words,
    table_in_words,
    unlike_in_words,
    verdict_in_words,
)
from headstart.training.recipe import Recipe


def fit_command(
    table: str,
    target: str,
    out: Path,
    *,
    task: str,
    given: dict[str, Any],
    config: Path | None,
    conformal: bool,
    noise: str | None,
    ignore: list[str],
    group: str | None,
    time: str | None,
    weights: str | None,
    test_share: float,
    threads: int,
    overwrite: bool,
    resume: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Read, learn, write the folder with its page, and say what matters."""
    console = Console(stderr=True, quiet=quiet)
    refuse_folder(out, overwrite=overwrite)
    unfinished = Keeper(out.parent / f".{out.name}.unfinished")
    if unfinished.any() and not resume:
        raise HeadstartError(
            f"A fit that was interrupted is in {unfinished.folder}: "
            "add --resume to go on with it, or delete that folder."
        )
    recipe = make_recipe(read_config(config) if config else {}, given)
    usable_device(recipe.device)
    options: dict[str, Any] = {
        "task": task,
        "conformal": conformal,
        "noise": noise,
        "ignore": tuple(ignore),
        "group": group,
        "time": time,
        "weights": weights,
        "test_share": test_share,
    }
    read, begun = read_with_texts(table), unfinished.any()
    begin_or_resume(unfinished.folder, {"target": target, **asdict(recipe), **options}, begun)
    torch.set_num_threads(threads)
    try:
        with sparing_compiler():
            run = fit_table(
                read.frame,
                target,
                recipe=recipe,
                **options,
                written=read.written,
                checkpoint=unfinished.folder,
                progress=console.is_terminal and not quiet,
            )
    except Interrupted as stop:
        _say(console, [f"headstart: {stop} Here: the same command with --resume."])
        raise typer.Exit(130) from stop
    except HeadstartError:
        # Refused once, refused again; what an earlier call has left stays for the right one.
        if not begun:
            end_unfinished(unfinished)
        raise
    run.save(out, overwrite=overwrite)
    end_unfinished(unfinished)
    page = write_page(run, out)
    where = f"Model saved to {out}; report: {page}"
    said = [
        *table_in_words(run),
        *run.found["reasons"],
        *scores_in_words(run),
        *verdict_in_words(run),
        where,
    ]
    _say(console, said)
    if as_json:
        places = {"out": str(out), "report": str(page), "task": run.schema.target.task}
        typer.echo(json.dumps({**places, **_numbers_of_run(run)}))


SETTINGS_FILE = "settings.json"
"""What a fit that is not finished was asked for, beside its checkpoints."""


def begin_or_resume(folder: Path, settings: dict[str, Any], begun: bool) -> None:
    """Keep what a fit was asked for; refuse to go on with one that was asked for something else.

    Args:
        folder: Where its unfinished work is.
        settings: What it is asked for now.
        begun: Whether there is such work.
    """
    path, asked = folder / SETTINGS_FILE, jsonable(settings)
    before = read_json(path, "unfinished fit") if begun and path.is_file() else asked
    for name, value in asked.items():
        # A version that did not have a setting did what is now its default.
        was = before.get(name, getattr(Recipe, name, None))
        if was != value:
            raise HeadstartError(
                f"The fit in {folder} was begun with {name}={was}, and would go on "
                f"with {name}={value}: give the same options as then, or delete that folder."
            )
    make_folder(folder)
    write_json(path, asked)


def end_unfinished(unfinished: Keeper) -> None:
    """Remove what a fit needs only while it is not finished."""
    (unfinished.folder / SETTINGS_FILE).unlink(missing_ok=True)
    unfinished.clear()


def _say(console: Console, lines: list[str]) -> None:
    for line in lines:
        console.print(printable(line), markup=False, highlight=False, soft_wrap=True)


def _numbers_of_run(run: TableRun) -> dict[str, Any]:
    names = (
        "scores",
        "standard_errors",
        "tried",
        "reasons",
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


def predict_command(
    folder: Path,
    table: str,
    out: str,
    options: PredictionOptions,
    *,
    threads: int,
    device: str,
    quiet: bool,
    as_json: bool,
) -> None:
    """Write the predictions, and say how many rows are unlike the training data."""
    if as_json and out == STDIN:
        raise HeadstartError(
            "--json and the predictions would share standard output: "
            "write those to a file with --out."
        )
    run = load_run(folder, threads=threads, device=device)
    counts = predict_table(run, table, out, options)
    if as_json:
        unseen = dict(counts.unseen)
        # "strange" is the name of version 0.1, for one release.
        columns = {"unseen": unseen, "strange": unseen, "unlike_in": dict(counts.unlike_in)}
        found = {"rows": counts.rows, "unlike_training": counts.unlike, **columns, "out": out}
        if needed := infinite_levels(run.folds, options.of_intervals):
            found["rows_needed"] = {f"{100 * level:.10g}": n for level, n in needed.items()}
        typer.echo(json.dumps(found | ({"abstain": counts.abstained} if options.abstain else {})))
        return
    abstained = f", {counts.abstained} better not answered" if options.abstain else ""
    lines = [
        f"{plural(counts.rows, 'row')} predicted, {counts.unlike} of them unlike the training data"
        + abstained
        + ("." if out == STDIN else f": {out}"),
        *(
            f"Note: {sentence}"
            for sentence in unlike_in_words(counts.unlike_in, counts.rows, run.schema.date_names)
        ),
        *(f"Note: {sentence}" for sentence in unseen_in_words(counts.unseen)),
        *(f"Note: {sentence}" for sentence in infinite_in_words(run, options.of_intervals)),
    ]
    _say(Console(stderr=True, quiet=quiet), lines)


def load_run(folder: Path, *, threads: int, device: str) -> TableRun:
    """A run whose net computes on a device, with so many threads."""
    torch.set_num_threads(threads)
    run = TableRun.load(folder)
    run.model.to(usable_device(device))
    return run
