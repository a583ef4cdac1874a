"""`headstart report` of a fitted table: one self-contained page, in words and pictures."""

from __future__ import annotations

from pathlib import Path

from headstart.errors import untrusted
from headstart.reporting.document import Block, Heading, Text, to_html
from headstart.storage.files import atomic_write
from headstart.tabular import panels
from headstart.tabular.run import PAGE_FILE, TableRun
from headstart.tabular.words import (
    familiarity_in_words,
    learning_in_words,
    scores_in_words,
    start_in_words,
    target_in_words,
    verdict_in_words,
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
    """The page, from whether to rely on the model to how it was made."""
    found, target = run.found, run.schema.target
    doubt = (
        "the epistemic part of a prediction is a mutual information in nats"
        if target.classes
        else f"the epistemic part is a standard deviation in the units of {target.name}"
    )
    shown = "" if target.classes else "; ± is one predicted standard deviation"
    checks = found.get("checks") or ()
    good = bool(checks) and all(check["passed"] for check in checks)
    return [
        Heading(1, f"Predicting {target.name}"),
        *(Text(sentence, notable=True, good=good) for sentence in verdict_in_words(run)),
        *(Text(found[name]["words"]) for name in ("recalibrated", "updated") if name in found),
        *(Text(sentence) for sentence in scores_in_words(run)),
        *(Text(f"Note: {warning}") for warning in run.warnings),
        *panels.test_blocks(found),
        *panels.baseline_blocks(run),
        *panels.explanation_blocks(run),
        Heading(2, "Calibration"),
        *panels.calibration_blocks(run),
        *panels.decision_blocks(run),
        Heading(2, "Where the model knows least"),
        Text(
            f"The test rows with the largest epistemic part: {doubt}, the part of the uncertainty "
            f"that more rows like it would take away{shown}. {familiarity_in_words(run)}"
        ),
        panels.uncertain_table(found["uncertain"]),
        Heading(2, "The table"),
        Text(
            f"{found['rows']} rows: {found['train_rows']} to learn from, of which some were held "
            f"out to choose the model and its steps, and {found['test_rows']} for the numbers "
            f"on this page. {target.name} is {target_in_words(target)}."
        ),
        panels.column_table(run),
        Heading(2, "How it was learned"),
        *(Text(sentence) for sentence in start_in_words(found["initialization"])),
        Text(learning_in_words(found)),
        panels.learning_group(run),
    ]
