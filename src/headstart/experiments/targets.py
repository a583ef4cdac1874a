"""What we set out to reach, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headstart.experiments.catalogue import SUITES
from headstart.experiments.summary import Cell, Results, number
from headstart.experiments.verdict import OURS
from headstart.metrics import METRICS
from headstart.reporting.document import Block, Entry, Heading, Table


@dataclass(frozen=True)
class Target:
    """The main metric of I-BLM on a suite's data set is to be at most `most` after `step` steps."""

    suite: str
    dataset: str
    step: int
    most: float

    def measured(self, suites: Mapping[str, Results]) -> tuple[str, Cell] | None:
        """The metric and its value; nothing where it was not measured."""
        results = suites.get(self.suite)
        if results is None or self.dataset not in results.problems:
            return None
        metric = results.metric(self.dataset)
        cell = results.at(self.dataset, OURS, self.step, metric)
        return (metric, cell) if cell.count else None


TARGETS = (
    Target("classification-deep", "mnist", 0, 0.15),
    Target("classification-deep", "mnist", 500, 0.055),
    Target("classification-deep", "mnist", 1000, 0.045),
    Target("regression-deep", "protein", 200, 0.82),
    Target("regression-deep", "protein", 2000, 0.75),
    Target("protein-long", "protein", 20_000, 0.68),
    Target("classification-deep", "eeg", 0, 0.24),
    Target("classification-deep", "eeg", 2000, 0.05),
    Target("classification-deep", "spam", 0, 0.08),
    Target("lenet-mnist", "mnist", 500, 0.05),
)


def table(suites: Mapping[str, Results]) -> list[Block]:
    """Every target that was measured, and whether it is met in the mean; nothing where none was."""
    rows = []
    for target in TARGETS:
        found = target.measured(suites)
        if found is None:
            continue
        metric, cell = found
        met = cell.mean is not None and cell.mean <= target.most
        about = (
            target.dataset,
            *SUITES[target.suite].models,
            str(target.step),
            METRICS[metric].label,
        )
        texts = (*about, f"≤ {number(target.most)}", cell.show(mark=False), "yes" if met else "no")
        rows.append([Entry(text) for text in texts])
    header = ("data set", "model", "step", "metric", "target", "I-BLM", "met")
    return [Heading(3, "Targets"), Table([Entry(text) for text in header], rows)] if rows else []
