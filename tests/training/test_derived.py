"""Features made of labels: of training rows by other rows alone, of new rows as they were saved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headstart.training.boosting import TreeSize, boost, tree_folds
from headstart.training.derived import Derived, derive

SMALL = (TreeSize(15, 40, 0.1, leaf_rows=2),)


def table(rows: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2)).astype(np.float32)
    keys = rng.integers(0, 60, (rows, 1))
    return x, keys, x[:, 0] + np.sin(keys[:, 0]) + 0.3 * rng.normal(size=rows)


def test_without_keys_and_trees_there_is_nothing() -> None:
    x, _, y = table()
    made = derive(x, y, "squared_error", trees=False)
    assert made.own is x
    assert made.derived == Derived()
    assert made.derived.extend(x) is x
    assert made.derived.files == {}


def test_without_keys_the_trees_are_those_of_boost() -> None:
    x, _, y = table()
    made = derive(x, y, "squared_error", sizes=SMALL, keys=np.empty((400, 0), int))
    trees, held_out = boost(x, y, "squared_error", sizes=SMALL)
    np.testing.assert_array_equal(made.own, np.hstack([x, held_out]).astype(np.float32))
    np.testing.assert_array_equal(made.derived.extend(x), trees.extend(x))


def test_trees_stand_on_the_means_of_levels() -> None:
    x, keys, y = table()
    made = derive(x, y, "squared_error", keys=keys, sizes=SMALL)
    plain = derive(x, y, "squared_error", sizes=SMALL)
    assert made.own.shape == made.derived.extend(x, keys).shape == (400, 4)
    assert made.own.dtype == np.float32
    assert made.derived.trees is not None
    assert int(made.derived.trees.inputs[0]) == 3
    errors = [np.square(each.own[:, -1] - y).mean() for each in (made, plain)]
    assert errors[0] < 0.7 * errors[1]
    new, new_keys, truth = table(seed=1)
    predicted = made.derived.extend(new, new_keys)[:, -1]
    assert np.square(predicted - truth).mean() < 1.2 * errors[0]


def test_labels_of_a_fold_do_not_reach_the_trees_that_predict_it() -> None:
    x, keys, y = table()
    # One size of trees and one iteration: nothing is chosen by the labels of the fold.
    once = (TreeSize(15, 1, 0.1, leaf_rows=2),)
    fold = tree_folds(y, "squared_error", 0, None) == 1
    other = y.copy()
    other[np.flatnonzero(fold)] = np.random.default_rng(5).permutation(y[fold])
    first, second = (
        derive(x, labels, "squared_error", keys=keys, sizes=once) for labels in (y, other)
    )
    # The common factor of a feature changes no split, but for rounding.
    np.testing.assert_allclose(second.own[fold, -1], first.own[fold, -1], rtol=0, atol=1e-6)
    assert np.abs(second.own[~fold, -1] - first.own[~fold, -1]).max() > 1e-3


def test_a_random_target_is_not_predicted_out_of_fold() -> None:
    rng = np.random.default_rng(0)
    keys, y = rng.integers(0, 300, (2000, 1)), rng.normal(size=2000)
    # Features of single levels beside their means are what would give a fold away.
    x = np.eye(300, dtype=np.float32)[keys[:, 0]][:, :50]
    own = derive(x, y, "squared_error", keys=keys, sizes=SMALL).own
    assert own[:, -2].std() > 0
    for feature in own[:, -2:].T:
        assert abs(np.corrcoef(feature, y)[0, 1]) < 4 / np.sqrt(2000)


def test_groups_stay_together() -> None:
    x, keys, y = table()
    groups = keys[:, 0] // 3
    made = derive(x, y, "squared_error", keys=keys, trees=False, groups=groups)
    assert not made.own[:, 2].any()
    assert not made.derived.extend(x, keys)[:, 2].any()


@pytest.mark.parametrize("trees", [False, True])
def test_what_is_saved_makes_the_same_features(tmp_path: Path, trees: bool) -> None:
    x, keys, y = table()
    made = derive(x, y, "squared_error", keys=keys, sizes=SMALL, trees=trees).derived
    assert set(made.files) == ({"levels", "trees"} if trees else {"levels"})
    made.save(tmp_path, "a-")
    again = Derived.load(tmp_path, made.files, "a-")
    np.testing.assert_array_equal(again.extend(x, keys), made.extend(x, keys))
    assert again.checked_row(2, 1).shape == (1, 4 if trees else 3)
    with pytest.raises(ValueError, match="take 1 columns"):
        again.checked_row(2, 0)
    if trees:
        with pytest.raises(ValueError, match="the trees take 3 features"):
            again.checked_row(3, 1)
