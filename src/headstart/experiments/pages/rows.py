"""The page of I-BLM against the rows of its batches, after initialization."""

from __future__ import annotations

from headstart.experiments import figures
from headstart.experiments.pages.base import ReportPage
from headstart.experiments.results import Cell, Results, format_number
from headstart.experiments.variants import ROW_COUNTS, ROW_SWEEPS, RowSweep
from headstart.metrics import METRICS
from headstart.reporting import plots
from headstart.reporting.document import Block, Entry, Figure, Group, Heading, Table


class RowsPage(ReportPage):
    """MNLL and error at step 0: a line for each way of varying the rows."""

    def sentence(self, results: Results) -> str:
        parts = []
        for sweep in ROW_SWEEPS:
            cells = _cells_by_rows(results, results.problems[0], sweep, "mnll")
            means = {rows: cell.mean for rows, cell in cells.items() if cell.mean is not None}
            if means:
                first, last = min(means), max(means)
                ends = (
                    f"{format_number(means[first])} with {first} rows",
                    f"{format_number(means[last])} with {last}",
                )
                parts.append(f"{sweep.name} {' and '.join(ends)}")
        return f"Test MNLL after initialization: {'; '.join(parts) or 'none was finite'}."

    def blocks(self, name: str, results: Results) -> list[Block]:
        measured = {problem: ("mnll", results.metric(problem)) for problem in results.problems}
        panels = [
            [_rows_panel(results, problem, metric) for metric in metrics]
            for problem, metrics in measured.items()
        ]
        caption = (
            "After initialization, on the test part: the mean over runs, "
            "and between the lowest and the highest of them. "
            f"The axis of MNLL ends at {figures.AXIS_LIMITS['mnll']:g}; what is worse lies above."
        )
        tables = [
            _rows_table(results, problem, metric)
            for problem, metrics in measured.items()
            for metric in metrics
        ]
        return [Figure(f"{name}-curves", plots.scores_against_rows(panels), caption), Group(tables)]


def _cells_by_rows(results: Results, problem: str, sweep: RowSweep, metric: str) -> dict[int, Cell]:
    """What there is of a sweep, by rows."""
    found = {rows: results.at(problem, sweep.label(rows), 0, metric) for rows in sweep.variants()}
    return {rows: cell for rows, cell in found.items() if cell.count}


def _rows_panel(results: Results, problem: str, metric: str) -> plots.Panel:
    curves = {
        sweep.name: figures.curve_of_cells(_cells_by_rows(results, problem, sweep, metric))
        for sweep in ROW_SWEEPS
    }
    return plots.Panel(
        results.names()[problem],
        figures.AXIS_LABELS[metric],
        figures.AXIS_SCALES[metric],
        curves,
        figures.AXIS_LIMITS.get(metric),
    )


def _rows_table(results: Results, problem: str, metric: str) -> list[Block]:
    columns = [_cells_by_rows(results, problem, sweep, metric) for sweep in ROW_SWEEPS]
    rows = [
        [
            Entry(str(count)),
            *(Entry(cells[count].show(mark=False) if count in cells else "") for cells in columns),
        ]
        for count in ROW_COUNTS
    ]
    header = [Entry("rows"), *(Entry(sweep.name) for sweep in ROW_SWEEPS)]
    return [
        Heading(3, f"{results.names()[problem]}: {METRICS[metric].label} at step 0"),
        Table(header, rows),
    ]
