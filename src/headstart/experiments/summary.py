"""Rows put together: mean and spread over splits, who did not converge, and the paper's numbers beside ours."""

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
from headstart.experiments.tasks import metric_of
from headstart.initializers import INITIALIZERS

Row = dict[str, Any]
Pair = tuple[int, int]
"""A split and a seed: runs that have them in common saw the same rows."""


@dataclass(frozen=True)
class Cell:
    """Several runs in one number; `nc` of the `count` runs did not converge. No mean where one of them is not finite."""

    mean: float | None
    sd: float | None = None
    low: float = math.nan
    high: float = math.nan
    count: int = 1
    nc: int = 0

    @property
    def se(self) -> float | None:
        """The standard error of the mean."""
        return None if self.sd is None else self.sd / math.sqrt(self.count)

    def show(self, mark: bool = True) -> str:
        """`mean ± sd`, and, if `mark`, how many runs did not converge; a dash where there were no runs."""
        if self.mean is None:
            return "NC" if self.count else "-"
        spread = "" if self.sd is None else f" ± {number(self.sd, digits=3)}"
        runs = "" if self.nc == self.count else f" {self.nc}/{self.count}"
        return number(self.mean) + spread + (f" NC{runs}" if mark and self.nc else "")


def pool(values: Sequence[float | None], nc: int = 0) -> Cell:
    """Mean, sample standard deviation and range.

    Example:
        >>> pool([0.25, 0.27]).show(), pool([0.25]).show(), pool([0.25, None]).show(), pool([1.0, 1.0], nc=1).show()
        ('0.2600 ± 0.014', '0.2500', 'NC', '1.000 ± 0.000 NC 1/2')
    """
    finite = [value for value in values if value is not None]
    if not values or len(finite) < len(values):
        return Cell(None, count=len(values), nc=len(values))
    sd = statistics.stdev(finite) if len(finite) > 1 else None
    return Cell(statistics.fmean(finite), sd, min(finite), max(finite), len(finite), nc)


def number(value: float | None, digits: int = 4) -> str:
    """A number with as many digits as are worth reading.

    Example:
        >>> number(0.06234), number(-1.2345), number(123.456), number(4.2e7), number(0.0623, digits=3), number(None)
        ('0.0623', '-1.234', '123.5', '4.2e+07', '0.062', '-')
    """
    if value is None:
        return "-"
    if abs(value) >= 1e5:
        return f"{value:.1e}"
    whole = len(f"{abs(value):.0f}") if abs(value) >= 1 else 0
    return f"{value:.{max(digits - whole, 0)}f}"


@dataclass(frozen=True)
class Difference:
    """A mean difference over pairs of runs, and its standard error; none from a single pair."""

    mean: float
    se: float | None = None

    def beyond(self) -> int:
        """−1 or +1 where it is further from 0 than its standard error, if there is one; else 0.

        Example:
            >>> Difference(0.3, 0.2).beyond(), Difference(-0.1, 0.2).beyond(), Difference(-0.1).beyond()
            (1, 0, -1)
        """
        return 0 if abs(self.mean) <= (self.se or 0.0) else int(math.copysign(1, self.mean))


def paired(ours: Mapping[Pair, float], theirs: Mapping[Pair, float]) -> Difference | None:
    """Ours minus theirs over the pairs that both have; nothing where there are none.

    Example:
        >>> paired({(0, 0): 1.0, (1, 1): 3.0}, {(0, 0): 0.5, (1, 1): 1.5})
        Difference(mean=1.0, se=0.5)
    """
    differences = [ours[pair] - theirs[pair] for pair in ours if pair in theirs]
    cell = pool(differences)
    return None if cell.mean is None else Difference(cell.mean, cell.se)


class Results:
    """The rows of one suite, looked up by problem and label.

    A problem is a data set, or, where there are several nets, a data set with a net. A label is that of a variant, mostly an
    initialiser's name; labels come in the given `order`.

    Example:
        >>> shared = {"dataset": "toy", "init": "iblm", "step": 0}
        >>> rows = [{**shared, "model": "mlp-1x50"}, {**shared, "model": "mlp-2x50", "label": "mine"}]
        >>> Results(rows).problems, Results(rows).labels
        (['toy mlp-1x50', 'toy mlp-2x50'], ['iblm', 'mine'])
    """

    def __init__(self, rows: Iterable[Row], order: Iterable[str] = INITIALIZERS) -> None:
        self.rows = list(rows)
        self._several_nets = len({row["model"] for row in self.rows}) > 1
        datasets = _ordered((row["dataset"] for row in self.rows), NAMES)
        self._groups: dict[str, list[Row]] = {}
        for row in sorted(
            self.rows, key=lambda row: (datasets.index(row["dataset"]), row["model"])
        ):
            self._groups.setdefault(self._name(row["dataset"], row), []).append(row)
        self.problems = list(self._groups)
        self.labels = _ordered(map(label_of, self.rows), order)

    def _name(self, dataset: str, row: Row) -> str:
        return f"{dataset} {row['model']}" if self._several_nets else dataset

    def names(self) -> dict[str, str]:
        """What the problems are called: a file by its name."""
        return {
            problem: self._name(Path(rows[0]["dataset"]).name, rows[0])
            for problem, rows in self._groups.items()
        }

    def of(self, problem: str, label: str | None = None) -> list[Row]:
        """The rows of a problem, and of one label."""
        return [row for row in self._groups[problem] if label in (None, label_of(row))]

    def labels_of(self, problem: str) -> list[str]:
        """The labels that were run on this problem."""
        return [label for label in self.labels if self.of(problem, label)]

    def metric(self, problem: str) -> str:
        """The main metric of the problem's task."""
        return metric_of({name: None for row in self.of(problem) for name in row})

    def steps(self, problem: str) -> list[int]:
        """The steps at which runs on this problem were looked at."""
        return sorted({row["step"] for row in self.of(problem)})

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
    ) -> Difference | None:
        """The metric of `label` minus that of `other` at `step`, paired over splits."""
        ours, theirs = (
            {
                (row["split"], row["seed"]): row[metric]
                for row in self.rows_at(problem, name, step)
                if row.get(metric) is not None
            }
            for name in (label, other)
        )
        return paired(ours, theirs)

    def rows_at(self, problem: str, label: str, step: int) -> list[Row]:
        """The rows of a label at a step, without those that say what broke down."""
        return [
            row for row in self.of(problem, label) if row["step"] == step and "failed" not in row
        ]

    def trivial(self, problem: str) -> float | None:
        """The main metric of the trivial predictor, in the mean over splits."""
        return pool(
            [row["trivial"] for row in self.of(problem) if row["step"] == 0 and "trivial" in row]
        ).mean

    def best(self, problem: str, metric: str) -> str | None:
        """The label whose runs ended lowest in the mean."""
        means = {label: self.final(problem, label, metric).mean for label in self.labels}
        finite = {
            label: mean for label, mean in means.items() if mean is not None and math.isfinite(mean)
        }
        return min(finite, key=lambda label: finite[label]) if finite else None

    def setting(self, name: str) -> list[Any]:
        """The distinct values of a setting over all runs."""
        return [
            json.loads(value)
            for value in sorted({json.dumps(row[name], sort_keys=True) for row in self.rows})
        ]


def label_of(row: Row) -> str:
    """What a row is put together by: its label, or the initialiser's name."""
    return str(row.get("label") or row["init"])


def paper(table: str | None, metric: str) -> dict[str, dict[str, Cell]]:
    """The paper's table by data set and initialiser; nothing where it has none."""
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
        for dataset, inits in tables[table][metric].items()
    }


def _ordered(names: Iterable[str], registry: Iterable[str]) -> list[str]:
    """Each name once: those of the registry in its order, then the others."""
    places = {name: place for place, name in enumerate(registry)}
    return sorted(set(names), key=lambda name: (places.get(name, len(places)), name))
