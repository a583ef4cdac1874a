"""`headstart report` of a fitted table: one self-contained page, in words and pictures."""

from __future__ import annotations

from pathlib import Path

from headstart.errors import untrusted
from headstart.reporting import plots
from headstart.reporting.document import Block, Entry, Figure, Heading, Table, Text, to_html
from headstart.storage.files import atomic_write
from headstart.tabular.run import PAGE_FILE, TableRun
from headstart.tabular.words import (
    familiarity_in_words,
    learning_in_words,
    scores_in_words,
    start_in_words,
    target_in_words,
)


def write_page(run: TableRun, folder: Path) -> Path:
    """Write the page of a run into its folder; the path of the page."""
    with untrusted(folder, "does not hold what a report shows"):
        text = to_html(f"{run.schema.target.name}: what the model knows", page_blocks(run))
    path = folder / PAGE_FILE
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def page_blocks(run: TableRun) -> list[Block]:
    """The page, from the few numbers that matter to the rows that the model knows least about."""
    found, target = run.found, run.schema.target
    classes = bool(target.classes)
    unit = "nats of mutual information" if classes else _in_units(target.name)
    return [
        Heading(1, f"Predicting {target.name}"),
        *(Text(sentence) for sentence in scores_in_words(run)),
        Heading(2, "The table"),
        Text(
            f"{found['rows']} rows: {found['train_rows']} to learn from, a fraction of them held "
            f"out as validation rows for early stopping, and {found['test_rows']} for the numbers "
            f"on this page. {target.name} is {target_in_words(target)}."
        ),
        *(Text(f"Note: {warning}") for warning in run.warnings),
        _table_of_columns(run),
        Heading(2, "The start"),
        *(Text(sentence) for sentence in start_in_words(found["initialization"])),
        Heading(2, "Learning"),
        Text(learning_in_words(found)),
        Figure(
            "learning",
            plots.validation_curves(found["validation"], "error" if classes else "rmse"),
            "Validation rows while training" + ("." if classes else ", the target standardized."),
        ),
        Heading(2, "Calibration"),
        _class_calibration_figure(run) if classes else _coverage_figure(run),
        Heading(2, "Where the model knows least"),
        Text(f"The test rows with the largest epistemic part: {unit}. {familiarity_in_words(run)}"),
        _table_of_uncertain_rows(found["uncertain"]),
    ]


def _in_units(name: str) -> str:
    return f"a standard deviation in the units of {name}"


def _table_of_columns(run: TableRun) -> Table:
    used = [[Entry(column.name), Entry(column.describe())] for column in run.schema.columns]
    unused = [
        [Entry(name, quiet=True), Entry(f"not used: it {reason}", quiet=True)]
        for name, reason in run.schema.left_out.items()
    ]
    return Table([Entry("column"), Entry("taken for")], [*used, *unused])


def _class_calibration_figure(run: TableRun) -> Figure:
    bins = run.found["reliability"]
    total = sum(bins["rows"])
    fractions = [rows / total for rows in bins["rows"]]
    diagram = plots.ReliabilityBins(
        fractions, bins["confidence"], bins["accuracy"], run.found["scores"]["ece"]
    )
    return Figure(
        "reliability",
        plots.reliability_diagrams({run.schema.target.name: {"this model": diagram}}),
        "Of predictions made with some confidence, how many were right; "
        "on the dotted line as many as said.",
    )


def _coverage_figure(run: TableRun) -> Figure:
    coverage = {float(level): value for level, value in run.found["coverage"].items()}
    points = run.found["points"]
    return Figure(
        "coverage",
        plots.interval_coverage(coverage, points["predicted"], points["sd"], points["true"]),
        "Left: the fraction of test rows inside central intervals; on the dotted line as many as "
        "promised. Right: predictions and truth, and their distance in standard deviations.",
    )


def _table_of_uncertain_rows(rows: list[dict[str, str]]) -> Table:
    names = list(rows[0]) if rows else ["predicted"]
    return Table(
        [Entry(name) for name in names], [[Entry(row[name]) for name in names] for row in rows]
    )
