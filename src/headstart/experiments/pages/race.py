"""The page of a race: where every initialiser ended, beside the paper's numbers, and how it got there."""

from __future__ import annotations

from dataclasses import dataclass

from headstart.experiments import figures, verdict
from headstart.experiments.pages.base import Page
from headstart.experiments.summary import Results, number, paper
from headstart.metrics import METRICS, Metric
from headstart.reporting.document import Block, Entry, Group, Heading, Table


@dataclass(frozen=True)
class Race(Page):
    """Initialisers side by side, or methods; `paper` names the paper's table."""

    paper: str | None = None
    methods: bool = False

    def sentence(self, results: Results) -> str:
        if self.methods:
            return verdict.by_method(results)
        return f"{verdict.sentence(results)} {verdict.beside_paper(results, self.paper)}".strip()

    def blocks(self, name: str, results: Results) -> list[Block]:
        details = [
            _final(results, "mnll", None),
            _final(results, "paper_nll", self.paper),
            _final(results, "coverage_95", None),
            _final(results, "ece", None),
            _final(results, "auroc", None),
            _final(results, "aupr", None),
            _final(results, "fpr95", None),
            *_equal_steps(results),
            _times(results),
        ]
        return [
            *_final(results, "main", self.paper),
            *([] if self.methods else verdict.lost_cells({name: results})),
            *figures.learning(name, results),
            *figures.toy(name, results),
            *figures.reliability(name, results),
            *figures.entropies(name, results),
            Group([section for section in details if section]),
        ]


def _final(results: Results, metric: str, table: str | None) -> list[Block]:
    """Where the runs ended: a row for each initialiser, a column for each problem, the paper's beside it."""
    measured = {p: results.metric(p) if metric == "main" else metric for p in results.problems}
    problems = [p for p in results.problems if any(measured[p] in row for row in results.of(p))]
    if not problems:
        return []
    beside = {
        p: paper(table, "mnll" if metric == "paper_nll" else measured[p]).get(p, {})
        for p in problems
    }
    names, about = results.names(), METRICS.get(measured[problems[0]])
    header, rows = [Entry("initialiser")], {label: [Entry(label)] for label in results.labels}
    trivial = [Entry("trivial predictor", quiet=True)]
    for p in problems:
        header += [Entry(names[p]), *([Entry("paper", quiet=True)] if beside[p] else [])]
        best = results.best(p, measured[p]) if about is None or about.better < 0 else None
        trivial += [
            Entry(number(results.trivial(p)), quiet=True),
            *([Entry("")] if beside[p] else []),
        ]
        for label in results.labels:
            cell = results.final(p, label, measured[p])
            rows[label].append(Entry(cell.show(mark=metric == "main"), strong=label == best))
            if beside[p]:
                rows[label].append(
                    Entry(beside[p][label].show() if label in beside[p] else "-", quiet=True)
                )
    title = (
        "Expected NLL in the paper's convention"
        if about is None
        else f"{about.label} ({_unit(about)})"
    )
    return [
        Heading(3, f"{title}, at the end"),
        Table(header, [*rows.values(), *([trivial] if metric == "main" else [])]),
    ]


def _unit(about: Metric) -> str:
    return "standardised targets" if about.name == "rmse" else about.unit


def _equal_steps(results: Results) -> list[list[Block]]:
    """The main metric at every checkpoint, initialiser by initialiser."""
    sections: list[list[Block]] = []
    for problem, name in results.names().items():
        metric, steps, labels = (
            results.metric(problem),
            results.steps(problem),
            results.labels_of(problem),
        )
        if len(steps) < 2:
            continue
        means = {
            (label, step): results.at(problem, label, step, metric).mean
            for label in labels
            for step in steps
        }
        best = {
            step: min(
                (m for (_, s), m in means.items() if s == step and m is not None), default=None
            )
            for step in steps
        }
        rows = [
            [
                Entry(label),
                *(
                    Entry(number(m := means[label, step]), strong=m is not None and m == best[step])
                    for step in steps
                ),
            ]
            for label in labels
        ]
        header = [Entry("initialiser"), *(Entry(f"step {step}") for step in steps)]
        sections.append(
            [Heading(3, f"{name}: {METRICS[metric].label} at equal steps"), Table(header, rows)]
        )
    return sections


def _times(results: Results) -> list[Block]:
    header, rows = [Entry("initialiser")], {label: [Entry(label)] for label in results.labels}
    for problem, name in results.names().items():
        header += [Entry(f"{name}, init"), Entry("training")]
        for label in results.labels:
            cells = (
                results.final(problem, label, column) for column in ("init_seconds", "seconds")
            )
            rows[label] += [Entry(number(cell.mean)) for cell in cells]
    return [Heading(3, "Seconds"), Table(header, list(rows.values()))]
