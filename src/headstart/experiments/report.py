"""The report of a folder of rows, as HTML and Markdown: what was run, tables, curves, times."""

from __future__ import annotations

import shlex
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from headstart.errors import HeadstartError, untrusted
from headstart.experiments import verdict
from headstart.experiments.catalogue import SUITES
from headstart.experiments.durations import durations
from headstart.experiments.pages import PAGES, page_of
from headstart.experiments.paper_cells import paper_blocks
from headstart.experiments.provenance import page_stamp
from headstart.experiments.published import (
    ROWS_FOLDER,
    SHOWN_SETTINGS,
    publish,
    read_published,
)
from headstart.experiments.results import Results, by_page, label_of, newest_code
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
    "In a race of initializers nets, data, steps and optimizer are the same, and the noise of the "
    "likelihood is fitted to every start in the same way; what differs is where the posterior "
    "starts. A line that names an optimizer or the library's defaults differs in that too."
)
FRONT_PAGE = "README"
HOW_REBUILT = (
    "The command headstart report, given this folder, makes this page and those of the suites "
    "from the rows beside them (the folder rows), without running anything; nothing is typed in."
)
LOST_ROWS = (
    "The rows of these pages were not kept: they cannot be made again from this folder, "
    "and no verdict above counts them."
)
OTHER_SCRIPTS = "Each is written by a script that it names, not by a suite."
NOTES = (
    "Numbers are means ± sample standard deviations over splits; the best mean of a column is "
    "bold, which is no verdict. Splits are seeded 90/10 ones (MNIST and CIFAR10: their own test "
    "sets, each repetition with another seed), inputs standardized on the training part.",
    "Regression is on standardized targets; the noise variance is fitted to every start, at most "
    "to the variance of the labels, and learned from there. MNLL is the "
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


def write_report(folder: Path, markdown: Path | None = None) -> list[Path]:
    """Write the report of a folder of rows.

    Args:
        folder: The folder of the rows; report.html and report.md are written into it.
        markdown: A folder of pages: the rows are published there, and its pages made anew.

    Returns:
        The paths that were written.

    Raises:
        HeadstartError: There are no rows, or they are not ones that a report can be made of.
    """
    store = Store(folder)
    with untrusted(store.path, "holds rows that no report can be made of"):
        results = read_results(store)
        code = newest_code([row for each in results.values() for row in each.rows])
        blocks = [
            *_opening(store.commands(), results, "#{}", code),
            *(block for name, found in results.items() for block in _suite_page(name, found)),
        ]
    written = [
        _write_text(folder / "report.html", to_html(REPORT_TITLE, blocks)),
        *_write_markdown(folder, "report", blocks),
    ]
    if markdown is not None:
        written += [*publish(store.rows(), markdown), *rebuild_pages(markdown)]
    return written


def rebuild_pages(folder: Path) -> list[Path]:
    """Make the pages of a folder anew from the rows beside them: a front page, one for each suite.

    Args:
        folder: The folder of the pages, with the rows that `publish` has put there.

    Returns:
        The paths that were written.

    Raises:
        HeadstartError: There are no rows, or they are not ones that a page can be made of.
    """
    with untrusted(folder / ROWS_FOLDER, "holds rows that no page can be made of"):
        results = by_page(read_published(folder))
        if not results:
            raise HeadstartError(
                f"{folder / ROWS_FOLDER} holds no rows: publish some first, as in "
                f"`headstart report out/results --markdown {folder}`."
            )
        pages = {name: _suite_page(name, found) for name, found in results.items()}
        front = _front_page(folder, results)
    return [
        path
        for name, page in {FRONT_PAGE: front, **pages}.items()
        for path in _write_markdown(folder, name, page)
    ]


def read_results(store: Store) -> dict[str, Results]:
    """The results of a folder, page by page, each of one code."""
    rows = store.rows()
    if not rows:
        raise HeadstartError(
            f"There are no finished runs in {store.folder}: fill it first, as in "
            f"`headstart reproduce toy-predictions --out {store.folder}`."
        )
    return by_page(rows)


def _front_page(folder: Path, results: dict[str, Results]) -> list[Block]:
    """The paper's numbers beside ours, the overview, and the pages that have no rows here."""
    commands = [_command_of(each) for each in results.values()]
    # That of most pages, whatever the code of today: the same rows give the same page.
    code = statistics.mode(each.code for each in results.values())
    title, _, *rest = _opening(list(dict.fromkeys(commands)), results, "{}.md", code)
    version = next(each.version for each in results.values() if each.code == code)
    others = sorted(path for path in folder.glob("*.md") if path.stem not in (FRONT_PAGE, *results))
    lost = [path for path in others if path.stem in SUITES]
    scripts = [path for path in others if path not in lost]
    return [
        title,
        Text(page_stamp(code, version=version)),
        Text(HOW_REBUILT),
        *paper_blocks(results),
        Heading(2, "The suites"),
        *rest,
        *durations(results),
        *_page_list("Pages whose rows are not here", LOST_ROWS, lost),
        *_page_list("Pages of other scripts", OTHER_SCRIPTS, scripts),
    ]


def _page_list(title: str, about: str, paths: Sequence[Path]) -> list[Block]:
    links = [(path.stem, path.name, _title_of(path)) for path in paths]
    return [Heading(3, title), Text(about), Links(links)] if links else []


def _title_of(path: Path) -> str:
    """The first heading of a page."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line.lstrip("# ") for line in lines if line.startswith("#")), "")


def _command_of(results: Results) -> str:
    """The command that makes the rows of a page, from what the rows say."""
    suite, row = results.suite, results.rows[0]
    if suite not in SUITES:
        inits = ",".join(dict.fromkeys(each["init"] for each in results.rows))
        named = f"--dataset {row['dataset']} --model {row['model']} --init {inits}"
        return f"headstart {suite} {named} --steps {row['steps']}"
    budget = SUITES[suite].budget(row["budget"])
    steps, splits = results.setting("steps"), len(results.setting("split"))
    more = [f"--splits {splits}"] if splits != budget.splits else []
    if steps[-1] not in (budget.steps, None):
        more.append(f"--steps {steps[-1]}")
    for part, (there, missing) in _parts_of_suite(results).items():
        more += [f"--{part} {shlex.quote(name)}" for name in there if missing]
    return " ".join([f"headstart reproduce {suite} --budget {row['budget']}", *more])


def _parts_of_suite(results: Results) -> dict[str, tuple[list[str], list[str]]]:
    """The data sets, models and labels of a suite that there are rows of, and the others."""
    suite = SUITES[results.suite]
    named = {
        "dataset": (suite.datasets, {row["dataset"] for row in results.rows}),
        "model": (suite.models, {row["model"] for row in results.rows}),
        "label": ([variant.label for variant in suite.variants], set(results.labels)),
    }
    return {
        part: ([name for name in names if name in found], [n for n in names if n not in found])
        for part, (names, found) in named.items()
    }


def _run_of_suite(results: Results) -> str:
    """What of the suite was not run, and how often each line was where that differs."""
    missing = [name for _, lacking in _parts_of_suite(results).values() for name in lacking]
    said = f"Not run of this suite: {'; '.join(missing)}. " if missing else ""
    last = [row for row in results.rows if row.get("last")]
    runs = Counter((row["dataset"], row["model"], label_of(row)) for row in last)
    if len(set(runs.values())) > 1:
        names = (f"{label} on {data} {net}: {count}" for (data, net, label), count in runs.items())
        said += f"Runs of each line: {'; '.join(names)}."
    return said.strip()


def _opening(
    commands: Sequence[str], results: dict[str, Results], link: str, code: str
) -> list[Block]:
    """The overview: every suite is summed up, and names its code where that is not `code`."""
    links = [
        (name, link.format(name), _in_short(name, each, code)) for name, each in results.items()
    ]
    left_out = sum(each.left_out for each in results.values())
    version = next(each.version for each in results.values() if each.code == code)
    raced = {name: each for name, each in results.items() if each.suite not in PAGES}
    return [
        Heading(1, REPORT_TITLE),
        Text(page_stamp(code, left_out, version=version)),
        Text(SAME_BUT_THE_START),
        Heading(3, "Commands"),
        Code(commands),
        Heading(3, "In short"),
        Links(links),
        *verdict.cells_behind(raced),
        *_settings_table(results),
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
    """The sentence of a suite, with the code of its rows where that is not `code`."""
    sentence = page_of(results.suite).sentence(results)
    other = f" By code {results.code or 'that is not known'}." if results.code != code else ""
    return sentence + other


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
    known, page = SUITES.get(results.suite), page_of(results.suite)
    notes = [known.note, _run_of_suite(results)] if known else []
    title = known.title if known else f"Comparison: {', '.join(results.names().values())}"
    settings = "; ".join(
        f"{label} {_values(results, setting)}" for setting, label in SHOWN_SETTINGS.items()
    )
    return [
        Heading(2, title, anchor=name),
        Text(page_stamp(results.code, results.left_out, version=results.version)),
        Text(f"{name}: {settings}."),
        Text(page.sentence(results)),
        *(Text(note) for note in notes if note),
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
