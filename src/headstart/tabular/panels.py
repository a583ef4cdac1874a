"""The parts of a fitted table's page; what a run of an earlier version lacks is left out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from headstart.reporting import fitted as plots
from headstart.reporting.document import Block, Entry, Figure, Group, Heading, Table, Text
from headstart.reporting.text import readably
from headstart.tabular.baselines import MAX_BASELINE_ROWS
from headstart.tabular.run import TableRun

MAX_BARS = 15
"""Columns whose importance is drawn."""
MAX_CONFUSED = 12
"""Classes up to which the whole confusion matrix is shown."""


def test_blocks(found: Mapping[str, Any]) -> list[Block]:
    """The tests behind the verdict."""
    if "checks" not in found:
        return []
    rows = [
        [Entry("passed" if check["passed"] else "failed", strong=not check["passed"]), Entry(said)]
        for check in found["checks"]
        for said in [check["sentence"]]
    ]
    return [Table([Entry("test"), Entry("what was found")], rows, words=True)]


def baseline_blocks(run: TableRun) -> list[Block]:
    """The scores of simpler models on the same rows."""
    if not (scores := run.found.get("baselines")):
        return []
    name = "MNLL (nats a row)" if run.schema.target.classes else "RMSE"
    rows = [
        [Entry(row["name"]), Entry(f"{readably(row['score'])} ± {readably(row['error'], 2)}")]
        for row in scores
    ]
    return [
        Heading(2, "Beside simpler models"),
        Text(
            f"On the same test rows, smaller is better; ± is one standard error of the {name} "
            "over test rows. The others learned from the same columns, at their defaults, from at "
            f"most {MAX_BASELINE_ROWS:,} training rows."
        ),
        Table([Entry("model"), Entry(name)], rows),
    ]


def explanation_blocks(run: TableRun) -> list[Block]:
    """Which columns move the prediction and which the uncertainty, and the curves."""
    found, target = run.found.get("explanation") or {}, run.schema.target
    if not found:
        return []
    unit = "change of the probability" if target.classes else f"change of {target.name}"
    doubt = "change of the epistemic part"
    bars = [
        _bars(found["importances"], "prediction", f"mean {unit}"),
        _bars(found["importances"], "uncertainty", f"mean {doubt}"),
    ]
    label = f"P({target.name} = {found['curves_of']})" if target.classes else target.name
    curves = [
        Figure(
            f"along-{place}",
            plots.dependence_curve(
                curve["name"],
                curve["values"],
                curve["mean"],
                curve["sd"],
                label,
                (0.0, 1.0) if target.classes else (-math.inf, math.inf),
            ),
            f"The mean prediction along {curve['name']}.",
        )
        for place, curve in enumerate(found["curves"])
    ]
    return [
        Heading(2, "What drives it"),
        Text(
            "A column's cells are exchanged for those of other rows: how far predictions move, and "
            "how far their uncertainty. A column on which others depend may hide behind them."
        ),
        Group([[figure] for figure in bars]),
        Text(
            "Below, test rows get one value of a column after the other, everything else as it is. "
            "Bands: two standard deviations of what the model does not know of this mean."
        ),
        Group([[figure] for figure in curves]),
    ]


def _bars(importances: Sequence[Mapping[str, Any]], key: str, label: str) -> Figure:
    top = sorted(importances, key=lambda each: -each[key])[:MAX_BARS]
    picture = plots.importance_bars(
        [each["name"] for each in top], [each[key] for each in top], label
    )
    words = {
        "prediction": "What moves predictions.",
        "uncertainty": "What moves their uncertainty.",
    }
    return Figure(f"importance-{key}", picture, words[key])


def calibration_blocks(run: TableRun) -> list[Block]:
    """How far probabilities or intervals can be trusted."""
    if run.schema.target.classes:
        return [_confidence_figure(run), *_confusion(run)]
    coverage = {float(level): value for level, value in run.found["coverage"].items()}
    levels, points = sorted(coverage), run.found["points"]
    counts = run.likelihood.has_counts
    line = "on the dotted line" + (", or above it, since counts are whole," if counts else "")
    pictures = [
        Figure(
            "coverage",
            plots.coverage_curve(levels, [coverage[level] for level in levels]),
            f"The fraction of test rows inside their intervals; {line} as promised.",
        ),
        Figure(
            "truth",
            plots.truth_against_prediction(points["predicted"], points["true"]),
            "Predictions and truth of test rows.",
        ),
        # A count's errors have no normal law, whose line would be no promise.
        *([] if counts else [_errors_figure(points)]),
    ]
    return [Group([[figure] for figure in pictures]), *_intervals(run), *_segments(run)]


def _errors_figure(points: dict[str, list[float]]) -> Figure:
    """Errors in predicted standard deviations."""
    z = [
        (true - mean) / sd
        for mean, sd, true in zip(points["predicted"], points["sd"], points["true"], strict=True)
    ]
    said = "The distance of the truth in predicted standard deviations; the line is as promised."
    return Figure("errors", plots.standardized_errors(z), said)


def _intervals(run: TableRun) -> list[Block]:
    if not (rows := run.found.get("intervals")):
        return []
    picture = plots.interval_bars(rows["predicted"], rows["low"], rows["high"], rows["true"])
    said = "95 % intervals of test rows, and what was true: a dot in color lies outside."
    return [Figure("intervals", picture, said)]


def _segments(run: TableRun) -> list[Block]:
    if not (parts := run.found.get("segments")):
        return []
    rows = [
        [
            Entry(part["name"]),
            Entry(str(part["rows"])),
            Entry(f"{part['coverage']:.1%}"),
            Entry(readably(part["rmse"])),
            Entry(readably(part["width"])),
        ]
        for part in parts
    ]
    header = ("rows", "number", "inside the 95 % interval", "RMSE", "mean width")
    return [Table([Entry(name) for name in header], rows)]


def _confidence_figure(run: TableRun) -> Figure:
    bins = run.found["reliability"]
    total = sum(bins["rows"])
    fractions = [rows / total for rows in bins["rows"]]
    return Figure(
        "reliability",
        plots.confidence_curve(bins["confidence"], bins["accuracy"], fractions),
        "Of predictions made with some confidence, how many were right; "
        "on the dotted line as many as said. Bars: the fraction of rows. "
        f"Expected calibration error {run.found['scores']['ece']:.3f}.",
    )


def _confusion(run: TableRun) -> list[Block]:
    """The confusion matrix, and the recall of each class."""
    if not (matrix := run.found.get("confusion")):
        return []
    classes, few = run.schema.target.classes, len(matrix) <= MAX_CONFUSED
    rows = []
    for place, (label, counts) in enumerate(zip(classes, matrix, strict=True)):
        total = sum(counts)
        recall = f"{counts[place] / total:.0%}" if total else "no such rows"
        shown = counts if few else []
        cells = [Entry(str(n), quiet=at != place and n == 0) for at, n in enumerate(shown)]
        rows.append([Entry(label), Entry(str(total)), Entry(recall), *cells])
    header = ["truly", "test rows", "of these found"]
    header += [f"taken for {label}" for label in classes] if few else []
    return [
        Text("How many test rows of each class were taken for which."),
        Table([Entry(name) for name in header], rows),
    ]


def decision_blocks(run: TableRun) -> list[Block]:
    """The risk-coverage curve, and what costs of abstaining come to."""
    if not (found := run.found.get("decisions")):
        return []
    classes = bool(run.schema.target.classes)
    risk = "fraction of errors" if classes else "RMSE"
    unit = (
        "an error costs 1" if classes else f"as an error of that size, in {run.schema.target.name}"
    )
    rows = [
        [
            Entry(readably(row["cost"])),
            Entry(f"{row['answered']:.0%}"),
            Entry(f"{row['risk']:.1%}" if classes else readably(row["risk"])),
        ]
        for row in found["costs"]
    ]
    curve = plots.risk_curve(found["curve"]["coverage"], found["curve"]["risk"], risk)
    said = "Test rows with the least expected cost are answered first."
    return [
        Heading(2, "When to abstain"),
        Text(
            f"Where abstaining costs so much ({unit}), these rows are worth an answer; "
            "headstart predict --abstain marks the others."
        ),
        Group(
            [
                [Figure("risk", curve, said)],
                [Table([Entry("cost"), Entry("answered"), Entry(f"{risk} of these")], rows)],
            ]
        ),
    ]


def column_table(run: TableRun) -> Table:
    """What each column was taken for."""
    used = [[Entry(column.name), Entry(column.describe())] for column in run.schema.columns]
    unused = [
        [Entry(name, quiet=True), Entry(f"not used: it {reason}", quiet=True)]
        for name, reason in run.schema.left_out.items()
    ]
    return Table([Entry("column"), Entry("taken for")], [*used, *unused], words=True)


def uncertain_table(rows: list[dict[str, str]]) -> Table:
    """Test rows of which the model knows least."""
    names = list(rows[0]) if rows else ["predicted"]
    return Table(
        [Entry(name) for name in names], [[Entry(row[name]) for name in names] for row in rows]
    )


def learning_group(run: TableRun) -> Group:
    """Scores on validation rows while training."""
    metric = "error" if run.schema.target.classes else "rmse"
    labels = {"mnll": "MNLL (nats per row)", "rmse": "RMSE, standardized", "error": "error"}
    records = run.found["validation"]
    steps = [row["step"] for row in records]
    return Group(
        [
            [
                Figure(
                    f"learning-{name}",
                    plots.validation_curve(steps, [row[name] for row in records], labels[name]),
                    "Validation rows while training.",
                )
            ]
            for name in ("mnll", metric)
        ]
    )
