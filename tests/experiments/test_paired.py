"""Intervals of paired differences: exact numbers, and how often they are wrong."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from headstart.experiments.paired import PairedDifference, paired_difference

Values = dict[tuple[int, int], float]


def by_split(values: list[float]) -> Values:
    return {(k, k): value for k, value in enumerate(values)}


def test_on_a_fixed_test_set_it_is_the_paired_t_interval() -> None:
    ours, theirs = [1.1, 2.2, 3.6, 4.0], [1.0, 2.0, 3.0, 4.1]
    found = paired_difference(by_split(ours), by_split(theirs))
    assert found is not None
    interval = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert found.half_width is not None
    assert found.mean - found.half_width == pytest.approx(interval.low, rel=1e-12)
    assert found.mean + found.half_width == pytest.approx(interval.high, rel=1e-12)


def test_resampled_splits_widen_it_by_nadeau_and_bengio() -> None:
    """Differences 0.1, 0.2, 0.6: mean 0.3, s² = 0.07, t₂ = 4.30265, variance (1/3 + 1/9) s²."""
    ours, theirs = by_split([1.1, 2.2, 3.6]), {**by_split([1.0, 2.0, 3.0]), (3, 3): 9.0}
    found = paired_difference(ours, theirs, test_to_train=1 / 9)
    assert found is not None
    assert found.mean == pytest.approx(0.3)
    assert found.half_width == pytest.approx(4.302652729911275 * (0.07 * 4 / 9) ** 0.5, rel=1e-9)
    assert found.pairs == 3


def test_a_single_pair_has_a_number_and_no_interval() -> None:
    assert paired_difference({(0, 0): 1.0}, {(0, 0): 0.5}) == PairedDifference(0.5)
    assert paired_difference({(0, 0): 1.0}, {(1, 1): 0.5}) is None


def test_the_side_of_the_metric_decides() -> None:
    """The ends of the interval belong to it."""
    higher = PairedDifference(0.2, 0.1, 4)
    assert (higher.verdict(1), higher.verdict(-1)) == ("ahead", "behind")
    assert PairedDifference(0.1, 0.1, 4).verdict(1) == "level"
    assert PairedDifference(0.0, 0.0, 4).verdict(-1) == "level"
    assert PairedDifference(9.0).verdict(1) is None


def rate_of_verdicts(ours: np.ndarray, theirs: np.ndarray, test_to_train: float) -> float:
    """How often two equal learners are told apart; values are (repetitions, splits)."""
    found = [
        paired_difference(by_split(list(a)), by_split(list(b)), test_to_train)
        for a, b in zip(ours, theirs, strict=True)
    ]
    return float(np.mean([one is not None and one.verdict(-1) != "level" for one in found]))


def errors_on_resampled_splits(rng: np.random.Generator, splits: int) -> tuple[float, ...]:
    """Test errors of two equal learners: each regresses on one of two exchangeable inputs."""
    n, test = 200, 20
    x = rng.standard_normal((n, 2))
    y = x.sum(1) + rng.standard_normal(n)
    losses = []
    for _ in range(splits):
        order = rng.permutation(n)
        held, seen = order[:test], order[test:]
        slopes = (x[seen] * y[seen, None]).sum(0) / (x[seen] ** 2).sum(0)
        losses.append(((y[held, None] - slopes * x[held]) ** 2).mean(0))
    return tuple(np.array(losses).T)


def test_equal_learners_are_told_apart_in_about_five_of_a_hundred_resamplings() -> None:
    rng = np.random.default_rng(0)
    pairs = [errors_on_resampled_splits(rng, splits=10) for _ in range(1000)]
    ours, theirs = (np.array(part) for part in zip(*pairs, strict=True))
    assert 0.03 < rate_of_verdicts(ours, theirs, 20 / 180) < 0.08
    # Without the correction the same learners differ far too often.
    assert rate_of_verdicts(ours, theirs, 0.0) > 0.15


def test_equal_seeds_on_a_fixed_test_set_are_told_apart_in_five_of_a_hundred() -> None:
    rng = np.random.default_rng(1)
    common = rng.standard_normal((2000, 5))
    ours, theirs = (common + 0.3 * rng.standard_normal((2000, 5)) for _ in range(2))
    assert rate_of_verdicts(ours, theirs, 0.0) == pytest.approx(0.05, abs=3 * 0.0049)
