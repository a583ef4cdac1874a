"""What `headstart explain` does and says."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import torch
import typer
from rich.console import Console
from rich.table import Table

from headstart.errors import HeadstartError
from headstart.reporting.text import plural, readably
from headstart.tabular.command import load_run
from headstart.tabular.explain import Effects, Importance, explain_rows, explain_table, most_moving
from headstart.tabular.familiarity import Strangeness
from headstart.tabular.frames import STDIN, read_frame
from headstart.tabular.places import refuse_file
from headstart.tabular.predict import open_sink, refuse_source
from headstart.tabular.run import TableRun

MAX_SAID_ROWS = 5
"""Rows that are explained on the terminal."""
MAX_EXPLAINED = 100_000
"""Rows that are explained at all: each is predicted again for every column."""


def explain_command(
    folder: Path,
    table: str,
    out: str | None,
    *,
    threads: int,
    device: str,
    quiet: bool,
    as_json: bool,
) -> None:
    """Say which columns move the predictions of a table and of its first rows; write all rows."""
    if out is not None:
        if out == STDIN:
            raise HeadstartError("--out takes a file here: standard output has the summary.")
        refuse_file(Path(out))
    run = load_run(folder, threads=threads, device=device)
    if out is not None:
        refuse_source(out, table, "the effects")
    frame = read_frame(table)
    if len(frame) > MAX_EXPLAINED:
        raise HeadstartError(
            f"{table} has {len(frame)} rows; at most {MAX_EXPLAINED} are explained: choose some."
        )
    importances = explain_table(run, frame, known_labels(run, frame), seed=run.seed)
    effects = explain_rows(run, frame if out else frame.iloc[:MAX_SAID_ROWS])
    strange = run.compare(frame)
    assert strange is not None
    if out:
        written = effects.frame().assign(unlike_because=strange.reasons)
        with open_sink(out) as sink:
            written.to_csv(sink, index=False, float_format="%.10g")
    if as_json:
        columns = [asdict(each) for each in importances]
        typer.echo(json.dumps({"rows": len(frame), "columns": columns, "out": out}))
        return
    console = Console(markup=False, highlight=False, quiet=quiet)
    console.print(_importance_table(run, importances))
    console.print("Mean changes where a column's cells are exchanged for those of other rows.")
    for row in range(min(MAX_SAID_ROWS, len(frame))):
        line = _row_in_words(run, effects, strange, row)
        console.print(line, soft_wrap=True)
    if out:
        console.print(f"{plural(len(frame), 'row')}: {out}", soft_wrap=True)


def known_labels(run: TableRun, frame: pd.DataFrame) -> torch.Tensor | None:
    """The labels of the rows, if all of them are known."""
    target = run.schema.target
    if target.name not in frame.columns:
        return None
    y = torch.tensor(target.encode(frame[target.name]))
    known = (y >= 0) if target.classes else y.isfinite()
    return y if bool(known.all()) else None


def _importance_table(run: TableRun, importances: list[Importance]) -> Table:
    unit = "probability" if run.schema.target.classes else run.schema.target.name
    table = Table("column", f"moves {unit}", "epistemic part")
    if importances[0].nll is not None:
        table.add_column("raises MNLL")
    for each in importances:
        last = [readably(each.nll)] if each.nll is not None else []
        table.add_row(each.name, readably(each.prediction), readably(each.uncertainty), *last)
    return table


def _row_in_words(run: TableRun, effects: Effects, strange: Strangeness, row: int) -> str:
    moving = ", ".join(
        f"{name} {'+' if value > 0 else '−'}{readably(abs(value))}"
        for name, value in most_moving(effects, row)
    )
    said = readably(float(effects.said[row]), 4)
    subject = (
        "the probability of the predicted class is" if run.schema.target.classes else "predicted"
    )
    odd = f" Unlike the training data: {strange.reasons[row]}." if strange.flags[row] else ""
    return f"Row {row + 1}: {subject} {said}; {moving}.{odd}"
