"""The paper's I-BLM numbers beside ours: reached, beaten, missed, or not run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headstart.experiments.catalogue import SUITES
from headstart.experiments.results import Cell, Results, paper_table
from headstart.experiments.tasks import EXPERIMENT_TASKS
from headstart.experiments.variants import DEFAULTS_LABEL
from headstart.experiments.verdict import OUR_LABEL
from headstart.metrics import METRICS
from headstart.reporting.document import Block, Entry, Heading, Table, Text

BEATEN, REACHED, MISSED, NOT_RUN = "beaten", "reached", "missed", "not run"
STATES = (BEATEN, REACHED, MISSED, NOT_RUN)
"""How we stand beside a number of the paper's, the best first."""
PAPER_BUDGETS = ("paper", "long")
"""Budgets that are compared with the paper's numbers: its own, else what a CPU can do of it."""
LARGEST = "vgg16-rivals"
"""The suite of VGG16, whose numbers are counted apart: no CPU trains it for 100 epochs."""
PROTOCOLS = {OUR_LABEL: "paper's protocol", DEFAULTS_LABEL: DEFAULTS_LABEL}
"""Labels of our runs, and what the table calls them."""
HOW_JUDGED = (
    "Beaten: our mean lies below the paper's. Reached: it lies at most the paper's own standard "
    "deviation above it; the paper's single runs have none. Missed: it lies further above, or a "
    "run of ours did not end in a finite number. Not run: there are no rows at the paper's budget. "
    "The NLL is the paper's: an expected one, −E_q log p(y), for regression at noise variance e⁻² "
    "and without ½ log 2π. The paper's protocol is Adam at a constant 1e-3 with 16 samples and "
    "batches of 64; "
    f"“{DEFAULTS_LABEL}” is what hs.fit does when it is told the numbers of "
    "steps and of samples alone."
)


@dataclass(frozen=True)
class PaperCell:
    """One of the paper's I-BLM numbers, and ours by each protocol.

    Args:
        suite: The suite that runs it.
        dataset: The data set.
        metric: The metric, as the paper has it.
        theirs: The paper's mean and standard deviation.
        ours: Our runs by label, where there are any.
        about: Epochs, samples and code of our runs, in words.

    Example:
        >>> one = PaperCell("s", "spam", "error", Cell(0.06, 0.01), {"iblm": Cell(0.065)})
        >>> one.state("iblm"), one.state("headstart, defaults"), one.best_state
        ('reached', 'not run', 'reached')
    """

    suite: str
    dataset: str
    metric: str
    theirs: Cell
    ours: Mapping[str, Cell]
    about: str = ""

    def state(self, label: str) -> str:
        """How our runs of a label stand beside the paper's number."""
        ours, theirs = self.ours.get(label), self.theirs.mean
        if ours is None or not ours.count or theirs is None:
            return NOT_RUN
        if ours.mean is None or ours.mean > theirs + (self.theirs.sd or 0.0):
            return MISSED
        return BEATEN if ours.mean < theirs else REACHED

    @property
    def best_state(self) -> str:
        """The better of the two protocols."""
        return min(map(self.state, PROTOCOLS), key=STATES.index)


def paper_cells(pages: Mapping[str, Results]) -> list[PaperCell]:
    """Every I-BLM number of the paper's tables, with our runs at its budget.

    Args:
        pages: Results by the names of their pages.
    """
    return [
        _paper_cell(suite, dataset, metric, pages)
        for suite, spec in SUITES.items()
        if spec.paper
        for metric in (*(task.metric for task in EXPERIMENT_TASKS.values()), "mnll")
        for dataset in spec.datasets
        if OUR_LABEL in paper_table(spec.paper, metric).get(dataset, {})
    ]


def _paper_cell(suite: str, dataset: str, metric: str, pages: Mapping[str, Results]) -> PaperCell:
    theirs = paper_table(SUITES[suite].paper, metric)[dataset][OUR_LABEL]
    for budget in PAPER_BUDGETS:
        results = pages.get(f"{suite}-{budget}")
        if results is not None and dataset in results.problems:
            column = "paper_nll" if metric == "mnll" else metric
            ours = {label: results.final(dataset, label, column) for label in PROTOCOLS}
            return PaperCell(suite, dataset, metric, theirs, ours, _about(results, dataset))
    return PaperCell(suite, dataset, metric, theirs, {})


def _about(results: Results, dataset: str) -> str:
    """How long the runs were, and the code that made them."""
    last = [row for row in results.of(dataset) if row.get("last")]
    steps = ", ".join(str(step) for step in sorted({row["step"] for row in last}))
    samples = ", ".join(str(number) for number in sorted({row["samples"] for row in last}))
    return f"{steps} steps, S = {samples}, code {results.code}"


def paper_sentence(cells: Iterable[PaperCell]) -> str:
    """How many of the paper's numbers are beaten, reached, missed and not run.

    Args:
        cells: The cells.

    Example:
        >>> one = PaperCell("s", "spam", "error", Cell(0.06, 0.01), {"iblm": Cell(0.065)})
        >>> paper_sentence([one, one]).partition(" after the fact, ")[2]
        'has 0 beaten, 2 reached, 0 missed, and 0 are not run at its budget.'
        >>> vgg16 = PaperCell("vgg16-rivals", "cifar10", "error", Cell(0.17), {})
        >>> paper_sentence([one, vgg16]).partition(", and ")[2]
        '1 are not run at its budget; without VGG16 1 of 1 are beaten or reached.'
    """
    found = list(cells)
    counts = Counter(cell.best_state for cell in found)
    if counts[NOT_RUN] == len(found):
        return f"None of the paper's {len(found)} I-BLM numbers is run at its budget yet."
    said = [f"{counts[BEATEN]} beaten", f"{counts[REACHED]} reached", f"{counts[MISSED]} missed"]
    small = [cell for cell in found if cell.suite != LARGEST]
    good = sum(cell.best_state in (BEATEN, REACHED) for cell in small)
    alone = f"; without VGG16 {good} of {len(small)} are beaten or reached"
    return (
        f"Of the paper's {len(found)} I-BLM numbers the better of our two protocols, "
        f"taken for each number after the fact, has {', '.join(said)}, "
        f"and {counts[NOT_RUN]} are not run at its budget"
        f"{alone if len(small) < len(found) else ''}."
    )


def paper_blocks(pages: Mapping[str, Results]) -> list[Block]:
    """The table of the paper's I-BLM numbers, and how it is judged.

    Args:
        pages: Results by the names of their pages.
    """
    cells = paper_cells(pages)
    names = [name for name in PROTOCOLS.values() for name in (name, "")]
    header = ["net", "data set", "metric", "paper", *names, "our runs"]
    return [
        Heading(2, "Beside the paper"),
        Text(paper_sentence(cells)),
        Table([Entry(text) for text in header], [_cell_row(cell) for cell in cells]),
        Text(HOW_JUDGED),
    ]


def _cell_row(cell: PaperCell) -> list[Entry]:
    label = "NLL" if cell.metric == "mnll" else METRICS[cell.metric].label
    row = [Entry(SUITES[cell.suite].models[0]), Entry(cell.dataset), Entry(label)]
    row.append(Entry(cell.theirs.show(), quiet=True))
    for name in PROTOCOLS:
        state, ours = cell.state(name), cell.ours.get(name)
        runs = f" ({ours.count})" if ours is not None and ours.count > 1 else ""
        shown = "-" if state == NOT_RUN or ours is None else ours.show(mark=False) + runs
        row += [Entry(shown), Entry(state, strong=state in (BEATEN, REACHED))]
    return [*row, Entry(cell.about or "-")]
