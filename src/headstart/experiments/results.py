"""Rows put together: mean and spread over splits, paired differences, and the paper's numbers."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from headstart.data import NAMES
from headstart.experiments.catalogue import SUITES
from headstart.experiments.code import code_hash
from headstart.experiments.paired import PairedDifference, paired_difference
from headstart.experiments.spec import ResultRow
from headstart.experiments.tasks import metric_of
from headstart.initializers import INITIALIZERS
from headstart.metrics import METRICS

FIXED_TEST_SETS = ("mnist", "cifar10")
"""Data sets with an official test set, for rows that do not say so themselves."""
PLAIN_BUDGETS = ("quick", "own")
"""Budgets that the name of a page does not say."""
HELD_OUT = 1 / 9
"""Test rows per training row of a 90/10 split, for rows that do not say it."""


@dataclass(frozen=True)
class Cell:
    """Several runs in one number.

    Args:
        mean: Their mean; None where one of them is not finite.
        sd: Their sample standard deviation; None for a single run.
        low: The lowest.
        high: The highest.
        count: How many runs there are.
        nc: How many of them did not converge.
    """

    mean: float | None
    sd: float | None = None
    low: float = math.nan
    high: float = math.nan
    count: int = 1
    nc: int = 0

    def show(self, mark: bool = True) -> str:
        """`mean ± sd`, and, if `mark`, how many runs did not converge; a dash for no runs."""
        if self.mean is None:
            return "NC" if self.count else "-"
        spread = "" if self.sd is None else f" ± {format_number(self.sd, digits=3)}"
        runs = "" if self.nc == self.count else f" {self.nc}/{self.count}"
        return format_number(self.mean) + spread + (f" NC{runs}" if mark and self.nc else "")


def pool(values: Sequence[float | None], nc: int = 0) -> Cell:
    """Mean, sample standard deviation and range.

    Example:
        >>> pool([0.25, 0.27]).show(), pool([0.25]).show(), pool([0.25, None]).show()
        ('0.2600 ± 0.014', '0.2500', 'NC')
        >>> pool([1.0, 1.0], nc=1).show()
        '1.000 ± 0.000 NC 1/2'
    """
    finite = [value for value in values if value is not None]
    if not values or len(finite) < len(values):
        return Cell(None, count=len(values), nc=len(values))
    sd = statistics.stdev(finite) if len(finite) > 1 else None
    return Cell(statistics.fmean(finite), sd, min(finite), max(finite), len(finite), nc)


def format_number(value: float | None, digits: int = 4) -> str:
    """A number with as many digits as are worth reading.

    Example:
        >>> [format_number(value) for value in (0.06234, -1.2345, 123.456, 4.2e7, None)]
        ['0.0623', '-1.234', '123.5', '4.2e+07', '-']
        >>> format_number(0.0623, digits=3)
        '0.062'
    """
    if value is None:
        return "-"
    if abs(value) >= 1e5:
        return f"{value:.1e}"
    whole = len(f"{abs(value):.0f}") if abs(value) >= 1 else 0
    return f"{value:.{max(digits - whole, 0)}f}"


class Results:
    """The rows of one suite, looked up by problem and label; all were made by the same code.

    A problem is a data set, or, where there are several nets, a data set with a net.
    A label is that of a variant, mostly an initializer's name.
    Of runs that share problem, label, split and seed, the one that was stored last counts.

    Args:
        rows: Rows, of which those of one code are kept: today's where there are any, else the last.
        order: Labels in the order in which they are shown; others come after them.

    Example:
        >>> shared = {"dataset": "toy", "init": "iblm", "step": 0}
        >>> mine = {"model": "mlp-2x50", "label": "mine"}
        >>> rows = [{**shared, "model": "mlp-1x50"}, {**shared, **mine}]
        >>> Results(rows).problems, Results(rows).labels
        (['toy mlp-1x50', 'toy mlp-2x50'], ['iblm', 'mine'])
    """

    def __init__(self, rows: Iterable[ResultRow], order: Iterable[str] = INITIALIZERS) -> None:
        found = list(rows)
        self.code = newest_code(found)
        mine = [row for row in found if _code_of(row) == self.code]
        self.left_out = len(found) - len(mine)
        latest = {_repeated_in(row): row.get("run") for row in mine}
        self.rows = [row for row in mine if row.get("run") == latest[_repeated_in(row)]]
        self._several_nets = len({row["model"] for row in self.rows}) > 1
        datasets = _ordered((row["dataset"] for row in self.rows), NAMES)
        self._groups: dict[str, list[ResultRow]] = {}
        for row in sorted(
            self.rows, key=lambda row: (datasets.index(row["dataset"]), row["model"])
        ):
            self._groups.setdefault(self._name(row["dataset"], row), []).append(row)
        self.problems = list(self._groups)
        self.labels = _ordered(map(label_of, self.rows), order)

    def _name(self, dataset: str, row: ResultRow) -> str:
        return f"{dataset} {row['model']}" if self._several_nets else dataset

    def names(self) -> dict[str, str]:
        """What the problems are called: a file by its name."""
        return {
            problem: self._name(Path(rows[0]["dataset"]).name, rows[0])
            for problem, rows in self._groups.items()
        }

    def of(self, problem: str, label: str | None = None) -> list[ResultRow]:
        """The rows of a problem, and of one label."""
        return [row for row in self._groups[problem] if label in (None, label_of(row))]

    def labels_of(self, problem: str) -> list[str]:
        """The labels that were run on this problem."""
        return [label for label in self.labels if self.of(problem, label)]

    def metric(self, problem: str) -> str:
        """The main metric of the problem's task; the suite's where all its runs broke down."""
        scored = [row for row in self.of(problem) if "mnll" in row] or self.rows
        return metric_of({name: None for row in scored for name in row})

    def steps(self, problem: str) -> list[int]:
        """The steps at which runs on this problem were evaluated."""
        return sorted({row["step"] for row in self.of(problem)})

    def metrics(self, problem: str) -> list[str]:
        """The metrics of this problem's rows of which more, or less, is better."""
        measured = {name for row in self.of(problem) for name in row}
        return [name for name, metric in METRICS.items() if metric.better and name in measured]

    def test_to_train(self, problem: str) -> float:
        """Test rows per training row where splits are resampled; 0 for a fixed test set."""
        return max(
            row.get("test_to_train", 0.0 if row["dataset"] in FIXED_TEST_SETS else HELD_OUT)
            for row in self.of(problem)
        )

    def final(self, problem: str, label: str, metric: str) -> Cell:
        """Where the runs ended."""
        last = [row for row in self.of(problem, label) if row.get("last")]
        return pool([row.get(metric) for row in last], sum(bool(row.get("nc")) for row in last))

    def at(self, problem: str, label: str, step: int, metric: str) -> Cell:
        """The runs at `step`; those that broke down before count as not finite."""
        here = self.rows_at(problem, label, step)
        there = {row["run"] for row in here}
        gone = [
            row
            for row in self.of(problem, label)
            if "failed" in row and row["step"] <= step and row["run"] not in there
        ]
        return pool([*(row.get(metric) for row in here), *(None for _ in gone)])

    def difference(
        self, problem: str, label: str, other: str, step: int, metric: str
    ) -> PairedDifference | None:
        """The metric of `label` minus that of `other` at `step`, paired over splits."""
        ours, theirs = (
            {
                (row["split"], row["seed"]): row[metric]
                for row in self.rows_at(problem, name, step)
                if row.get(metric) is not None
            }
            for name in (label, other)
        )
        return paired_difference(ours, theirs, self.test_to_train(problem))

    def rows_at(self, problem: str, label: str, step: int) -> list[ResultRow]:
        """The rows of a label at a step, without those that say what broke down."""
        return [
            row for row in self.of(problem, label) if row["step"] == step and "failed" not in row
        ]

    def beside(self, problem: str, baseline: str) -> float | None:
        """The main metric of a baseline in the rows, such as `trivial`, in the mean over splits."""
        found = {(row["split"], row["seed"]): row.get(baseline) for row in self.of(problem)}
        return pool([value for value in found.values() if value is not None]).mean

    def best(self, problem: str, metric: str) -> str | None:
        """The label whose runs ended best in the mean; none for a metric without a better side."""
        means = {label: self.final(problem, label, metric).mean for label in self.labels}
        return best_label(means, metric)

    @property
    def suite(self) -> str:
        """The suite that the rows belong to."""
        return str(self.rows[0]["suite"])

    @property
    def version(self) -> str:
        """The version of the package that made the rows."""
        return str(self.rows[-1]["versions"]["headstart"])

    def setting(self, name: str) -> list[Any]:
        """The distinct values of a setting over all runs."""
        return [
            json.loads(value)
            for value in sorted({json.dumps(row.get(name), sort_keys=True) for row in self.rows})
        ]


def best_label(means: Mapping[str, float | None], metric: str) -> str | None:
    """The label with the best mean: the highest or the lowest, as the metric has it.

    Example:
        >>> means = {"a": 0.9, "b": 0.8, "c": None}
        >>> best_label(means, "auroc"), best_label(means, "error"), best_label(means, "entropy")
        ('a', 'b', None)
    """
    better = METRICS[metric].better if metric in METRICS else -1
    finite = {
        name: mean for name, mean in means.items() if mean is not None and math.isfinite(mean)
    }
    if not better or not finite:
        return None
    return max(finite, key=lambda name: better * finite[name])


def newest_code(rows: Sequence[ResultRow]) -> str:
    """The hash of today's code where rows have it, else that of the last row, or empty."""
    found = dict.fromkeys(map(_code_of, rows))
    return code_hash() if code_hash() in found else next(reversed(found), "")


def _code_of(row: ResultRow) -> str:
    return str(row.get("code", ""))


def _repeated_in(row: ResultRow) -> tuple[Any, ...]:
    """What a run is repeated in: a longer run of the same takes its place."""
    return row["dataset"], row["model"], label_of(row), row.get("split"), row.get("seed")


def page_name(row: ResultRow) -> str:
    """The page that a row is shown on: its suite's, one for each budget.

    Example:
        >>> page_name({"suite": "lenet-mnist", "budget": "quick"})
        'lenet-mnist'
        >>> page_name({"suite": "lenet-mnist", "budget": "paper"})
        'lenet-mnist-paper'
    """
    budget = row.get("budget", PLAIN_BUDGETS[0])
    return str(row["suite"]) if budget in PLAIN_BUDGETS else f"{row['suite']}-{budget}"


def by_page(rows: Iterable[ResultRow]) -> dict[str, Results]:
    """The rows of each page: suites in the order of the catalogue, then others by name."""
    found: dict[str, list[ResultRow]] = {}
    for row in rows:
        found.setdefault(page_name(row), []).append(row)
    places = {name: place for place, name in enumerate(SUITES)}

    def place(name: str) -> tuple[int, str]:
        return places.get(found[name][0]["suite"], len(places)), name

    return {
        name: results_of(found[name][0]["suite"], found[name]) for name in sorted(found, key=place)
    }


def results_of(suite: str, rows: Iterable[ResultRow]) -> Results:
    """The rows of a suite, its variants in the suite's own order."""
    chosen = (row for row in rows if row["suite"] == suite)
    if suite not in SUITES:
        return Results(chosen)
    return Results(chosen, [variant.label for variant in SUITES[suite].variants])


def label_of(row: ResultRow) -> str:
    """What a row is put together by: its label, or the initializer's name."""
    return str(row.get("label") or row["init"])


def paper_table(table: str | None, metric: str) -> dict[str, dict[str, Cell]]:
    """The paper's table by data set and initializer; nothing where it has none."""
    if table is None:
        return {}
    tables = json.loads(
        resources.files("headstart.experiments").joinpath("paper.json").read_text(encoding="utf-8")
    )
    return {
        dataset: {
            init: Cell(None) if found is None else Cell(found["mean"], found.get("std"))
            for init, found in inits.items()
        }
        for dataset, inits in tables[table].get(metric, {}).items()
    }


def _ordered(names: Iterable[str], registry: Iterable[str]) -> list[str]:
    """Each name once: those of the registry in its order, then the others."""
    places = {name: place for place, name in enumerate(registry)}
    return sorted(set(names), key=lambda name: (places.get(name, len(places)), name))
