"""The report of a folder of rows, as HTML and Markdown: what was run, tables, curves, times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headstart.errors import HeadstartError, untrusted
from headstart.experiments import verdict
from headstart.experiments.catalogue import SUITES
from headstart.experiments.pages import PAGES, page_of
from headstart.experiments.provenance import page_stamp
from headstart.experiments.results import Results, newest_code, results_of
from headstart.experiments.store import Store
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

REPORT_TITLE = "headstart: initializers compared"
SAME_BUT_THE_START = (
    "The same nets, data, steps and optimizer; what differs is where the posterior starts."
)
NOTES = (
    "Numbers are means ± sample standard deviations over splits; the best mean of a column is "
    "bold, which is no verdict. Splits are seeded 90/10 ones (MNIST and CIFAR10: their own test "
    "sets, each repetition with another seed), inputs standardized on the training part.",
    "Regression is on standardized targets; the noise variance is learned from e⁻². MNLL is the "
    "predictive one, −log E_q p(y). The paper's MNLL is an expected one, −E_q log p(y), for "
    "regression at noise variance e⁻² and without ½ log 2π; ours in that convention stands beside "
    "it.",
    "A cell is a metric of a data set at an evaluated step; every metric counts, also those where "
    "higher is better. I-BLM is compared with the rival that is best there in the mean, by the "
    "difference paired over splits and its 95 % t interval: ahead or behind where it excludes "
    "zero, level where it does not. Where splits are resampled from the same rows, the variance "
    "of the mean over J splits is (1/J + n_test/n_train) times that of the differences (Nadeau "
    "and Bengio, 2003); on a fixed test set it is 1/J. One run has numbers and no verdict. The "
    "rival is chosen after the fact, which favors it.",
    "NC: a run whose final test metric is not better than the trivial predictor's (the training "
    "mean, the commonest class) by two standard errors of their difference over test rows. On "
    "CREDIT there are 100 test rows, so that the rule asks for more than most initializers reach, "
    "here and in the paper; 0.01 of its error is one row.",
    "The paper trains for 100 epochs. At batches of 64 a thousand steps are 1.1 passes through "
    "MNIST, 1.6 through PROTEIN, 4.7 through EEG, 7.4 through POWERPLANT, 15 through SPAM and 71 "
    "through CREDIT.",
    "The NELBO in the rows is estimated on the first 1024 training rows, with the KL at its full "
    "weight times the temperature; seconds are those of training, without evaluations.",
    "The code is named by a hash over the modules that a run imports, without comments and "
    "docstrings. A page shows the rows of one hash: today's where there are any, else the last. "
    "`headstart report --check FOLDER` compares the pages of a folder with the code of today.",
)
SHOWN_SETTINGS = {
    "model": "model",
    "budget": "budget",
    "steps": "steps",
    "epochs": "epochs",
    "samples": "samples in training",
    "eval_samples": "samples at test",
    "test_rows": "test rows",
    "batch": "batch",
    "optimizer": "optimizer",
    "lr": "learning rate",
    "prior": "prior variance",
    "kl_weight": "KL weight",
    "kl_schedule": "KL schedule",
    "seed": "seeds",
    "split": "splits",
    "precision": "precision",
    "device": "device",
    "threads": "threads a run",
}


def write_report(folder: Path, markdown: Path | None = None) -> list[Path]:
    """Write the report of a folder of rows.

    Args:
        folder: The folder of the rows; report.html and report.md are written into it.
        markdown: A folder for an overview and a page for each suite.

    Returns:
        The paths that were written.

    Raises:
        HeadstartError: There are no rows, or they are not ones that a report can be made of.
    """
    store = Store(folder)
    with untrusted(store.path, "holds rows that no report can be made of"):
        results = read_results(store)
        pages = {name: _suite_page(name, found) for name, found in results.items()}
        blocks = [
            *_opening(store, results, "#{}"),
            *(block for page in pages.values() for block in page),
        ]
    written = [
        _write_text(folder / "report.html", to_html(REPORT_TITLE, blocks)),
        *_write_markdown(folder, "report", blocks),
    ]
    if markdown is not None:
        for name, page in {"README": _opening(store, results, "{}.md"), **pages}.items():
            written += _write_markdown(markdown, name, page)
    return written


def read_results(store: Store) -> dict[str, Results]:
    """The results of a folder, suite by suite, each of one code."""
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
    """The overview: suites of the newest code are summed up, those of other code only named."""
    code = newest_code([row for each in results.values() for row in each.rows])
    current = {name: each for name, each in results.items() if each.code == code}
    total = sum(len(each.rows) + each.left_out for each in results.values())
    left_out = total - sum(len(each.rows) for each in current.values())
    links = [
        (name, link.format(name), _in_short(name, each, code)) for name, each in results.items()
    ]
    return [
        Heading(1, REPORT_TITLE),
        Text(page_stamp(code, left_out)),
        Text(SAME_BUT_THE_START),
        Heading(3, "Commands"),
        Code(store.commands()),
        Heading(3, "In short"),
        Links(links),
        *verdict.cells_behind({name: each for name, each in current.items() if name not in PAGES}),
        *_settings_table(current),
        Heading(3, "How to read the numbers"),
        *(Text(note) for note in NOTES),
    ]


def _settings_table(results: dict[str, Results]) -> list[Block]:
    rows = [
        [Entry(label), *(Entry(_values(each, name)) for each in results.values())]
        for name, label in SHOWN_SETTINGS.items()
    ]
    return [
        Heading(3, "Settings"),
        Table([Entry("suite"), *(Entry(name) for name in results)], rows),
        Text(f"Versions: {', '.join(_versions(results))}."),
    ]


def _in_short(name: str, results: Results, code: str) -> str:
    """The sentence of a suite in an overview of the results of `code`."""
    if results.code == code:
        return page_of(name).sentence(results)
    return f"By other code, {results.code or 'not known'}: not summed up here."


def _versions(results: dict[str, Results]) -> list[str]:
    return sorted(
        {
            f"{package} {version}"
            for each in results.values()
            for found in each.setting("versions")
            for package, version in found.items()
        }
    )


def _suite_page(name: str, results: Results) -> list[Block]:
    known, page = SUITES.get(name), page_of(name)
    title = known.title if known else f"Comparison: {', '.join(results.names().values())}"
    settings = "; ".join(
        f"{label} {_values(results, setting)}" for setting, label in SHOWN_SETTINGS.items()
    )
    return [
        Heading(2, title, anchor=name),
        Text(page_stamp(results.code, results.left_out)),
        Text(f"{name}: {settings}."),
        Text(page.sentence(results)),
        *([Text(known.note)] if known and known.note else []),
        *page.blocks(name, results),
    ]


def _values(results: Results, setting: str) -> str:
    return ", ".join(str(value) for value in results.setting(setting) if value is not None) or "-"


def _write_markdown(folder: Path, name: str, blocks: Sequence[Block]) -> list[Path]:
    files = {file: content for block in blocks for file, content in block.files().items()}
    for file in (name, *files):
        if Path(file).name != file:
            raise HeadstartError(
                f"A row names its suite or data so that the report would write {file!r}, "
                "in another folder."
            )
    return [
        _write_text(folder / f"{name}.md", to_markdown(blocks)),
        *(_write_text(folder / file, content) for file, content in files.items()),
    ]


def _write_text(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        temporary.write_text(content, encoding="utf-8")
    return path
