"""What has changed since the training: columns that drifted, strange rows, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats

from headstart.errors import HeadstartError
from headstart.tabular.calibration import LEVELS
from headstart.tabular.cells import labels_of
from headstart.tabular.checks import Check, check_coverage, check_probabilities
from headstart.tabular.columns import Matrix
from headstart.tabular.explain import known_profiles
from headstart.tabular.run import TableRun

MAX_ERROR_RATE = 0.05
"""How often anything is said to have drifted where nothing has, all columns together."""
MIN_EXPECTED = 5
"""New rows that a bin is expected to hold: a chi-square test needs as many."""
MIN_MONITORED = 20


@dataclass(frozen=True)
class Drift:
    """Whether a column has changed.

    Args:
        name: The column.
        distance: The total variation distance of new rows from training rows, between 0 and 1.
        p_value: Of a chi-square test that both have the same law, corrected for the number of
            columns (Holm).
        drifted: Whether it is below 5 %.
    """

    name: str
    distance: float
    p_value: float
    drifted: bool


@dataclass(frozen=True)
class Monitoring:
    """What has changed since the training.

    Args:
        rows: How many rows were compared.
        drifts: Each column, the one that changed most first.
        unlike: How many rows are unlike the training data.
        expected_unlike: How many would be if nothing had changed.
        too_many: Whether that is more than chance allows, at 1 %.
        labeled: How many rows have a label.
        scores: Their scores, by metric.
        checks: Tests of the calibration on them.
        new_classes: Labels that are no class of the model, and how many rows have each.
    """

    rows: int
    drifts: tuple[Drift, ...]
    unlike: int
    expected_unlike: float
    too_many: bool
    labeled: int
    scores: dict[str, float]
    checks: tuple[Check, ...]
    new_classes: dict[str, int] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        """Whether anything has."""
        drifted = any(drift.drifted for drift in self.drifts) or bool(self.new_classes)
        return drifted or self.too_many or not all(check.passed for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            **vars(self),
            "drifts": [vars(drift) for drift in self.drifts],
            "checks": [vars(check) for check in self.checks],
            "changed": self.changed,
        }


def monitor(run: TableRun, frame: pd.DataFrame) -> Monitoring:
    """Compare rows with those that a run was trained on.

    Args:
        run: What predicts.
        frame: The new rows, with labels where they have arrived.
    """
    profiles = known_profiles(run)
    if len(frame) < MIN_MONITORED:
        raise HeadstartError(
            f"{len(frame)} rows are too few to tell what has changed; take at least "
            f"{MIN_MONITORED}."
        )
    strange = run.compare(frame)
    assert strange is not None
    assert run.familiarity is not None
    compared = [
        compare_bins(profile.known_bins, profile.bins(column.read(frame[column.name])))
        for column, profile in zip(run.schema.columns, profiles, strict=True)
    ]
    corrected = holm([p for _, p in compared])
    drifts = [
        Drift(profile.name, distance, p, p < MAX_ERROR_RATE)
        for profile, (distance, _), p in zip(profiles, compared, corrected, strict=True)
    ]
    unlike, rate = int(strange.flags.sum()), run.familiarity.rate
    surprise = surprise_of_count(unlike, len(frame), rate, run.familiarity.rows)
    labeled, scores, checks = _labeled_scores(run, frame)
    return Monitoring(
        len(frame),
        tuple(sorted(drifts, key=lambda drift: (drift.p_value, -drift.distance))),
        unlike,
        rate * len(frame),
        bool(surprise < 0.01),
        labeled,
        scores,
        tuple(checks),
        _new_classes(run, frame),
    )


def surprise_of_count(unlike: int, rows: int, rate: float, known: int) -> float:
    """The probability of so many unlike rows or more where nothing has changed.

    Thresholds that k = rate · (n + 1) of n training rows have set pass new rows at a rate that is
    itself uncertain, Beta(k, n + 1 − k): the count is beta-binomial. A binomial law at the rate
    would call chance a change where new rows are many and training rows few.

    Args:
        unlike: How many of the new rows are unlike the training data.
        rows: How many new rows there are.
        rate: The stated rate.
        known: n.

    Example:
        >>> round(surprise_of_count(20, 1000, 3 / 301, 300), 2)
        0.09
        >>> round(float(stats.binom(1000, 3 / 301).sf(19)), 3)
        0.003
    """
    set_by = rate * (known + 1)
    return float(stats.betabinom(rows, set_by, known + 1 - set_by).sf(unlike - 1))


def compare_bins(known: Matrix, new: Matrix) -> tuple[float, float]:
    """The total variation distance of two histograms, and the p-value of their homogeneity.

    Neighboring bins that few new rows are expected in are taken together.

    Example:
        >>> distance, p = compare_bins(np.array([50, 50]), np.array([10, 40]))
        >>> round(distance, 3), p < 0.01
        (0.3, True)
    """
    distance = 0.5 * float(np.abs(known / known.sum() - new / new.sum()).sum())
    merged = _merged(known, new)
    if merged.shape[1] < 2:
        return distance, 1.0
    return distance, float(stats.chi2_contingency(merged, correction=False).pvalue)


def _merged(known: Matrix, new: Matrix) -> Matrix:
    """Both histograms with at least so many new rows expected in every bin."""
    pooled = (known + new) * (new.sum() / (known.sum() + new.sum()))
    bins: list[list[float]] = []
    expected = 0.0
    for place in range(len(known)):
        if not bins or expected >= MIN_EXPECTED:
            bins.append([0.0, 0.0])
            expected = 0.0
        bins[-1][0] += known[place]
        bins[-1][1] += new[place]
        expected += pooled[place]
    if len(bins) > 1 and expected < MIN_EXPECTED:
        last = bins.pop()
        bins[-1] = [bins[-1][0] + last[0], bins[-1][1] + last[1]]
    return np.array(bins).T


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: below α with a probability of at most α, all tests together.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values)
    factors = np.arange(len(p_values), 0, -1)
    raised = np.maximum.accumulate(np.array(p_values)[order] * factors)
    corrected = np.empty(len(p_values))
    corrected[order] = raised.clip(max=1.0)
    return corrected.tolist()


def labeled_rows(run: TableRun, frame: pd.DataFrame) -> tuple[pd.DataFrame, torch.Tensor]:
    """The rows whose label is known, and the labels."""
    target = run.schema.target
    if target.name not in frame.columns:
        return frame.iloc[:0], torch.zeros(0)
    y = torch.tensor(target.encode(frame[target.name]))
    known = (y >= 0) if target.classes else y.isfinite()
    return frame[known.numpy()], y[known]


def _new_classes(run: TableRun, frame: pd.DataFrame) -> dict[str, int]:
    """Labels that are no class of the model, the most frequent first."""
    target = run.schema.target
    if not target.classes or target.name not in frame.columns:
        return {}
    labels = labels_of(frame[target.name].dropna())
    return {
        str(name): int(count)
        for name, count in labels.value_counts().items()
        if name not in target.classes
    }


def _labeled_scores(
    run: TableRun, frame: pd.DataFrame
) -> tuple[int, dict[str, float], list[Check]]:
    rows, y = labeled_rows(run, frame)
    if not len(rows):
        return 0, {}, []
    pred = run.predict(rows)
    scores = pred.evaluate(y)
    if run.schema.target.classes:
        best = pred.probs.max(1)
        right = (best.indices == y).double().numpy()
        return len(y), scores, [check_probabilities(best.values.numpy(), right)]
    low, high = run.intervals(rows, pred, LEVELS)[LEVELS[-1]]
    inside = ((y >= low) & (y <= high)).double().numpy()
    scores["coverage_95"] = float(inside.mean())
    counts = run.likelihood.has_counts
    return len(y), scores, [check_coverage(inside, rows="labeled rows", counts=counts)]
