"""The report of a folder of rows: what was run, tables beside the paper's, curves, times; as HTML and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headstart.errors import HeadstartError, untrusted
from headstart.experiments import targets, verdict
from headstart.experiments.catalogue import SUITES
from headstart.experiments.pages import PAGES, page_of
from headstart.experiments.store import Store
from headstart.experiments.suites import results_of
from headstart.experiments.summary import Results
from headstart.reporting.document import (
    Block,
    Code,
    Entry,
    Heading,
    Links,
    Table,
    Text,
    to_html,
    to_markdown,
)
from headstart.storage.files import atomic_write

TITLE = "headstart: initialisers compared"
NOTES = (
    "Numbers are means ± sample standard deviations over splits; the best of a column is bold. Splits are seeded 90/10 ones "
    "(MNIST: its own test set, each repetition with another seed), inputs standardised on the training part.",
    "Regression is on standardised targets; the noise variance is learned from e⁻². MNLL is the predictive one, "
    "−log E_q p(y). The paper's MNLL is an expected one, −E_q log p(y), for regression at noise variance e⁻² and without "
    "½ log 2π; ours in that convention stands beside it.",
    "I-BLM loses a cell, that is a metric of a data set at a step, where the rival that is lowest there in the mean is ahead of it "
    "by more than one standard error of their difference, paired over splits; with a single split, where it is ahead at all. Cells "
    "are error or RMSE and MNLL at steps 0, 100, 500 and 2000, as far as there are any, and at the last one.",
    "NC: a run whose final test metric is not better than the trivial predictor's (the training mean, the commonest class) by "
    "two standard errors of their difference over test rows. On CREDIT there are 100 test rows, so that the rule asks for "
    "more than most initialisers reach, here and in the paper; 0.01 of its error is one row.",
    "The paper trains for 100 epochs. At batches of 64 a thousand steps are 1.1 passes through MNIST, 1.6 through PROTEIN, 4.7 "
    "through EEG, 7.4 through POWERPLANT, 15 through SPAM and 71 through CREDIT.",
    "The NELBO in the rows is estimated on the first 1024 training rows, with the KL at its full weight times the temperature; seconds are those of training, without evaluations.",
)
SETTINGS = {
    "model": "model",
    "budget": "budget",
    "steps": "steps",
    "epochs": "epochs",
    "samples": "samples in training",
    "eval_samples": "samples at test",
    "test_rows": "test rows",
    "batch": "batch",
    "lr": "Adam lr",
    "prior": "prior variance",
    "kl_weight": "KL weight",
    "kl_schedule": "KL schedule",
    "seed": "seeds",
    "split": "splits",
    "precision": "precision",
    "device": "device",
    "threads": "threads a run",
}


def write(folder: Path, markdown: Path | None = None) -> list[Path]:
    """Write report.html and report.md into `folder`, and into `markdown` a page for each suite; returns the paths."""
    store = Store(folder)
    with untrusted(store.path, "holds rows that no report can be made of"):
        results = read_results(store)
        pages = {name: _suite(name, found) for name, found in results.items()}
        blocks = [
            *_opening(store, results, "#{}"),
            *(block for page in pages.values() for block in page),
        ]
    written = [
        _save(folder / "report.html", to_html(TITLE, blocks)),
        *_save_markdown(folder, "report", blocks),
    ]
    if markdown is not None:
        for name, page in {"README": _opening(store, results, "{}.md"), **pages}.items():
            written += _save_markdown(markdown, name, page)
    return written


def read_results(store: Store) -> dict[str, Results]:
    """The results of a folder, suite by suite."""
    rows = store.rows()
    if not rows:
        raise HeadstartError(
            f"There are no finished runs in {store.folder}: fill it first, as in "
            f"`headstart reproduce toy-predictions --out {store.folder}`."
        )
    found = {row["suite"] for row in rows}
    suites = [*(name for name in SUITES if name in found), *sorted(found - SUITES.keys())]
    return {name: results_of(name, rows) for name in suites}


def _opening(store: Store, results: dict[str, Results], link: str) -> list[Block]:
    versions = {
        f"{k} {v}"
        for each in results.values()
        for found in each.setting("versions")
        for k, v in found.items()
    }
    settings = [
        [Entry(label), *(Entry(_values(each, name)) for each in results.values())]
        for name, label in SETTINGS.items()
    ]
    return [
        Heading(1, TITLE),
        Text(
            "The same nets, data, steps and optimiser; what differs is where the posterior starts."
        ),
        Heading(3, "Commands"),
        Code(store.commands()),
        Heading(3, "In short"),
        Links(
            [
                (name, link.format(name), page_of(name).sentence(each))
                for name, each in results.items()
            ]
        ),
        *targets.table(results),
        *verdict.lost_cells({name: each for name, each in results.items() if name not in PAGES}),
        Heading(3, "Settings"),
        Table([Entry("suite"), *(Entry(name) for name in results)], settings),
        Text(f"Versions: {', '.join(sorted(versions))}."),
        Heading(3, "How to read the numbers"),
        *(Text(note) for note in NOTES),
    ]


def _suite(name: str, results: Results) -> list[Block]:
    known, page = SUITES.get(name), page_of(name)
    settings = "; ".join(
        f"{label} {_values(results, setting)}" for setting, label in SETTINGS.items()
    )
    return [
        Heading(
            2,
            known.title if known else f"Comparison: {', '.join(results.names().values())}",
            anchor=name,
        ),
        Text(f"{name}: {settings}."),
        Text(page.sentence(results)),
        *([Text(known.note)] if known and known.note else []),
        *page.blocks(name, results),
    ]


def _values(results: Results, setting: str) -> str:
    return ", ".join(str(value) for value in results.setting(setting) if value is not None) or "-"


def _save_markdown(folder: Path, name: str, blocks: Sequence[Block]) -> list[Path]:
    files = {file: content for block in blocks for file, content in block.files().items()}
    for file in (name, *files):
        if Path(file).name != file:
            raise HeadstartError(
                f"A row names its suite or data so that the report would write {file!r}, in another folder."
            )
    return [
        _save(folder / f"{name}.md", to_markdown(blocks)),
        *(_save(folder / file, content) for file, content in files.items()),
    ]


def _save(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        temporary.write_text(content, encoding="utf-8")
    return path
