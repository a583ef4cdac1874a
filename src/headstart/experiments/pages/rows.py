"""The page of I-BLM against the rows of its batches, after initialisation."""

from __future__ import annotations

from headstart.experiments import figures
from headstart.experiments.pages.base import Page
from headstart.experiments.summary import Cell, Results, number
from headstart.experiments.variants import LINES, ROWS, Line
from headstart.metrics import METRICS
from headstart.reporting import plots
from headstart.reporting.document import Block, Entry, Figure, Group, Heading, Table


class Rows(Page):
    """MNLL and error at step 0: a line for each way of varying the rows."""

    def sentence(self, results: Results) -> str:
        parts = []
        for line in LINES:
            cells = _cells(results, results.problems[0], line, "mnll")
            means = {rows: cell.mean for rows, cell in cells.items() if cell.mean is not None}
            if means:
                first, last = min(means), max(means)
                parts.append(
                    f"{line.name} {number(means[first])} with {first} rows and {number(means[last])} with {last}"
                )
        return f"Test MNLL after initialisation: {'; '.join(parts) or 'none was finite'}."

    def blocks(self, name: str, results: Results) -> list[Block]:
        measured = {problem: ("mnll", results.metric(problem)) for problem in results.problems}
        panels = [
            [_panel(results, problem, metric) for metric in metrics]
            for problem, metrics in measured.items()
        ]
        caption = (
            "After initialisation, on the test part: the mean over runs, and between the lowest and the highest of them. "
            f"The axis of MNLL ends at {figures.TOPS['mnll']:g}; what is worse lies above."
        )
        tables = [
            _table(results, problem, metric)
            for problem, metrics in measured.items()
            for metric in metrics
        ]
        return [Figure(f"{name}-curves", plots.scores_against_rows(panels), caption), Group(tables)]


def _cells(results: Results, problem: str, line: Line, metric: str) -> dict[int, Cell]:
    """What there is of a line, by rows."""
    found = {rows: results.at(problem, line.label(rows), 0, metric) for rows in line.variants()}
    return {rows: cell for rows, cell in found.items() if cell.count}


def _panel(results: Results, problem: str, metric: str) -> plots.Panel:
    curves = {line.name: figures.curve(_cells(results, problem, line, metric)) for line in LINES}
    return plots.Panel(
        results.names()[problem],
        figures.LABELS[metric],
        figures.SCALES[metric],
        curves,
        figures.TOPS.get(metric),
    )


def _table(results: Results, problem: str, metric: str) -> list[Block]:
    columns = [_cells(results, problem, line, metric) for line in LINES]
    rows = [
        [
            Entry(str(count)),
            *(Entry(cells[count].show(mark=False) if count in cells else "") for cells in columns),
        ]
        for count in ROWS
    ]
    header = [Entry("rows"), *(Entry(line.name) for line in LINES)]
    return [
        Heading(3, f"{results.names()[problem]}: {METRICS[metric].label} at step 0"),
        Table(header, rows),
    ]
