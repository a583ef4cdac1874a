"""The report of a folder of rows: what was run, tables beside the paper's, curves, times; as HTML and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headstart.errors import HeadstartError
from headstart.experiments import figures, verdict
from headstart.experiments.document import Block, Code, Entry, Group, Heading, Links, Table, Text, to_html, to_markdown
from headstart.experiments.store import Store
from headstart.experiments.suites import SUITES
from headstart.experiments.summary import Results, number, paper
from headstart.metrics import METRICS

TITLE = "headstart: initialisers compared"
NOTES = (
    "Numbers are means ± sample standard deviations over splits; the best of a column is bold. Splits are seeded 90/10 ones "
    "(MNIST: its own test set, each repetition with another seed), inputs standardised on the training part.",
    "Regression is on standardised targets; the noise variance is learned from e⁻². MNLL is the predictive one, "
    "−log E_q p(y). The paper's MNLL is an expected one, −E_q log p(y), for regression at noise variance e⁻² and without "
    "½ log 2π; ours in that convention stands beside it.",
    "NC: a run whose final test metric is not better than the trivial predictor's (the training mean, the commonest class) by "
    "two standard errors of their difference over test rows. On CREDIT there are 100 test rows, so that the rule asks for "
    "more than most initialisers reach, here and in the paper.",
    "The paper trains for 100 epochs. At batches of 64 a thousand steps are 1.1 passes through MNIST, 1.6 through PROTEIN, 4.7 "
    "through EEG, 7.4 through POWERPLANT, 15 through SPAM and 71 through CREDIT.",
    "The NELBO in the rows is estimated on the first 1024 training rows; seconds are those of training, without evaluations.",
)
SETTINGS = {
    "model": "model",
    "budget": "budget",
    "steps": "steps",
    "epochs": "epochs",
    "samples": "samples in training",
    "eval_samples": "samples at test",
    "batch": "batch",
    "lr": "Adam lr",
    "prior": "prior variance",
    "kl_weight": "KL weight",
    "seed": "seeds",
    "split": "splits",
    "threads": "threads a run",
}


def write(folder: Path, markdown: Path | None = None) -> list[Path]:
    """Write report.html and report.md into `folder`, and into `markdown` a page for each suite; returns the paths."""
    store = Store(folder)
    results = read_results(store)
    pages = {name: _suite(name, found) for name, found in results.items()}
    blocks = [*_opening(store, results, "#{}"), *(block for page in pages.values() for block in page)]
    written = [_save(folder / "report.html", to_html(TITLE, blocks)), *_save_markdown(folder, "report", blocks)]
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
    return {name: Results(row for row in rows if row["suite"] == name) for name in suites}


def _opening(store: Store, results: dict[str, Results], link: str) -> list[Block]:
    versions = {f"{k} {v}" for each in results.values() for found in each.setting("versions") for k, v in found.items()}
    settings = [
        [Entry(label), *(Entry(_values(each, name)) for each in results.values())] for name, label in SETTINGS.items()
    ]
    return [
        Heading(1, TITLE),
        Text("The same nets, data, steps and optimiser; what differs is where the posterior starts."),
        Heading(3, "Commands"),
        Code(store.commands()),
        Heading(3, "In short"),
        Links([(name, link.format(name), _verdict(name, each)) for name, each in results.items()]),
        Heading(3, "Settings"),
        Table([Entry("suite"), *(Entry(name) for name in results)], settings),
        Text(f"Versions: {', '.join(sorted(versions))}."),
        Heading(3, "How to read the numbers"),
        *(Text(note) for note in NOTES),
    ]


def _suite(name: str, results: Results) -> list[Block]:
    known = SUITES.get(name)
    table = known.paper if known else None
    details = [
        _final(results, "mnll", None),
        _final(results, "paper_nll", table),
        _final(results, "coverage_95", None),
        _final(results, "ece", None),
        *_equal_steps(results),
        _times(results),
    ]
    settings = "; ".join(f"{label} {_values(results, setting)}" for setting, label in SETTINGS.items())
    return [
        Heading(2, known.title if known else f"Comparison: {', '.join(results.names().values())}", anchor=name),
        Text(f"{name}: {settings}."),
        Text(_verdict(name, results)),
        *([Text(known.note)] if known and known.note else []),
        *_final(results, "main", table),
        *figures.learning(name, results),
        *figures.toy(name, results),
        Group([section for section in details if section]),
    ]


def _verdict(name: str, results: Results) -> str:
    table = SUITES[name].paper if name in SUITES else None
    return f"{verdict.sentence(results)} {verdict.beside_paper(results, table)}".strip()


def _values(results: Results, setting: str) -> str:
    return ", ".join(str(value) for value in results.setting(setting) if value is not None) or "-"


def _final(results: Results, metric: str, table: str | None) -> list[Block]:
    """Where the runs ended: a row for each initialiser, a column for each data set, the paper's beside it."""
    measured = {d: results.metric(d) if metric == "main" else metric for d in results.datasets}
    datasets = [d for d in results.datasets if any(measured[d] in row for row in results.of(d))]
    if not datasets:
        return []
    beside = {d: paper(table, "mnll" if metric == "paper_nll" else measured[d]).get(d, {}) for d in datasets}
    names, about = results.names(), METRICS.get(measured[datasets[0]])
    better = about is None or about.better < 0
    header, rows = [Entry("initialiser")], {init: [Entry(init)] for init in results.inits}
    trivial = [Entry("trivial predictor", quiet=True)]
    for d in datasets:
        header += [Entry(names[d]), *([Entry("paper", quiet=True)] if beside[d] else [])]
        best = results.best(d, measured[d]) if better else None
        trivial += [Entry(number(results.trivial(d)), quiet=True), *([Entry("")] if beside[d] else [])]
        for init in results.inits:
            cell = results.final(d, init, measured[d])
            rows[init].append(Entry(cell.show(mark=metric == "main"), strong=init == best))
            if beside[d]:
                rows[init].append(Entry(beside[d][init].show() if init in beside[d] else "-", quiet=True))
    title = (
        "Expected NLL in the paper's convention" if about is None else f"{about.label} ({_unit(measured[d], about)})"
    )
    return [
        Heading(3, f"{title}, at the end"),
        Table(header, [*rows.values(), *([trivial] if metric == "main" else [])]),
    ]


def _unit(metric: str, about: Any) -> str:
    return "standardised targets" if metric == "rmse" else str(about.unit)


def _equal_steps(results: Results) -> list[list[Block]]:
    """The main metric at every checkpoint, initialiser by initialiser."""
    sections: list[list[Block]] = []
    for dataset, name in results.names().items():
        metric, steps = results.metric(dataset), results.steps(dataset)
        if len(steps) < 2:
            continue
        means = {(init, step): results.at(dataset, init, step, metric).mean for init in results.inits for step in steps}
        best = {
            step: min((m for (_, s), m in means.items() if s == step and m is not None), default=None) for step in steps
        }
        rows = [
            [
                Entry(init),
                *(Entry(number(m := means[init, step]), strong=m is not None and m == best[step]) for step in steps),
            ]
            for init in results.inits
        ]
        header = [Entry("initialiser"), *(Entry(f"step {step}") for step in steps)]
        sections.append([Heading(3, f"{name}: {METRICS[metric].label} at equal steps"), Table(header, rows)])
    return sections


def _times(results: Results) -> list[Block]:
    header, rows = [Entry("initialiser")], {init: [Entry(init)] for init in results.inits}
    for dataset, name in results.names().items():
        header += [Entry(f"{name}, init"), Entry("training")]
        for init in results.inits:
            cells = (results.final(dataset, init, column) for column in ("init_seconds", "seconds"))
            rows[init] += [Entry(number(cell.mean)) for cell in cells]
    return [Heading(3, "Seconds"), Table(header, list(rows.values()))]


def _save_markdown(folder: Path, name: str, blocks: Sequence[Block]) -> list[Path]:
    files = {file: content for block in blocks for file, content in block.files().items()}
    return [
        _save(folder / f"{name}.md", to_markdown(blocks)),
        *(_save(folder / file, content) for file, content in files.items()),
    ]


def _save(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path
