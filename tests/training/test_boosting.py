"""Boosted trees as arrays: scikit-learn's numbers exactly, out of fold, and back from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from headstart.errors import HeadstartError
from headstart.training import boosting
from headstart.training.boosting import LARGE_TREES, SMALL_TREES, TreeSize, boost, can_boost
from headstart.training.folds import assign_folds
from headstart.training.tree_arrays import Boosting, from_sklearn

SMALL = (TreeSize(8, 20, 0.2),)


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(300, 4)).round(1)
    return x, np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]


def test_predictions_are_those_of_scikit_learn_to_the_last_digit(
    rows: tuple[np.ndarray, np.ndarray],
) -> None:
    x, y = rows
    model = HistGradientBoostingRegressor(max_iter=30, random_state=0).fit(x, y)
    new = np.random.default_rng(1).normal(size=(1000, 4)) * 3
    trees = from_sklearn([model], 30, 4)
    np.testing.assert_array_equal(trees.raw(new)[0, :, 0], model.predict(new))
    early = list(model.staged_predict(new))[11]
    np.testing.assert_array_equal(from_sklearn([model], 12, 4).raw(new)[0, :, 0], early)


@pytest.mark.parametrize("classes", [2, 3])
def test_logits_are_those_of_scikit_learn(
    rows: tuple[np.ndarray, np.ndarray], classes: int
) -> None:
    x, y = rows
    labels = np.digitize(y, [-0.5, 0.5][: classes - 1])
    model = HistGradientBoostingClassifier(max_iter=15, random_state=0).fit(x, labels)
    found = from_sklearn([model], 15, 4).raw(x)[0]
    np.testing.assert_array_equal(np.squeeze(found), model.decision_function(x))


def test_a_row_is_predicted_by_trees_that_have_not_seen_it(
    rows: tuple[np.ndarray, np.ndarray],
) -> None:
    x, y = rows
    _, before = boost(x, y, "squared_error", sizes=SMALL, seed=3)
    changed = y.copy()
    changed[7] += 0.01
    _, after = boost(x, changed, "squared_error", sizes=SMALL, seed=3)
    fold_of = assign_folds(y, 5, 3)
    same = fold_of == fold_of[7]
    np.testing.assert_array_equal(before[same], after[same])
    assert not np.array_equal(before[~same], after[~same])


def test_predictions_of_new_rows_are_the_mean_of_the_folds(
    rows: tuple[np.ndarray, np.ndarray],
) -> None:
    x, y = rows
    trees, held_out = boost(x, y, "squared_error", sizes=SMALL)
    np.testing.assert_allclose(trees.features(x), trees.raw(x).mean(0), rtol=0, atol=0)
    fold_of = assign_folds(y, 5, 0)
    by_fold = np.stack([trees.raw(x)[fold_of[i], i] for i in range(len(x))])
    np.testing.assert_array_equal(held_out, by_fold)
    assert trees.extend(x.astype(np.float32)).dtype == np.float32


def test_trees_come_back_from_a_file(rows: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    x, y = rows
    trees, _ = boost(x, y, "squared_error", sizes=SMALL)
    trees.save(tmp_path / "trees.safetensors")
    again = type(trees).load(tmp_path / "trees.safetensors")
    np.testing.assert_array_equal(trees.raw(x), again.raw(x))


@pytest.mark.parametrize("name", ["child", "feature", "roots"])
def test_arrays_that_point_nowhere_are_refused(
    rows: tuple[np.ndarray, np.ndarray], tmp_path: Path, name: str
) -> None:
    x, y = rows
    trees, _ = boost(x, y, "squared_error", sizes=SMALL)
    getattr(trees, name).flat[0] = 10**8
    trees.save(tmp_path / "trees.safetensors")
    with pytest.raises(HeadstartError, match="holds no trees"):
        type(trees).load(tmp_path / "trees.safetensors")


def test_rates_of_counts_are_learned() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    y = rng.poisson(np.exp(x[:, 0])).astype(float)
    _, held_out = boost(x, y, "poisson", sizes=SMALL)
    assert np.corrcoef(held_out[:, 0], x[:, 0])[0, 1] > 0.8


def test_few_rows_or_single_rows_of_a_class_have_no_trees() -> None:
    assert not can_boost(np.zeros(39), "squared_error")
    assert can_boost(np.zeros(40), "squared_error")
    assert not can_boost(np.array([0] * 50 + [1]), "log_loss")
    assert can_boost(np.array([0] * 50 + [1] * 2), "log_loss")


def test_rows_of_a_group_are_in_one_fold() -> None:
    groups = np.repeat(np.arange(20), 7)
    fold_of = assign_folds(np.zeros(140), 5, 0, groups=groups)
    assert all(len(set(fold_of[groups == g])) == 1 for g in range(20))
    assert np.bincount(fold_of).tolist() == [28] * 5


def test_every_class_is_spread_over_the_folds() -> None:
    y = np.array([0] * 40 + [1] * 5)
    fold_of = assign_folds(y, 5, 0, stratify=True)
    assert sorted(fold_of[y == 1]) == [0, 1, 2, 3, 4]


def test_trees_are_refused_where_a_fold_would_not_see_a_class() -> None:
    y = np.array([0] * 60 + [1] * 58 + [2] * 2)
    assert can_boost(y, "log_loss")
    assert not can_boost(np.delete(y, -1), "log_loss")
    # A class of a single group is never seen by the trees that predict this group.
    groups = np.array([*(np.arange(118) // 6), 99, 99])
    assert not can_boost(y, "log_loss", groups=groups)
    assert not can_boost(y.astype(float), "squared_error", groups=np.zeros(120))
    assert not can_boost(np.array([7.0] + [0.0] * 99), "poisson")


def test_the_rarest_class_is_among_the_rows_of_a_large_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headstart.training.boosting.MAX_TREE_ROWS", 30)
    x = np.random.default_rng(0).normal(size=(500, 2))
    y = np.array([0] * 300 + [1] * 198 + [2] * 2)
    trees, held_out = boost(x, y, "log_loss", sizes=SMALL)
    assert trees.outputs == held_out.shape[1] == 3


def test_each_of_several_targets_has_trees_of_its_own(
    rows: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    """With one size of trees and as many of them, they are those of each target alone."""
    x, y = rows
    both = np.column_stack([y, -3 * x[:, 3]])
    assert can_boost(both, "squared_error")
    trees, held_out = boost(x, both, "squared_error", sizes=SMALL)
    assert trees.outputs == held_out.shape[1] == 2
    kept = trees.roots.shape[1]
    fold_of = assign_folds(both, 5, 0)
    for place in range(2):
        for fold in range(5):
            alone = HistGradientBoostingRegressor(
                learning_rate=0.2,
                max_iter=kept,
                max_leaf_nodes=8,
                min_samples_leaf=5,
                early_stopping=False,
                random_state=fold,
            ).fit(x[fold_of != fold], both[fold_of != fold, place])
            held = fold_of == fold
            np.testing.assert_allclose(held_out[held, place], alone.predict(x[held]), rtol=1e-12)
            np.testing.assert_array_equal(trees.raw(x)[fold, :, place], alone.predict(x))
    # Numbers as they are, where classes would be log-probabilities; from a file, too.
    trees.save(tmp_path / "trees")
    again = Boosting.load(tmp_path / "trees")
    np.testing.assert_array_equal(again.features(x), trees.raw(x).mean(0))


@pytest.mark.parametrize(("many", "expected"), [(200, SMALL_TREES), (4000, LARGE_TREES)])
def test_trees_of_small_tables_see_half_of_the_columns_and_may_have_small_leaves(
    many: int, expected: tuple[TreeSize, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    grown: list[tuple[float, int]] = []

    def stopped(**options: object) -> None:
        grown.append((options["max_features"], options["min_samples_leaf"]))
        raise InterruptedError

    monkeypatch.setattr(boosting, "HistGradientBoostingRegressor", stopped)
    x = np.random.default_rng(0).normal(size=(many, 4))
    with pytest.raises(InterruptedError):
        boost(x, x[:, 0], "squared_error")
    assert grown == [(expected[0].column_share, expected[0].leaf_rows)]
    assert {size.column_share for size in SMALL_TREES} == {0.5}
    assert max(size.leaf_rows for size in SMALL_TREES) == 2
    assert {(size.column_share, size.leaf_rows) for size in LARGE_TREES} == {(1.0, 5)}
