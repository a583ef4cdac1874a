"""What `headstart monitor`, `recalibrate` and `update` do and say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from headstart.errors import HeadstartError, printable
from headstart.kernels.private import sparing_compiler
from headstart.reporting.text import plural, readably
from headstart.tabular.command import load_run
from headstart.tabular.frames import read_frame
from headstart.tabular.monitor import Monitoring, labeled_rows, monitor
from headstart.tabular.page import write_page
from headstart.tabular.recalibrate import recalibrate, update
from headstart.tabular.run import TableRun, is_run, jsonable, refuse_folder
from headstart.tabular.words import unlike_in_words

MAX_NAMED = 5
"""Classes that are listed."""


def monitor_command(
    folder: Path,
    table: str,
    *,
    check: bool,
    threads: int,
    device: str,
    quiet: bool,
    as_json: bool,
) -> None:
    """Say what has changed; with `check`, end with exit code 1 if anything has."""
    run = load_run(folder, threads=threads, device=device)
    frame = read_frame(table)
    found = monitor(run, frame)
    strange = run.compare(frame)
    assert strange is not None
    if as_json:
        typer.echo(json.dumps(jsonable(found.to_json() | {"unlike_in": strange.by_column})))
    else:
        dates = run.schema.date_names
        unlike = unlike_in_words(strange.by_column, len(frame), dates)
        _print_lines([*_monitoring_in_words(run, found), *unlike], quiet)
    if check and found.changed:
        raise typer.Exit(1)


def _monitoring_in_words(run: TableRun, found: Monitoring) -> list[str]:
    drifted = [drift for drift in found.drifts if drift.drifted]
    lines = [
        f"{drift.name!r} has drifted: {drift.distance:.0%} of its rows would have to change to "
        f"look as in training (p {_p_in_words(drift.p_value)}, corrected for "
        f"{plural(len(found.drifts), 'column')})."
        for drift in drifted
    ]
    if not drifted:
        lines.append(f"No column of {len(found.drifts)} has clearly drifted.")
    more = ": more than chance" if found.too_many else ": as many as by chance"
    lines.append(
        f"{found.unlike} of {plural(found.rows, 'row')} are unlike the training data, where "
        f"{readably(found.expected_unlike, 2)} would be expected{more}."
    )
    if found.new_classes:
        names = ", ".join(repr(name) for name in list(found.new_classes)[:MAX_NAMED])
        lines.append(
            f"{plural(sum(found.new_classes.values()), 'row')} with a "
            f"{run.schema.target.name!r} that the model does not know ({names}): scores are those "
            "of the others."
        )
    if not found.labeled:
        return [*lines, f"No row has a known {run.schema.target.name!r}: calibration is unknown."]
    return [*lines, *_scores_since(run, found)]


def _p_in_words(p_value: float) -> str:
    """A p-value of a drift; a test cannot tell how far below 0.0001 it is."""
    return "< 0.0001" if p_value < 1e-4 else f"= {p_value:.2g}"


def _scores_since(run: TableRun, found: Monitoring) -> list[str]:
    """Scores beside those of the test rows, and whether the calibration still holds."""
    lines = []
    labels = {"error": "Error", "rmse": "RMSE", "mnll": "MNLL"}
    before = run.found.get("scores", {})
    where = "the test rows" if run.found.get("test_rows") else "rows held out in turn"
    for name in (name for name in labels if name in found.scores and name in before):
        lines.append(
            f"{labels[name]} of {plural(found.labeled, 'labeled row')}: "
            f"{readably(found.scores[name])}; it was {readably(before[name])} on {where}."
        )
    for each in found.checks:
        state = "Calibrated" if each.passed else "No longer calibrated"
        advice = "" if each.passed else " `headstart recalibrate` mends that."
        lines.append(f"{state}: {each.sentence}.{advice}")
    return lines


def recalibrate_command(
    folder: Path,
    table: str,
    *,
    out: Path | None,
    threads: int,
    device: str,
    quiet: bool,
    as_json: bool,
) -> None:
    """Set intervals or probabilities right, in the same folder or in another one."""
    run = load_run(folder, threads=threads, device=device)
    place = _place_of(folder, out)
    done = recalibrate(run, read_frame(table))
    done.run.found = {**run.found, "recalibrated": {"rows": done.rows, "words": done.words}}
    _save_run(done.run, place, done.words, {"rows": done.rows}, quiet, as_json)


def update_command(
    folder: Path,
    table: str,
    *,
    out: Path | None,
    steps: int,
    threads: int,
    device: str,
    quiet: bool,
    as_json: bool,
) -> None:
    """Learn from new rows, in the same folder or in another one."""
    run = load_run(folder, threads=threads, device=device)
    place = _place_of(folder, out)
    frame = read_frame(table)
    with sparing_compiler():
        now = update(run, frame, steps=steps, seed=run.seed)
    rows = len(labeled_rows(run, frame)[0])
    dropped = run.conformal or run.temperature != 1 or run.likelihood.has_predictive_noise
    words = (
        f"Learned from {plural(rows, 'row')} more, with what was known before as the prior. "
        "The scores and the choices of the report are those of before."
    )
    if dropped:
        words += (
            " What calibrated the net as it was (conformal intervals, a temperature or the size of "
            "its noise) is no longer used: `headstart recalibrate` makes its intervals fit again."
        )
    now.found = {**run.found, "updated": {"rows": rows, "words": words}}
    _save_run(now, place, words, {"rows": rows}, quiet, as_json)


def _place_of(folder: Path, out: Path | None) -> Path:
    """Where to write; refuses a folder in use before any work is done."""
    if out is not None and is_run(out):
        raise HeadstartError(
            f"The folder {out} holds an earlier run: name another one"
            + (", or leave out --out." if out.resolve() == folder.resolve() else ".")
        )
    refuse_folder(out or folder, overwrite=out is None)
    return out or folder


def _save_run(
    run: TableRun, place: Path, words: str, numbers: dict[str, Any], quiet: bool, as_json: bool
) -> None:
    run.model.cpu()
    run.save(place, overwrite=True)
    page = write_page(run, place)
    if as_json:
        typer.echo(json.dumps({**numbers, "words": words, "out": str(place)}))
        return
    _print_lines([words, f"Model saved to {place}; report: {page}"], quiet)


def _print_lines(lines: list[str], quiet: bool) -> None:
    console = Console(markup=False, highlight=False, quiet=quiet)
    for line in lines:
        console.print(printable(line), soft_wrap=True)
