"""The page of the ablation: every variant of I-BLM against the default, over several data sets."""

from __future__ import annotations

import math
import statistics

from headstart.experiments.pages.base import ReportPage
from headstart.experiments.paired import AHEAD
from headstart.experiments.results import Results, format_number
from headstart.experiments.variants import BASE_LABEL
from headstart.metrics import METRICS
from headstart.reporting.document import Block, Entry, Heading, Table, Text

MAIN_METRIC = "main"
HOW_TO_READ = (
    "Means over splits. The last column is the mean change against the default over the data sets: "
    "of error or RMSE the geometric mean of the ratios, less one, in per cent; "
    "of MNLL the mean difference in nats. Above zero the default is better. "
    "Bold is ahead of the default: the 95 % interval of the difference, paired over splits, "
    "excludes zero. A single split has numbers without a verdict."
)


class AblationPage(ReportPage):
    """For each step and metric a table, variants by data sets."""

    def sentence(self, results: Results) -> str:
        step = max(step for problem in results.problems for step in results.steps(problem))
        found = {
            label: overall(results, label, step, MAIN_METRIC)
            for label in results.labels
            if label != BASE_LABEL
        }
        changes = {label: change for label, change in found.items() if change is not None}
        if not changes:
            return "Nothing was compared with the default."
        lower = sorted(
            (label for label, change in changes.items() if change < 0),
            key=lambda label: changes[label],
        )
        better = (
            ", ".join(f"{label} ({_signed(changes[label], MAIN_METRIC)})" for label in lower)
            or "none"
        )
        return (
            f"At step {step}, in the mean over data sets, {len(lower)} of {len(changes)} variants "
            f"have a lower error or RMSE than the default: {better}."
        )

    def blocks(self, name: str, results: Results) -> list[Block]:
        steps = sorted({step for problem in results.problems for step in results.steps(problem)})
        sections: list[Block] = [Text(HOW_TO_READ)]
        for step in steps:
            for metric in (MAIN_METRIC, "mnll"):
                sections += _section(results, step, metric)
        return sections


def overall(results: Results, label: str, step: int, metric: str) -> float | None:
    """The mean change of a variant against the default, over the data sets where both were run.

    Nothing where one of them has no number to compare: what is left would flatter it.
    """
    changes = []
    for problem in results.problems:
        if {label, BASE_LABEL} <= set(results.labels_of(problem)):
            measured = _measured(results, problem, metric)
            ours, base = (
                results.at(problem, name, step, measured).mean for name in (label, BASE_LABEL)
            )
            if ours is None or base is None or (metric == MAIN_METRIC and min(ours, base) <= 0):
                return None
            changes.append(change(ours, base, measured))
    return mean_change(changes, metric) if changes else None


def change(value: float, base: float, metric: str) -> float:
    """How far a value is from the default's: a difference for MNLL, else the log of the ratio.

    Example:
        >>> change(0.75, 0.5, "mnll"), round(change(0.75, 0.5, "error"), 3)
        (0.25, 0.405)
    """
    return value - base if metric == "mnll" else math.log(value / base)


def mean_change(changes: list[float], metric: str) -> float:
    """Their mean; of logs of ratios, what the geometric mean of the ratios is above 1, in per cent.

    Example:
        >>> mean_change([0.25, -0.75], "mnll")
        -0.25
        >>> round(mean_change([math.log(2.0), math.log(0.72)], "main"), 9)
        20.0
    """
    mean = statistics.fmean(changes)
    return mean if metric == "mnll" else 100 * math.expm1(mean)


def _section(results: Results, step: int, metric: str) -> list[Block]:
    names = results.names()
    kinds = " or ".join(
        dict.fromkeys(METRICS[_measured(results, p, metric)].label for p in results.problems)
    )
    header = [
        "variant",
        *names.values(),
        f"against the default, {'nats' if metric == 'mnll' else '%'}",
    ]
    rows = []
    for label in results.labels:
        cells = [
            _variant_entry(results, problem, label, step, metric) for problem in results.problems
        ]
        rows.append(
            [Entry(label), *cells, Entry(_signed(overall(results, label, step, metric), metric))]
        )
    return [Heading(3, f"{kinds} at step {step}"), Table([Entry(text) for text in header], rows)]


def _variant_entry(results: Results, problem: str, label: str, step: int, metric: str) -> Entry:
    measured = _measured(results, problem, metric)
    cell = results.at(problem, label, step, measured)
    difference = results.difference(problem, label, BASE_LABEL, step, measured)
    verdict = difference and difference.verdict(METRICS[measured].better)
    text = format_number(cell.mean) if cell.mean is not None else cell.show()
    return Entry(text, strong=verdict == AHEAD and cell.mean is not None)


def _measured(results: Results, problem: str, metric: str) -> str:
    return results.metric(problem) if metric == MAIN_METRIC else metric


def _signed(change: float | None, metric: str) -> str:
    """A change with its sign."""
    if change is None:
        return "-"
    return f"{change:+.3f}" if metric == "mnll" else f"{change:+.1f} %"
