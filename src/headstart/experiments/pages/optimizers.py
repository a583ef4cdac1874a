"""The page of an optimizer: the library's default against Adam at 1e-3, from the same start."""

from __future__ import annotations

from dataclasses import dataclass

from headstart.experiments.pages.base import ReportPage
from headstart.experiments.pages.race import RacePage
from headstart.experiments.results import Results, format_number, label_of
from headstart.experiments.variants import DEFAULT_OPTIMIZER, PAPER_OPTIMIZER, optimized_variant
from headstart.experiments.verdict import (
    JudgedCell,
    counted_sentence,
    format_difference,
    judged_cell,
    text_table,
    verdicts_by_step,
)
from headstart.metrics import METRICS
from headstart.reporting.document import Block, Entry, Heading, Table, Text

MAX_WORSE, MIN_GAIN = 1.05, 0.95
"""A start is kept where no checkpoint's NLL is above 1.05 times that of step 0; the last one has
gained where it is at most 0.95 of it."""
OPTIMIZER_NAMES = {DEFAULT_OPTIMIZER: "the default optimizer", PAPER_OPTIMIZER: "Adam at 1e-3"}
BEHIND_HEADER = (
    "data set",
    "start",
    "step",
    "metric",
    *OPTIMIZER_NAMES.values(),
    "difference, 95 %",
)


@dataclass(frozen=True)
class OptimizerPage(ReportPage):
    """Two optimizers from the same starts, paired over splits.

    Args:
        kept: Whether the page says for each net if its start was kept.
    """

    kept: bool = False

    def sentence(self, results: Results) -> str:
        if self.kept:
            return f"{_verdict_of_optimizers(results, '')} {_kept_sentence(results)}"
        ends = "; ".join(
            f"{label} on {name} {format_number(results.final(problem, label, 'mnll').mean)}"
            for problem, name in results.names().items()
            for label in results.labels_of(problem)
        )
        return _verdict_of_optimizers(results, f" MNLL at the end: {ends}.")

    def blocks(self, name: str, results: Results) -> list[Block]:
        cells = judged_optimizers(results)
        return [
            *(_kept_table(results) if self.kept else []),
            *verdicts_by_step("The default optimizer against Adam at 1e-3", list(cells.values())),
            *_behind_table(results, cells),
            *RacePage(methods=True).blocks(name, results),
        ]


def judged_optimizers(results: Results) -> dict[tuple[str, str, int, str], JudgedCell]:
    """Every metric of a problem, start and step at which both optimizers were evaluated."""
    found = {}
    for init in dict.fromkeys(row["init"] for row in results.rows):
        ours, theirs = (optimized_variant(init, optimizer).label for optimizer in OPTIMIZER_NAMES)
        for problem in results.problems:
            # Before the first step they are the same net.
            for step in results.steps(problem)[1:]:
                for metric in results.metrics(problem):
                    cell = judged_cell(results, problem, step, metric, ours, theirs)
                    if cell.ours.count and cell.best.count:
                        found[problem, init, step, metric] = cell
    return found


def _verdict_of_optimizers(results: Results, numbers: str) -> str:
    """The verdict, or, where there is none, why, and the numbers."""
    cells = list(judged_optimizers(results).values())
    if not cells:
        return f"One optimizer only was run here: there is no verdict.{numbers}"
    if all(cell.verdict is None for cell in cells):
        return f"A single run of each: numbers without a verdict.{numbers}"
    return (
        "From the same start, paired over splits with 95 % intervals, the default optimizer is "
        f"{counted_sentence(cells, 'against Adam at 1e-3')}"
    )


def _behind_table(
    results: Results, cells: dict[tuple[str, str, int, str], JudgedCell]
) -> list[Block]:
    if all(cell.verdict is None for cell in cells.values()):
        return []
    names = results.names()
    rows = [
        [
            names[problem],
            init,
            str(step),
            METRICS[metric].label,
            cell.ours.show(mark=False),
            cell.best.show(mark=False),
            format_difference(cell.difference),
        ]
        for (problem, init, step, metric), cell in cells.items()
        if cell.is_behind
    ]
    none = Text("The default optimizer is behind nowhere: no interval lies on Adam's side.")
    table = text_table(BEHIND_HEADER, rows) if rows else none
    return [Heading(3, "Where the default optimizer is behind"), table]


def nll_ratios(results: Results, problem: str, label: str) -> dict[int, float | None]:
    """The mean test NLL at each step over that of step 0; None where one is not finite."""
    first, *steps = results.steps(problem)
    start = results.at(problem, label, first, "mnll").mean
    means = {step: results.at(problem, label, step, "mnll").mean for step in steps}
    return {
        step: None if mean is None or start is None else mean / start
        for step, mean in means.items()
    }


def is_kept(ratios: dict[int, float | None]) -> bool:
    """Whether no checkpoint is above 1.05 times the start.

    Example:
        >>> is_kept({10: 1.04, 200: 0.9}), is_kept({10: 1.2, 200: 0.9}), is_kept({10: None})
        (True, False, False)
    """
    return all(ratio is not None and ratio <= MAX_WORSE for ratio in ratios.values())


def has_gained(ratios: dict[int, float | None]) -> bool:
    """Whether the last checkpoint is at most 0.95 of the start.

    Example:
        >>> has_gained({10: 1.2, 200: 0.9}), has_gained({200: 0.96}), has_gained({})
        (True, False, False)
    """
    last = ratios[max(ratios)] if ratios else None
    return last is not None and last <= MIN_GAIN


def _kept_sentence(results: Results) -> str:
    said = []
    for label in results.labels:
        problems = [name for name in results.problems if label in results.labels_of(name)]
        ratios = [nll_ratios(results, problem, label) for problem in problems]
        optimizer = OPTIMIZER_NAMES[_optimizer_of(results, label)]
        said.append(
            f"by {optimizer} the NLL stays within 5 % of step 0, or "
            f"below, at every checkpoint on {sum(map(is_kept, ratios))} of {len(ratios)} nets, and "
            f"ends at most at 0.95 of it on {sum(map(has_gained, ratios))}"
        )
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def _optimizer_of(results: Results, label: str) -> str:
    return str(next(row["optimizer"] for row in results.rows if label_of(row) == label))


def _kept_table(results: Results) -> list[Block]:
    """The NLL of each net over that of its start, and the two questions."""
    steps = sorted({step for problem in results.problems for step in results.steps(problem)[1:]})
    last = steps[-1] if steps else 0
    header = ["net", "optimizer", *(f"step {step}" for step in steps)]
    header += ["within 5 %", f"≤ 0.95 at {last}"]
    rows = []
    for problem, name in results.names().items():
        for label in results.labels_of(problem):
            ratios = nll_ratios(results, problem, label)
            row = [Entry(name), Entry(_optimizer_of(results, label))]
            row += [Entry(format_number(ratios.get(step), digits=3)) for step in steps]
            answers = (is_kept(ratios), has_gained(ratios))
            row += [Entry("yes" if answer else "no", strong=answer) for answer in answers]
            rows.append(row)
    about = (
        "Test NLL over that of step 0, in the mean over runs. A start is kept where no checkpoint "
        "is above 1.05; lower is no loss."
    )
    return [
        Heading(3, "Is the start kept?"),
        Text(about),
        Table([Entry(text) for text in header], rows),
    ]
