"""Who is ahead: I-BLM against the best of the others, at equal steps, with 95 % intervals.

A cell is a metric of a problem at an evaluated step. I-BLM is ahead or behind where the interval
of the difference, paired over splits, excludes zero, and level where it does not.
A single run has numbers and no verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headstart.experiments.paired import AHEAD, BEHIND, LEVEL, PairedDifference, holm_level
from headstart.experiments.results import (
    Cell,
    Results,
    best_label,
    format_number,
    label_of,
    paper_table,
)
from headstart.experiments.variants import DEFAULTS_LABEL
from headstart.metrics import METRICS
from headstart.reporting.document import Block, Entry, Heading, Table, Text

OUR_LABEL = "iblm"
BEHIND_COLUMNS = (
    "data set",
    "step",
    "metric",
    "I-BLM",
    "best rival",
    "its",
    "difference, 95 %",
)


@dataclass(frozen=True)
class JudgedCell:
    """A metric of a problem at a step: I-BLM's runs, and those of the rival with the best mean.

    Args:
        problem: The problem, as `Results` has it.
        step: The step.
        metric: The metric, by name.
        ours: I-BLM's runs.
        rival: The label of the best rival.
        best: Its runs.
        difference: I-BLM's minus its, paired over splits.

    Example:
        >>> cells = Cell(0.3, count=3), "lsuv", Cell(0.2, count=3)
        >>> JudgedCell("toy", 100, "rmse", *cells, PairedDifference(0.1, 0.2, pairs=3)).verdict
        'level'
        >>> JudgedCell("toy", 100, "rmse", *cells, PairedDifference(0.1, 0.05, pairs=3)).verdict
        'behind'
        >>> JudgedCell("toy", 100, "auroc", *cells, PairedDifference(0.1, 0.05, pairs=3)).verdict
        'ahead'
    """

    problem: str
    step: int
    metric: str
    ours: Cell
    rival: str
    best: Cell
    difference: PairedDifference | None

    @property
    def verdict(self) -> str | None:
        """Ahead, level or behind; behind too where one of several runs has no finite number."""
        if self.ours.mean is None:
            return BEHIND if self.ours.count > 1 else None
        if self.difference is None:
            return None
        return self.difference.verdict(METRICS[self.metric].better)

    @property
    def is_behind(self) -> bool:
        """Whether the verdict is against ours."""
        return self.verdict == BEHIND


def judge(results: Results) -> list[JudgedCell]:
    """Every cell where I-BLM met a rival: each problem, evaluated step and metric."""
    cells = (
        _judged(results, problem, step, metric)
        for problem in results.problems
        for step in results.steps(problem)
        for metric in results.metrics(problem)
    )
    return [cell for cell in cells if cell is not None]


def _judged(results: Results, problem: str, step: int, metric: str) -> JudgedCell | None:
    found = {label: results.at(problem, label, step, metric) for label in results.labels}
    ours = found.pop(OUR_LABEL, Cell(None, count=0))
    # I-BLM too, by another optimizer.
    found.pop(DEFAULTS_LABEL, None)
    rival = best_label({label: cell.mean for label, cell in found.items()}, metric)
    if not ours.count or rival is None:
        return None
    return judged_cell(results, problem, step, metric, OUR_LABEL, rival)


def judged_cell(
    results: Results, problem: str, step: int, metric: str, label: str, rival: str
) -> JudgedCell:
    """A label's runs beside a rival's, for a metric of a problem at a step."""
    ours, theirs = (results.at(problem, name, step, metric) for name in (label, rival))
    difference = results.difference(problem, label, rival, step, metric)
    return JudgedCell(problem, step, metric, ours, rival, theirs, difference)


def verdict_sentence(results: Results) -> str:
    """In how many cells I-BLM is ahead of the best rival, level with it, or behind it."""
    cells = judge(results)
    if not cells:
        return "I-BLM was not compared with other initializers here."
    if all(cell.verdict is None for cell in cells):
        return "A single run of each: numbers without a verdict."
    said = counted_sentence(cells)
    return (
        "Against the rival that is best in the mean, paired over splits with 95 % intervals, "
        f"I-BLM is {said}"
    )


def counted_sentence(cells: Sequence[JudgedCell], rival: str = "") -> str:
    """In how many cells ours is ahead, level or behind, and what that means for so many of them.

    Args:
        cells: The cells.
        rival: What is added to the count, as in `against Adam`.
    """
    counts = Counter(cell.verdict for cell in cells)
    judged = len(cells) - counts[None]
    places = ", ".join(f"{word} in {counts[word]}" for word in (AHEAD, LEVEL, BEHIND))
    single = f"; {counts[None]} cells of single runs have no verdict" if counts[None] else ""
    kinds = ", ".join(dict.fromkeys(METRICS[cell.metric].label for cell in cells))
    beside = f" {rival}" if rival else ""
    return (
        f"{places} of {judged} cells{beside} ({kinds} at every evaluated step){single}. "
        f"{_multiplicity(cells)}"
    )


def _multiplicity(cells: Iterable[JudgedCell]) -> str:
    """What chance alone would give, and what is left where all intervals are to hold at once."""
    values = {
        cell: cell.difference.p_value
        for cell in cells
        if cell.difference is not None and cell.difference.p_value is not None
    }
    found = {cell: value for cell, value in values.items() if value is not None}
    limit = holm_level(found.values())
    left = Counter(cell.verdict for cell, value in found.items() if value <= limit)
    return (
        f"Of {len(found)} such intervals about {len(found) / 20:.0f} would exclude zero if nothing "
        f"differed; by Holm's correction over all of them {left[AHEAD]} stay ahead and "
        f"{left[BEHIND]} behind."
    )


def verdict_table(results: Results) -> list[Block]:
    """On how many problems I-BLM is ahead, level or behind, by step and metric."""
    return verdicts_by_step("I-BLM against the best rival", judge(results))


def verdicts_by_step(title: str, judged: Iterable[JudgedCell]) -> list[Block]:
    """On how many problems ours is ahead, level or behind, by step and metric.

    Args:
        title: The heading.
        judged: The cells; those without a verdict are left out.
    """
    cells = [cell for cell in judged if cell.verdict is not None]
    if not cells:
        return []
    measured = {cell.metric for cell in cells}
    metrics = [name for name in METRICS if name in measured]
    header = ["step", *(METRICS[name].label for name in metrics)]
    rows = [
        [str(step), *(_counted(cells, step, metric) for metric in metrics)]
        for step in sorted({cell.step for cell in cells})
    ]
    return [Heading(3, title), text_table(header, rows)]


def text_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    return Table([Entry(text) for text in header], [[Entry(text) for text in row] for row in rows])


def _counted(cells: Iterable[JudgedCell], step: int, metric: str) -> str:
    counts = Counter(cell.verdict for cell in cells if (cell.step, cell.metric) == (step, metric))
    words = [f"{counts[word]} {word}" for word in (AHEAD, LEVEL, BEHIND) if counts[word]]
    return ", ".join(words) or "-"


def cells_behind(suites: Mapping[str, Results]) -> list[Block]:
    """The cells where I-BLM is behind, with both means and the interval of their difference."""
    judged = [
        (suite, results, cell) for suite, results in suites.items() for cell in judge(results)
    ]
    if all(cell.verdict is None for _, _, cell in judged):
        return []
    rows = [
        [suite, *_texts(cell, results)] for suite, results, cell in judged if cell.verdict == BEHIND
    ]
    header = ["suite", *BEHIND_COLUMNS]
    if len(suites) == 1:
        header, rows = header[1:], [row[1:] for row in rows]
    none = "No interval of a race of initializers lies on the side of the best rival."
    return [
        Heading(3, "Where I-BLM is behind"),
        text_table(header, rows) if rows else Text(none),
    ]


def _texts(cell: JudgedCell, results: Results) -> list[str]:
    return [
        results.names()[cell.problem],
        str(cell.step),
        METRICS[cell.metric].label,
        cell.ours.show(mark=False),
        cell.rival,
        cell.best.show(mark=False),
        format_difference(cell.difference),
    ]


def format_difference(difference: PairedDifference | None) -> str:
    """A difference with its interval.

    Example:
        >>> format_difference(PairedDifference(0.25, 0.01, 3))
        '+0.2500 ± 0.010'
        >>> format_difference(PairedDifference(-0.5))
        '-0.5000'
    """
    if difference is None:
        return "-"
    sign = "+" if difference.mean >= 0 else ""
    width = difference.half_width
    interval = "" if width is None else f" ± {format_number(width, digits=3)}"
    return f"{sign}{format_number(difference.mean)}{interval}"


def best_of_each_method(results: Results) -> str:
    """The start from which each method ended best in the mean, problem by problem."""
    places = []
    for problem, name in results.names().items():
        metric = results.metric(problem)
        methods: dict[str, set[str]] = {}
        for row in results.of(problem):
            methods.setdefault(row["method"], set()).add(label_of(row))
        ends = []
        for method, labels in methods.items():
            means = {label: results.final(problem, label, metric).mean for label in sorted(labels)}
            best = best_label(means, metric)
            if best is not None:
                ends.append(f"{method} {format_number(means[best])} ({best})")
        places.append(f"{METRICS[metric].label} on {name}: {', '.join(ends)}")
    return f"The best of each method at the end. {'; '.join(places)}."


def beside_paper(results: Results, table: str | None) -> str:
    """I-BLM's main metric beside the paper's, whatever the budget; empty where it has none."""
    parts = []
    for problem, name in results.names().items():
        metric = results.metric(problem)
        theirs = paper_table(table, metric).get(problem, {}).get(OUR_LABEL)
        mine = results.final(problem, OUR_LABEL, metric).mean
        if theirs is not None and theirs.mean is not None and mine is not None:
            numbers = f"{format_number(mine)}, the paper's {format_number(theirs.mean)}"
            parts.append(f"{METRICS[metric].label} on {name} {numbers}")
    said = "I-BLM at the end, beside the paper's after 100 epochs: "
    return f"{said}{'; '.join(parts)}." if parts else ""
