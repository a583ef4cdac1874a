"""Who is ahead, said plainly: I-BLM against the best of the others, at the same number of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headstart.experiments.summary import Cell, Difference, Results, label_of, number, paper
from headstart.metrics import METRICS
from headstart.reporting.document import Block, Entry, Heading, Table, Text

OURS = "iblm"
STEPS = (0, 100, 500, 2000)
"""Where I-BLM is judged, as far as runs were looked at there; and at their end."""


@dataclass(frozen=True)
class Judged:
    """A metric of a problem at a step: I-BLM's runs, and those of the rival that is lowest in the mean.

    I-BLM loses where it is behind by more than one standard error of the difference over splits, or, with a single split, at all.

    Example:
        >>> mine, best = Cell(0.3), Cell(0.2)
        >>> Judged("toy", 100, "rmse", mine, "lsuv", best, Difference(0.1, se=0.2)).lost
        False
        >>> Judged("toy", 100, "rmse", mine, "lsuv", best, Difference(0.1)).lost
        True
    """

    problem: str
    step: int
    metric: str
    ours: Cell
    rival: str
    best: Cell
    difference: Difference | None

    @property
    def lost(self) -> bool:
        """Whether the best rival is ahead of I-BLM; it is where one of I-BLM's runs has no finite number."""
        return self.ours.mean is None or (
            self.difference is not None and self.difference.beyond() > 0
        )


def judge(results: Results) -> list[Judged]:
    """Every cell where I-BLM met a rival: each problem's main metric and MNLL, step by step."""
    cells = []
    for problem in results.problems:
        steps = results.steps(problem)
        for step in sorted({*STEPS, steps[-1]} & set(steps)):
            for metric in (results.metric(problem), "mnll"):
                found = {
                    label: results.at(problem, label, step, metric) for label in results.labels
                }
                ours = found.pop(OURS, Cell(None, count=0))
                means = {rival: cell.mean for rival, cell in found.items() if cell.mean is not None}
                if ours.count and means:
                    rival = min(means, key=lambda name: means[name])
                    difference = results.difference(problem, OURS, rival, step, metric)
                    cells.append(
                        Judged(problem, step, metric, ours, rival, found[rival], difference)
                    )
    return cells


def sentence(results: Results) -> str:
    """In how many cells I-BLM is at or ahead of the best rival, step by step."""
    cells = judge(results)
    if not cells:
        return "I-BLM was not compared here."
    places = []
    for step in sorted({cell.step for cell in cells}):
        here = [cell for cell in cells if cell.step == step]
        place = f"at step {step}" if step else "after initialisation"
        places.append(f"{place} in {sum(not cell.lost for cell in here)} of {len(here)}")
    kinds = " and ".join(dict.fromkeys(METRICS[cell.metric].label for cell in cells))
    lost = sum(cell.lost for cell in cells)
    return (
        f"I-BLM is at or ahead of the best rival, within one standard error, {', '.join(places)} "
        f"({kinds} on each data set); {lost or 'no'} {'cells are' if lost > 1 else 'cell is'} lost."
    )


def by_method(results: Results) -> str:
    """The start from which each method ended lowest, problem by problem."""
    places = []
    for problem, name in results.names().items():
        metric = results.metric(problem)
        methods: dict[str, set[str]] = {}
        for row in results.of(problem):
            methods.setdefault(row["method"], set()).add(label_of(row))
        ends = []
        for method, labels in methods.items():
            means = {label: results.final(problem, label, metric).mean for label in labels}
            finite = {label: mean for label, mean in means.items() if mean is not None}
            if finite:
                label = min(finite, key=lambda each: finite[each])
                ends.append(f"{method} {number(finite[label])} ({label})")
        places.append(f"{METRICS[metric].label} on {name}: {', '.join(ends)}")
    return f"The best of each method at the end. {'; '.join(places)}."


def lost_cells(suites: Mapping[str, Results]) -> list[Block]:
    """The cells that I-BLM lost, with both numbers and their standard errors; or that there are none."""
    cells = {suite: judge(results) for suite, results in suites.items()}
    if not any(cells.values()):
        return []
    several = len(suites) > 1
    rows = [
        [*([suite] if several else []), *_texts(cell, suites[suite])]
        for suite, judged in cells.items()
        for cell in judged
        if cell.lost
    ]
    header = (
        "data set",
        "step",
        "metric",
        "I-BLM ± se",
        "best rival",
        "its ± se",
        "difference ± se",
    )
    table = Table(
        [Entry(name) for name in (*(["suite"] if several else []), *header)],
        [[Entry(text) for text in row] for row in rows],
    )
    none = "No cell is lost: nowhere is the best rival ahead of I-BLM by more than one standard error of their difference."
    return [Heading(3, "Lost cells"), table if rows else Text(none)]


def _texts(cell: Judged, results: Results) -> list[str]:
    gap = "-" if cell.difference is None else _with_error(cell.difference)
    label = METRICS[cell.metric].label
    name = results.names()[cell.problem]
    return [
        name,
        str(cell.step),
        label,
        _with_error(cell.ours),
        cell.rival,
        _with_error(cell.best),
        gap,
    ]


def _with_error(found: Cell | Difference) -> str:
    """`mean ± standard error`.

    Example:
        >>> _with_error(Difference(0.25, 0.01)), _with_error(Cell(0.25)), _with_error(Cell(None))
        ('0.2500 ± 0.010', '0.2500', 'NC')
    """
    if found.mean is None:
        return "NC"
    return number(found.mean) + ("" if found.se is None else f" ± {number(found.se, digits=3)}")


def beside_paper(results: Results, table: str | None) -> str:
    """I-BLM's main metric against the paper's own, whatever the budget; nothing where the paper has no table."""
    parts = []
    for problem, name in results.names().items():
        metric = results.metric(problem)
        theirs = paper(table, metric).get(problem, {}).get(OURS)
        mine = results.final(problem, OURS, metric).mean if OURS in results.labels else None
        if theirs is not None and theirs.mean is not None and mine is not None:
            place = "ahead" if mine < theirs.mean else "behind"
            parts.append(f"{place} on {name} ({number(mine)} against {number(theirs.mean)})")
    return f"Beside the paper's I-BLM, trained for 100 epochs: {', '.join(parts)}." if parts else ""
