"""Rows put together: mean and spread over splits, who did not converge, and the paper's numbers beside ours."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from headstart.data import NAMES
from headstart.experiments.tasks import metric_of
from headstart.initializers import INITIALIZERS

Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """Several runs in one number; `nc` of the `count` runs did not converge. No mean where one of them is not finite."""

    mean: float | None
    sd: float | None = None
    low: float = math.nan
    high: float = math.nan
    count: int = 1
    nc: int = 0

    def show(self, mark: bool = True) -> str:
        """`mean ± sd`, and, if `mark`, how many runs did not converge."""
        if self.mean is None:
            return "NC"
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


class Results:
    """The rows of one suite, looked up by data set and initialiser."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)
        self.datasets = _ordered((row["dataset"] for row in self.rows), NAMES)
        self.inits = _ordered((row["init"] for row in self.rows), INITIALIZERS)

    def names(self) -> dict[str, str]:
        """What the data sets are called: a file by its name."""
        return {dataset: Path(dataset).name for dataset in self.datasets}

    def of(self, dataset: str, init: str | None = None) -> list[Row]:
        """The rows of a data set, and of one initialiser."""
        return [row for row in self.rows if row["dataset"] == dataset and init in (None, row["init"])]

    def metric(self, dataset: str) -> str:
        """The main metric of the data set's task."""
        return metric_of({name: None for row in self.of(dataset) for name in row})

    def steps(self, dataset: str) -> list[int]:
        """The steps at which runs on this data set were looked at."""
        return sorted({row["step"] for row in self.of(dataset)})

    def final(self, dataset: str, init: str, metric: str) -> Cell:
        """Where the runs ended."""
        last = [row for row in self.of(dataset, init) if row.get("last")]
        return pool([row.get(metric) for row in last], sum(bool(row.get("nc")) for row in last))

    def at(self, dataset: str, init: str, step: int, metric: str) -> Cell:
        """The runs that got as far as `step`."""
        return pool([row.get(metric) for row in self.of(dataset, init) if row["step"] == step and "failed" not in row])

    def trivial(self, dataset: str) -> float | None:
        """The main metric of the trivial predictor, in the mean over splits."""
        return pool([row["trivial"] for row in self.of(dataset) if row["step"] == 0 and "trivial" in row]).mean

    def best(self, dataset: str, metric: str) -> str | None:
        """The initialiser whose runs ended lowest in the mean."""
        means = {init: self.final(dataset, init, metric).mean for init in self.inits}
        finite = {init: mean for init, mean in means.items() if mean is not None and math.isfinite(mean)}
        return min(finite, key=lambda init: finite[init]) if finite else None

    def setting(self, name: str) -> list[Any]:
        """The distinct values of a setting over all runs."""
        return [json.loads(value) for value in sorted({json.dumps(row[name], sort_keys=True) for row in self.rows})]


def paper(table: str | None, metric: str) -> dict[str, dict[str, Cell]]:
    """The paper's table by data set and initialiser; nothing where it has none."""
    if table is None:
        return {}
    tables = json.loads(resources.files("headstart.experiments").joinpath("paper.json").read_text())
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
