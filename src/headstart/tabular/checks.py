"""Whether to rely on a model: tests on rows that it has not seen, each of which can fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from headstart.reporting.text import plural
from headstart.tabular.columns import Matrix

MIN_CHECKED_ROWS = 30
"""Test rows below which nothing is said."""
SURE = 0.99
"""The confidence with which a test must fail to count."""

MAX_P_SKILL = 0.05
"""The p-value below which a model is better than always giving the same answer."""
USES = {
    "intervals": "its intervals",
    "probabilities": "its probabilities",
    "segments": "its intervals in every part of the rows",
}
"""What a test that has passed allows."""


@dataclass(frozen=True)
class Check:
    """A test of the model.

    Args:
        name: Of what: `rows`, `skill`, `leaks`, `baselines`, `intervals`, `segments` or
            `probabilities`.
        passed: Whether it passed.
        sentence: What was found, in words.
    """

    name: str
    passed: bool
    sentence: str


def check_count(rows: int, what: str = "") -> Check:
    """Whether there are enough rows to test on."""
    enough = rows >= MIN_CHECKED_ROWS
    said = (f"{rows} {what}" if what else f"{plural(rows, 'row')} to test on") + (
        "" if enough else f", fewer than {MIN_CHECKED_ROWS}"
    )
    return Check("rows", enough, said)


def check_skill(ours: Matrix, trivial: Matrix, name: str) -> Check:
    """Whether the loss is smaller than that of always giving the same answer, by a paired test."""
    better = ours.mean() < trivial.mean()
    sure = better and _p_value(trivial - ours) < MAX_P_SKILL
    said = f"it is better than {name}" if sure else f"it is not clearly better than {name}"
    return Check("skill", bool(sure), said)


def check_baselines(ours: Matrix, others: Mapping[str, Matrix]) -> Check:
    """Whether no simple model has a loss that is clearly smaller."""
    behind = [
        name
        for name, loss in others.items()
        if loss.mean() < ours.mean() and _p_value(ours - loss) < 1 - SURE
    ]
    said = (
        f"{' and '.join(behind)} predict{'s' if len(behind) == 1 else ''} these rows better"
        if behind
        else "no simpler model predicts these rows clearly better"
    )
    return Check("baselines", not behind, said)


def check_leaks(warnings: Sequence[str]) -> Check:
    """Whether no column is the target in disguise, and no row occurs on both sides."""
    found = [each for each in warnings if "--ignore" in each or "occur more than once" in each]
    said = found[0].rstrip(".") if found else "no column was found to be the target in disguise"
    return Check("leaks", not found, said[:1].lower() + said[1:])


def check_coverage(
    inside: Matrix, level: float = 0.95, rows: str = "test rows", counts: bool = False
) -> Check:
    """Whether as many labels lie in their intervals as promised, within the binomial interval.

    Intervals of counts promise at least as many: one of whole numbers that holds 95 % there is not.
    """
    good = _binomial_holds(int(inside.sum()), len(inside), level, SURE, counts)
    said = f"the {level:.0%} interval holds {inside.mean():.1%} of the {rows}"
    if not good:
        said += ": it is too " + ("wide" if inside.mean() > level else "narrow")
    return Check("intervals", good, said)


def check_segments(
    segments: Sequence[Mapping[str, Any]], level: float = 0.95, counts: bool = False
) -> Check:
    """Whether that holds in every part of the rows, all parts together at the confidence."""
    each = 1 - (1 - SURE) / max(1, len(segments))
    bad = [
        part
        for part in segments
        if not _binomial_holds(
            round(part["coverage"] * part["rows"]), part["rows"], level, each, counts
        )
    ]
    said = (
        f"among rows {bad[0]['name']} the {level:.0%} interval holds {bad[0]['coverage']:.1%}"
        if bad
        else f"the {level:.0%} interval holds in every part of the rows that was looked at"
    )
    return Check("segments", not bad, said)


def check_probabilities(confidence: Matrix, right: Matrix) -> Check:
    """Whether as many predictions are right as their probabilities say, on average."""
    spread = np.sqrt(np.mean(confidence * (1 - confidence)) / len(right)) + 0.5 / len(right)
    limit = stats.norm.ppf(0.5 + SURE / 2) * spread
    gap = float(confidence.mean() - right.mean())
    said = f"it is {confidence.mean():.1%} sure on average and right in {right.mean():.1%}"
    return Check("probabilities", bool(abs(gap) <= limit), said)


def verdict(checks: Sequence[Check]) -> str:
    """What the model may be relied on for, in a sentence.

    Example:
        >>> verdict([Check("skill", False, "it is not clearly better than always the mean")])
        'Do not rely on it, because it is not clearly better than always the mean.'
    """
    failed = {check.name: check.sentence for check in checks if not check.passed}
    fatal = [failed[name] for name in ("leaks", "skill") if name in failed]
    if "rows" in failed:
        return (
            f"Do not rely on it yet, because there are only {'; '.join([failed['rows'], *fatal])}."
        )
    if fatal:
        return f"Do not rely on it, because {'; and '.join(fatal)}."
    but = f" But note: {'; '.join(failed.values())}." if failed else ""
    return f"Rely on it for {_and(_uses_of(checks))}, for rows like these.{but}"


def _uses_of(checks: Sequence[Check]) -> list[str]:
    passed = {check.name: check.passed for check in checks}
    if not passed.get("intervals", True):
        passed["segments"] = False
    return ["its predictions", *(USES[name] for name in USES if passed.get(name))]


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _p_value(differences: Matrix) -> float:
    """One-sided, of a mean above 0."""
    if np.std(differences) == 0:
        return 0.0 if differences.mean() > 0 else 1.0
    return float(stats.ttest_1samp(differences, 0, alternative="greater").pvalue)


def _binomial_holds(count: int, rows: int, level: float, sure: float, at_least: bool) -> bool:
    low, high = stats.binom(rows, level).interval(sure)
    return bool(low <= count and (at_least or count <= high))
