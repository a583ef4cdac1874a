"""Smoothed means by level: exact, out of fold, and the same after saving."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from headstart.errors import HeadstartError
from headstart.training.level_means import LevelFolds, LevelMeans, targets_of
from headstart.training.random_effects import shrinkage, within_slopes


def levels_and_labels(rows: int, levels: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Levels of one column, some unknown, and labels with an effect of each level."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(-1, levels, (rows, 1))
    return keys, np.append(rng.normal(size=levels), 0.0)[keys[:, 0]] + rng.normal(size=rows)


def slowly(
    key: np.ndarray, y: np.ndarray, weights: np.ndarray, levels: int
) -> tuple[float, list[float]]:
    """κ and the posterior means, row by row and level by level."""
    overall = sum(weights * y) / sum(weights)
    rows = [[i for i in range(len(y)) if key[i] == level] for level in range(levels)]
    count = [sum(weights[i] for i in of) for of in rows]
    mean = [
        sum(weights[i] * y[i] for i in of) / n if of else 0.0
        for of, n in zip(rows, count, strict=True)
    ]
    total, seen = sum(count), sum(1 for n in count if n > 0)
    grand = sum(n * m for n, m in zip(count, mean, strict=True)) / total
    inner = sum(weights[i] * (y[i] - m) ** 2 for of, m in zip(rows, mean, strict=True) for i in of)
    noise = inner / (total - seen)
    between = sum(n * (m - grand) ** 2 for n, m in zip(count, mean, strict=True))
    effect = (between - (seen - 1) * noise) / (total - sum(n * n for n in count) / total)
    kappa = noise / effect
    each = zip(count, mean, strict=True)
    return kappa, [(n * m + kappa * overall) / (n + kappa) for n, m in each]


@pytest.mark.parametrize("weighted", [False, True])
def test_the_posterior_means_are_those_of_the_equation(weighted: bool) -> None:
    keys, y = levels_and_labels(200, 20)
    weights = np.random.default_rng(1).uniform(0.5, 2, 200) if weighted else np.ones(200)
    # A level that no row has.
    kappa, means = slowly(keys[:, 0], y, weights, 21)
    found = LevelMeans.fit(keys, targets_of(y, "squared_error"), "squared_error", [21], weights)
    np.testing.assert_allclose(found.means[:, 0], means, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.overall, [[weights @ y / weights.sum()]], rtol=0, atol=1e-12)
    rows = np.bincount(keys[keys >= 0], weights[keys[:, 0] >= 0], 21)
    sums = np.bincount(keys[keys >= 0], (weights * y)[keys[:, 0] >= 0], 21)
    plain = (sums / np.maximum(rows, 1e-300))[:, None]
    inner = (weights * (y - plain[keys[:, 0], 0]) ** 2)[keys[:, 0] >= 0].sum()
    np.testing.assert_allclose(shrinkage(rows, plain, np.array([inner])), [kappa], rtol=1e-9)


def test_unknown_levels_have_the_overall_mean() -> None:
    keys, y = levels_and_labels(200, 20)
    found = LevelMeans.fit(keys, targets_of(y, "squared_error"), "squared_error", [20])
    odd = np.array([[-1], [20], [7]])
    np.testing.assert_array_equal(found.of_levels(odd)[:2, 0], np.tile(found.overall, (2, 1)))
    np.testing.assert_array_equal(found.features(odd)[:2], np.zeros((2, 1)))
    assert found.features(odd)[2, 0] == found.means[7, 0] - found.overall[0, 0] != 0


def test_frequencies_of_classes_add_up_and_become_log_odds() -> None:
    keys, y = levels_and_labels(600, 30)
    classes = np.digitize(y, [-0.5, 0.5])
    found = LevelMeans.fit(keys, targets_of(classes, "log_loss", 3), "log_loss", [30])
    np.testing.assert_allclose(found.means.sum(1), 1, rtol=0, atol=1e-12)
    assert (found.means > 0).all()
    logs = np.log(found.means) - np.log(found.overall)
    expected = (logs[:, 1:] - logs[:, :1])[keys[:, 0]]
    expected[keys[:, 0] < 0] = 0
    np.testing.assert_allclose(found.features(keys), expected, rtol=0, atol=1e-12)
    assert found.outputs == 2
    two = LevelMeans.fit(keys, targets_of(classes % 2, "log_loss", 2), "log_loss", [30])
    assert two.features(keys).shape == (600, 1)


def test_counts_become_logarithms() -> None:
    keys, y = levels_and_labels(400, 10)
    counts = np.random.default_rng(0).poisson(np.exp(y))
    found = LevelMeans.fit(keys, targets_of(counts, "poisson"), "poisson", [10])
    expected = np.log(found.of_levels(keys)[:, 0] / found.overall)
    np.testing.assert_allclose(found.features(keys), expected, rtol=0, atol=1e-12)


def test_several_columns_and_targets_stand_side_by_side() -> None:
    (first, y), (second, z) = levels_and_labels(300, 9), levels_and_labels(300, 14, seed=1)
    keys, targets = np.hstack([first, second]), np.stack([y, z, y + z], 1)
    found = LevelMeans.fit(keys, targets, "squared_error", [9, 14])
    assert found.features(keys).shape == (300, 6)
    for column, (key, count) in enumerate(((first, 9), (second, 14))):
        for place, label in enumerate(targets.T):
            alone = LevelMeans.fit(key, label[:, None], "squared_error", [count])
            both = found.features(keys)[:, 3 * column + place]
            np.testing.assert_allclose(both, alone.features(key)[:, 0], rtol=0, atol=1e-12)


def test_other_columns_are_taken_off_by_their_slopes() -> None:
    keys, y = levels_and_labels(400, 60)
    x = np.random.default_rng(2).normal(size=(400, 2))
    y = y + 2 * x[:, 0]
    targets = targets_of(y, "squared_error")
    rest = targets - x @ within_slopes(keys[:, 0], x, targets, np.ones(400))
    found = LevelMeans.fit(keys, targets, "squared_error", [60], x=x)
    expected = LevelMeans.fit(keys, rest, "squared_error", [60])
    np.testing.assert_array_equal(found.means, expected.means)
    # Nearer to the effects, which are the first draws of the table.
    effects = np.random.default_rng(0)
    effects.integers(-1, 60, (400, 1))
    truth = effects.normal(size=60)
    plain = LevelMeans.fit(keys, targets, "squared_error", [60])
    errors = [
        np.square(each.means[:, 0] - each.overall[0] - truth).mean() for each in (found, plain)
    ]
    assert errors[0] < 0.5 * errors[1]
    # Counts and classes are taken as they are.
    counts = np.abs(y).round()
    fold_of = np.arange(400) % 5
    one, other = (LevelFolds(keys, counts, "poisson", fold_of, x=each) for each in (x, None))
    np.testing.assert_array_equal(one.means.means, other.means.means)


@pytest.mark.parametrize("columns", [0, 2])
def test_a_row_does_not_see_its_own_fold(columns: int) -> None:
    keys, y = levels_and_labels(300, 12)
    x = np.random.default_rng(3).normal(size=(300, columns)) if columns else None
    y = y if x is None else y + x @ [1.0, -2.0]
    fold_of = np.arange(300) % 5
    folds = LevelFolds(keys, y, "squared_error", fold_of, x=x)
    everyone = np.full(300, True)
    held_out = folds.held_out(everyone) / folds.means.factors[0, 0]
    for fold in range(5):
        known = fold_of != fold
        seen = None if x is None else x[known]
        others = LevelMeans.fit(keys[known], y[known, None], "squared_error", [12], x=seen)
        expected = others.features(keys[~known])
        np.testing.assert_allclose(held_out[~known], expected, rtol=0, atol=1e-12)
    # A common factor apart, other labels in a fold leave its features as they are.
    changed_y = np.where(fold_of == 2, 3 - 2 * y, y)
    other = LevelFolds(keys, changed_y, "squared_error", fold_of, x=x)
    again = other.held_out(everyone) / other.means.factors[0, 0]
    np.testing.assert_allclose(again[fold_of == 2], held_out[fold_of == 2], rtol=0, atol=1e-12)
    # And where that fold is not known, those of all rows.
    known = fold_of != 2
    seen, changed = (each.held_out(known) / each.means.factors[0, 0] for each in (folds, other))
    np.testing.assert_allclose(changed, seen, rtol=0, atol=1e-12)
    np.testing.assert_allclose(seen[~known], held_out[~known], rtol=0, atol=1e-12)
    assert np.abs(seen[known] - held_out[known]).max() > 0.01


def test_features_of_training_rows_have_unit_size() -> None:
    keys, y = levels_and_labels(1000, 100)
    folds = LevelFolds(keys, y, "squared_error", np.arange(1000) % 5)
    held_out = folds.held_out(np.full(1000, True))
    assert float(np.square(held_out).mean()) == pytest.approx(1, abs=0.01)


def test_a_random_target_leaks_into_no_feature_out_of_fold() -> None:
    """With 300 levels; of 12 tables those where the levels seem to differ by chance."""
    own, seen = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        keys, y = rng.integers(0, 300, (2000, 1)), rng.normal(size=2000)
        folds = LevelFolds(keys, y, "squared_error", rng.permutation(2000) % 5)
        held_out, in_fold = folds.held_out(np.full(2000, True)), folds.means.features(keys)
        if held_out.std() > 0:
            own.append(np.corrcoef(held_out[:, 0], y)[0, 1])
        if in_fold.std() > 0:
            seen.append(np.corrcoef(in_fold[:, 0], y)[0, 1])
    assert len(own) >= 8
    assert len(seen) >= 4
    # Four standard errors: of one table 1/√2000.
    assert max(np.abs(own)) < 4 / math.sqrt(2000)
    assert abs(np.mean(own)) < 4 / math.sqrt(2000 * len(own))
    assert min(seen) > 0.3


def test_levels_that_no_two_folds_share_are_no_feature_of_new_rows() -> None:
    keys = np.repeat(np.arange(40), 5)[:, None]
    y = np.random.default_rng(0).normal(size=40)[keys[:, 0]]
    folds = LevelFolds(keys, y, "squared_error", keys[:, 0] % 5)
    assert not folds.held_out(np.full(200, True)).any()
    assert not folds.means.features(keys).any()


def test_one_fold_or_no_weight_is_no_feature() -> None:
    keys, y = levels_and_labels(50, 5)
    for fold_of, weights in ((np.zeros(50), None), (np.arange(50) % 2, np.arange(50) % 2 * 1.0)):
        folds = LevelFolds(keys, y, "poisson", fold_of, weights=weights)
        assert np.isfinite(folds.held_out(np.full(50, True))).all()
        assert np.isfinite(folds.means.features(keys)).all()


def test_saved_means_are_the_same_and_damaged_ones_refused(tmp_path: Path) -> None:
    keys, y = levels_and_labels(100, 10)
    means = LevelFolds(keys, y, "squared_error", np.arange(100) % 5).means
    means.save(tmp_path / "levels")
    again = LevelMeans.load(tmp_path / "levels")
    np.testing.assert_array_equal(again.features(keys), means.features(keys))
    assert again.columns == 1
    options = vars(means)
    for name, damaged in (
        ("means", np.full_like(means.means, np.nan)),
        ("means", means.means[1:]),
        ("starts", np.array([0, 7], np.int32)),
        ("starts", np.array([5, 10], np.int32)),
        ("overall", np.zeros((2, 1))),
        ("link", np.array([3], np.int32)),
        ("factors", np.ones((2, 1))),
    ):
        LevelMeans(**{**options, name: damaged}).save(tmp_path / "bad")
        with pytest.raises(HeadstartError, match="holds no means of levels"):
            LevelMeans.load(tmp_path / "bad")
