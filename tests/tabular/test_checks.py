"""Tests behind the verdict: each can fail, and the verdict says for what."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.tabular import checks
from headstart.tabular.checks import Check, verdict

RNG = np.random.default_rng(0)


def test_skill_needs_a_clear_difference() -> None:
    loss = RNG.gamma(1, 1, 200)
    assert checks.check_skill(loss, loss + RNG.gamma(1, 1, 200), "always the mean").passed
    assert not checks.check_skill(loss, loss[::-1], "always the mean").passed
    assert not checks.check_skill(loss + 1, loss, "always the mean").passed


def test_simpler_models_that_are_better_are_named() -> None:
    loss = RNG.gamma(1, 1, 200) + 1
    found = checks.check_baselines(loss, {"a linear model": loss - 0.5, "boosting": loss + 0.1})
    assert not found.passed
    assert found.sentence == "a linear model predicts these rows better"
    assert checks.check_baselines(loss, {"a linear model": loss + 0.1}).passed


@pytest.mark.parametrize(
    ("inside", "passed", "words"),
    [(95, True, "95.0%"), (85, False, "too narrow"), (97, True, "97.0%"), (100, False, "wide")],
)
def test_coverage_must_be_as_promised(inside: int, passed: bool, words: str) -> None:
    """Of 200 rows between 182 and 197 may be inside: the binomial interval of 99 %, exactly."""
    labels = np.repeat([1.0, 0.0], [2 * inside, 200 - 2 * inside])
    found = checks.check_coverage(labels)
    assert found.passed is passed
    assert words in found.sentence


def test_counts_may_lie_inside_more_often_than_promised() -> None:
    """Of Poisson's counts with the rate ½ the interval of 95 % is 0 to 2, and holds 98.6 %."""
    inside = (np.random.default_rng(0).poisson(0.5, 2000) <= 2).astype(float)
    assert not checks.check_coverage(inside).passed
    assert checks.check_coverage(inside, counts=True).passed
    assert not checks.check_coverage(inside[:100] * 0.5, counts=True).passed
    parts = [{"name": "at the top", "rows": 500, "coverage": 0.99}]
    assert not checks.check_segments(parts).passed
    assert checks.check_segments(parts, counts=True).passed


def test_one_bad_part_fails_the_parts() -> None:
    parts = [{"name": f"in part {k}", "rows": 100, "coverage": 0.95} for k in range(4)]
    assert checks.check_segments(parts).passed
    found = checks.check_segments([*parts, {"name": "at the top", "rows": 100, "coverage": 0.79}])
    assert not found.passed
    assert "at the top" in found.sentence


def test_overconfidence_is_found() -> None:
    right = (np.arange(200) % 10 < 7).astype(float)
    assert checks.check_probabilities(np.full(200, 0.7), right).passed
    assert not checks.check_probabilities(np.full(200, 0.95), right).passed


def test_leaks_and_copies_are_found_among_warnings() -> None:
    assert checks.check_leaks(["3 rows without a known 'y' were left out."]).passed
    assert not checks.check_leaks(
        ["The column 'b' is the target: leave it out with --ignore."]
    ).passed


def test_the_verdict_says_what_for_and_why_not() -> None:
    good = [Check("rows", True, ""), Check("skill", True, ""), Check("intervals", True, "")]
    assert verdict(good) == "Rely on it for its predictions and its intervals, for rows like these."
    doubtful = [*good[:2], Check("intervals", False, "too narrow")]
    assert verdict(doubtful).endswith("for rows like these. But note: too narrow.")
    wide = [*doubtful, Check("segments", True, "")]
    assert "every part" not in verdict(wide)
    few = [checks.check_count(9), Check("skill", False, "no better")]
    assert verdict(few).startswith("Do not rely on it yet, because there are only 9 rows")
    leaking = [*good, Check("leaks", False, "the column 'b' is the target")]
    assert verdict(leaking) == "Do not rely on it, because the column 'b' is the target."
