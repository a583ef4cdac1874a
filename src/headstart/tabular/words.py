"""A fitted table in sentences, for the terminal and for the page."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from headstart.reporting.text import listing, plural, readably
from headstart.tabular.checks import Check, verdict
from headstart.tabular.conformal import infinite_levels
from headstart.tabular.familiarity import COLUMNS, FALSE_ALARM_RATE
from headstart.tabular.run import TableRun
from headstart.tabular.target import Target


def target_in_words(target: Target, noise: str = "") -> str:
    """What the target is taken for.

    Args:
        target: The target.
        noise: The noise model of its labels, which tells counts from other numbers.
    """
    if target.classes:
        return f"one of {len(target.classes)} classes (classification)"
    counts = noise in ("poisson", "negative-binomial")
    return f"a {'count' if counts else 'quantity'} (regression)"


def _task_hint(target: Target) -> list[str]:
    """How to say that classes which are numbers are a quantity."""
    numeric = [label for label in target.classes if label.replace(".", "", 1).isdigit()]
    if len(target.classes) <= 2 or len(numeric) < len(target.classes):
        return []
    return [f"If {target.name} is a quantity or a count, add --task regression."]


def table_in_words(run: TableRun) -> list[str]:
    """What the table was taken for, column by column, and what there is to warn of."""
    schema = run.schema
    used, rows = plural(len(schema.columns), "column"), plural(run.found["rows"], "row")
    kinds: dict[str, list[str]] = {}
    for column in schema.columns:
        kinds.setdefault(column.describe(), []).append(column.name)
    return [
        f"Predicting {schema.target.name}, "
        f"{target_in_words(schema.target, run.found['recipe'].get('noise') or '')}, "
        f"from {used} and {rows}.",
        *_task_hint(schema.target),
        *(f"Read as {kind}: {listing(names, 12)}." for kind, names in kinds.items()),
        *(f"Not used: {name!r} {reason}." for name, reason in schema.left_out.items()),
        *(f"Note: {warning}" for warning in run.warnings),
        familiarity_in_words(run),
    ]


def scores_in_words(run: TableRun) -> list[str]:
    """The few numbers that matter, and what they mean."""
    found, target = run.found, run.schema.target
    scores = found["scores"]
    # Runs of earlier versions always had test rows.
    rows = found.get("scored_rows", found["test_rows"])
    tested = f"on {plural(rows, 'test row')}"
    if not found["test_rows"]:
        tested = f"on {plural(rows, 'row')}, each predicted by a model that had not seen it"
    if target.classes:
        trivial, ece = found["trivial"]["error"], scores["ece"]
        return [
            f"Error {scores['error']:.1%} {tested}; "
            f"always predicting the most frequent class: {trivial:.1%}.",
            f"Negative log-likelihood (MNLL) {scores['mnll']:.3f} per row: 0 is certain and right, "
            f"equal probabilities give {math.log(len(target.classes)):.3f}.",
            f"Expected calibration error (ECE) {ece:.3f}: the probability of the predicted class "
            f"is off by {100 * ece:.1f} percentage points on average.",
        ]
    rmse, trivial = scores["rmse"], found["trivial"]["rmse"]
    explained = f"{1 - (rmse / trivial) ** 2:.0%} of the variance explained"
    return [
        f"RMSE {readably(rmse)} {tested}; always predicting the mean: {readably(trivial)} "
        f"({explained if rmse <= trivial else 'better than the model'}).",
        f"Negative log-likelihood (MNLL) {scores['mnll']:.3f} per row; lower is better.",
        f"The 95 % intervals contain {found['coverage']['0.95']:.1%} of these rows"
        + _kind_of_interval(found),
    ]


def _kind_of_interval(found: Mapping[str, Any]) -> str:
    """Whether the intervals that were judged are conformal, as the end of a sentence."""
    if not found.get("conformal"):
        return "."
    if found["test_rows"]:
        return " (conformal)."
    return (
        " (before it is made conformal: the rows that calibrate an interval cannot judge it, and "
        "no others were kept)."
    )


MIN_UNLIKE_FRACTION = 0.05
"""The fraction of rows that must be unlike the training data in a column for it to be named."""


def unlike_in_words(counts: Mapping[str, int], rows: int, dates: Collection[str]) -> list[str]:
    """A sentence for each column in which many rows are unlike the training data.

    Args:
        counts: So many rows are unlike the training data in this column.
        rows: The number of all rows.
        dates: The columns that hold dates: new rows often are later than those of training.
    """
    many = {name: count for name, count in counts.items() if count > MIN_UNLIKE_FRACTION * rows}
    return [
        f"{plural(count, 'row')} of {rows} are unlike the training data in {name!r}: "
        + _question(count > 0.5 * rows, name in dates)
        for name, count in sorted(many.items(), key=lambda item: -item[1])
    ]


def _question(most: bool, date: bool) -> str:
    """What may be the matter with a column, as the end of a sentence."""
    if date:
        return "is it complete, or are its dates earlier or later than in the training rows?"
    return "is it complete, and in the same units?" if most else "has it changed?"


def infinite_in_words(run: TableRun, levels: Iterable[float]) -> list[str]:
    """A sentence where held-out rows are too few for intervals of some levels.

    Args:
        run: What predicts.
        levels: The levels of its intervals.
    """
    if not (needed := infinite_levels(run.folds, levels)):
        return []
    held = sum(len(fold.scores) for fold in run.folds)
    each = [f"{100 * level:.10g} % (it takes {rows})" for level, rows in needed.items()]
    return [
        f"{plural(held, 'held-out row')} are too few for a conformal interval of "
        f"{' and of '.join(each)}, so its ends are infinite: no narrower one is guaranteed. "
        "Ask for a lower level, or fit more rows."
    ]


def familiarity_in_words(run: TableRun) -> str:
    """What a flag of rows unlike the training data promises."""
    if run.familiarity is None:
        return "Rows with a large epistemic uncertainty are flagged as unlike the training data."
    known = run.familiarity
    few = (
        f" ({known.rows} training rows are too few for a rate of {FALSE_ALARM_RATE:.0%})"
        if known.rate > FALSE_ALARM_RATE
        else ""
    )
    together = any(
        math.isfinite(limit) for part, limit in known.thresholds.items() if part != COLUMNS
    )
    what = "unusual values, missing cells or combinations of values"
    return (
        f"Rows with {what if together else ALONE} are flagged as unlike the training data; "
        f"about {known.rate:.1%} of ordinary rows are flagged by mistake{few}."
    )


ALONE = "unusual values or missing cells (combinations of values would need more training rows)"


def verdict_in_words(run: TableRun) -> list[str]:
    """Whether to rely on the model; nothing where a run has no tests."""
    checks = [Check(**check) for check in run.found.get("checks") or ()]
    tested = bool(run.found.get("test_rows"))
    if checks:
        return [verdict(checks) + ("" if tested else f" {NOT_SPARED}")]
    return [] if tested else ["Whether to rely on it is not known: no rows were kept to test it."]


NOT_SPARED = (
    "This is said by rows held out in turn, which also chose the kind of net and its steps: "
    "rows kept by --test-share would judge more strictly."
)


def start_in_words(start: Mapping[str, Any]) -> list[str]:
    """What the initializer left, layer by layer."""
    sds = [layer["sd"] for layer in start["layers"] if layer["sd"] is not None]
    sentences = [
        f"{start['initializer']} placed the posterior of {len(start['layers'])} layers "
        f"in {start['seconds']:.2f} s, before any training step."
    ]
    if sds:
        sentences.append(
            "The signal keeps its size on the way: pre-activations have standard deviations "
            f"between {min(sds):.2g} and {max(sds):.2g}."
        )
    if start["expected_nll"] is not None:
        sentences.append(
            f"The objective began with {start['expected_nll']:.4g} nats of misfit on all rows "
            f"and {start['kl']:.4g} nats of divergence from the prior."
        )
    return sentences + [f"Note: {warning}" for warning in start["warnings"]]


def learning_in_words(found: Mapping[str, Any]) -> str:
    """How the net was trained, and when that ended."""
    recipe = found["recipe"]
    members = recipe.get("members", 1)
    net = recipe["model"] if members == 1 else f"{recipe['model']} with {members} members"
    rates = (
        "step sizes that follow from the net"
        if recipe["lr"] is None
        else f"learning rate {recipe['lr']:g} falling to zero"
    )
    return (
        f"{net}, {recipe['steps']} steps at most of {recipe['samples']} samples and "
        f"{recipe['batch_size']} rows, {rates}; "
        f"seed {recipe['seed']}; {found['seconds']:.0f} s in all. "
        f"The parameters of step {found['best_step']} were kept: {found['stopped']}."
    )
