"""The random-effects model of levels: where levels do not differ, and slopes within levels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headstart.training.random_effects import (
    MAX_SLOPES,
    shrinkage,
    smoothed_means,
    within_slopes,
)


def test_levels_that_do_not_differ_have_the_overall_mean() -> None:
    # Every level has the same mean: less between levels than noise alone would make.
    key, y = np.repeat(np.arange(10), 2), np.tile([-1.0, 1.0], 10)[:, None]
    ones = np.ones(20)
    np.testing.assert_array_equal(smoothed_means(key, y, ones, 10, y.mean(0)), np.zeros((10, 1)))
    # A row each tells nothing of the noise.
    alone = smoothed_means(np.arange(20), y, ones, 20, y.mean(0))
    np.testing.assert_array_equal(alone, np.zeros((20, 1)))
    assert shrinkage(np.ones(2), np.array([[0.0], [5.0]]), np.zeros(1)).tolist() == [math.inf]


def test_labels_that_follow_from_the_level_are_not_smoothed() -> None:
    key, y = np.repeat(np.arange(3), 2), np.repeat([0.0, 1.0, 5.0], 2)[:, None]
    found = smoothed_means(key, y, np.ones(6), 4, y.mean(0))
    np.testing.assert_allclose(found[:, 0], [0, 1, 5, 2], rtol=0, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_slopes_are_those_of_a_regression_with_an_intercept_for_each_level(weighted: bool) -> None:
    rng = np.random.default_rng(0)
    key, x = rng.integers(-1, 15, 300), rng.normal(size=(300, 4))
    # A column that is the same in all rows of a level, and one that is another twice.
    x[:, 2], x[:, 3] = key, 2 * x[:, 1]
    y = rng.normal(size=(300, 2)) + x[:, :2] + 3 * key[:, None]
    weights = rng.uniform(0.5, 2, 300) if weighted else np.ones(300)
    found = within_slopes(key, x, y, weights)
    known = key >= 0
    dummies = np.eye(15)[key[known]]
    design = np.hstack([x[known], dummies])
    ridge = np.diag([1.0, 1.0, 1.0, 1.0, *[0.0] * 15])
    # Along the column without variation any slope is as good: the ridge alone has it at 0.
    gram = (design.T * weights[known]) @ design + ridge
    slopes = np.linalg.solve(gram, (design.T * weights[known]) @ y[known])[:4]
    np.testing.assert_allclose(found, slopes, rtol=0, atol=1e-9)
    assert not found[2].any()


def test_there_are_no_slopes_where_rows_are_few_or_columns_many() -> None:
    rng = np.random.default_rng(0)
    key, x, y = rng.integers(0, 10, 100), rng.normal(size=(100, 20)), rng.normal(size=(100, 1))
    ones = np.ones(100)
    assert within_slopes(key, x[:, :18], y, ones).all()
    assert not within_slopes(key, x, y, ones).any()
    # What counts for little is little.
    assert not within_slopes(key, x[:, :18], y, ones / 2).any()
    many = np.zeros((100, MAX_SLOPES + 1))
    many[:, 0] = x[:, 0]
    assert not within_slopes(key, many, y, ones).any()
    for nobody in (within_slopes(key - 10, x[:, :2], y, ones), within_slopes(key, x, y, 0 * ones)):
        assert not nobody.any()
