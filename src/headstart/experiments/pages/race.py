"""The page of a race: where every initializer ended, beside the paper's numbers, and its way."""

from __future__ import annotations

from dataclasses import dataclass

from headstart.experiments import figures, verdict
from headstart.experiments.pages.base import ReportPage
from headstart.experiments.results import (
    Cell,
    Results,
    best_label,
    format_number,
    paper_table,
)
from headstart.metrics import METRICS
from headstart.reporting.document import Block, Entry, Group, Heading, Table

DETAILS = ("mnll", "paper_nll", "coverage_95", "ece", "brier", "auroc", "aupr", "fpr95")
"""Metrics with a table of their own, where rows have them."""
BASELINES = {"trivial": "trivial predictor", "nearest_neighbor": "1-nearest neighbor"}
"""Columns of rows that no training changes, and what the tables call them."""


@dataclass(frozen=True)
class RacePage(ReportPage):
    """Initializers side by side, or methods.

    Args:
        paper: The name of the paper's table.
        methods: Whether methods are compared; there are no verdicts on I-BLM then.
    """

    paper: str | None = None
    methods: bool = False

    def sentence(self, results: Results) -> str:
        if self.methods:
            return verdict.best_of_each_method(results)
        beside = verdict.beside_paper(results, self.paper)
        return f"{verdict.verdict_sentence(results)} {beside}".strip()

    def blocks(self, name: str, results: Results) -> list[Block]:
        verdicts = (
            []
            if self.methods
            else [*verdict.verdict_table(results), *verdict.cells_behind({name: results})]
        )
        details = [
            *(_at_the_end(results, metric, self._beside(metric)) for metric in DETAILS),
            *(_at_equal_steps(results, problem) for problem in results.problems),
            _seconds(results),
        ]
        return [
            *_main_at_the_end(results, self.paper),
            *verdicts,
            *figures.learning_figure(name, results),
            *figures.toy_figure(name, results),
            *figures.reliability_figure(name, results),
            *figures.entropy_figure(name, results),
            Group([section for section in details if section]),
        ]

    def _beside(self, metric: str) -> str | None:
        """The paper's MNLL is an expected one: it stands beside ours in that convention."""
        return self.paper if metric == "paper_nll" else None


def _main_at_the_end(results: Results, table: str | None) -> list[Block]:
    """The main metric of every problem, with the paper's and the trivial predictor's."""
    columns = {
        problem: _problem_column(results, problem, results.metric(problem), table, mark=True)
        for problem in results.problems
    }
    lines = [
        _baseline_line(results, columns, baseline, title) for baseline, title in BASELINES.items()
    ]
    more = [line for line in lines if line]
    return _joined_table(results, results.metric(results.problems[0]), columns, more)


def _baseline_line(
    results: Results, columns: dict[str, list[list[Entry]]], baseline: str, title: str
) -> list[Entry]:
    """A baseline's main metric on every problem; nothing where no row has it."""
    found = {problem: results.beside(problem, baseline) for problem in columns}
    if all(value is None for value in found.values()):
        return []
    cells = [
        [Entry(format_number(found[problem]), quiet=True), Entry("")][: len(column[0])]
        for problem, column in columns.items()
    ]
    return [Entry(title, quiet=True), *(entry for part in cells for entry in part)]


def _at_the_end(results: Results, metric: str, table: str | None) -> list[Block]:
    """A metric of all problems whose rows have it; nothing where none has."""
    columns = {
        problem: _problem_column(results, problem, metric, table, mark=False)
        for problem in results.problems
        if any(metric in row for row in results.of(problem))
    }
    return _joined_table(results, metric, columns, []) if columns else []


def _problem_column(
    results: Results, problem: str, metric: str, table: str | None, *, mark: bool
) -> list[list[Entry]]:
    """A header and an entry for each label, with the paper's numbers beside them."""
    known = "mnll" if metric == "paper_nll" else metric
    beside = paper_table(table, known).get(problem, {})
    best = results.best(problem, metric)
    rows = [[Entry(results.names()[problem])]]
    for label in results.labels:
        cell = results.final(problem, label, metric)
        rows.append([Entry(cell.show(mark=mark), strong=label == best)])
    if beside:
        theirs = [beside.get(label, Cell(None, count=0)).show() for label in results.labels]
        for row, text in zip(rows, ["paper", *theirs], strict=True):
            row.append(Entry(text, quiet=True))
    return rows


def _joined_table(
    results: Results, metric: str, columns: dict[str, list[list[Entry]]], more: list[list[Entry]]
) -> list[Block]:
    """The columns of several problems as one table."""
    names = ["initializer", *results.labels]
    header, *rows = (
        [Entry(name), *(entry for column in columns.values() for entry in column[place])]
        for place, name in enumerate(names)
    )
    return [Heading(3, f"{_metric_title(metric)}, at the end"), Table(header, [*rows, *more])]


def _metric_title(metric: str) -> str:
    if metric not in METRICS:
        return "Expected NLL in the paper's convention"
    about = METRICS[metric]
    return f"{about.label} ({'standardized targets' if metric == 'rmse' else about.unit})"


def _at_equal_steps(results: Results, problem: str) -> list[Block]:
    """The main metric at every evaluated step; nothing where there is but one."""
    metric, steps = results.metric(problem), results.steps(problem)
    if len(steps) < 2:
        return []
    labels = results.labels_of(problem)
    rows = {label: [Entry(label)] for label in labels}
    for step in steps:
        means = {label: results.at(problem, label, step, metric).mean for label in labels}
        best = best_label(means, metric)
        for label, mean in means.items():
            rows[label].append(Entry(format_number(mean), strong=label == best))
    header = [Entry("initializer"), *(Entry(f"step {step}") for step in steps)]
    title = f"{results.names()[problem]}: {METRICS[metric].label} at equal steps"
    return [Heading(3, title), Table(header, list(rows.values()))]


def _seconds(results: Results) -> list[Block]:
    header, rows = [Entry("initializer")], {label: [Entry(label)] for label in results.labels}
    for problem, name in results.names().items():
        header += [Entry(f"{name}, init"), Entry("training")]
        for label in results.labels:
            cells = (
                results.final(problem, label, column) for column in ("init_seconds", "seconds")
            )
            rows[label] += [Entry(format_number(cell.mean)) for cell in cells]
    return [Heading(3, "Seconds"), Table(header, list(rows.values()))]
