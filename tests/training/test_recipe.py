"""The recipe: what is open follows the rows, validation rows are stratified, mistakes are named."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
import torch

import headstart as hs
from headstart.errors import HeadstartError
from headstart.training import folds, trial
from headstart.training.folds import split_validation
from headstart.training.labels import QuantityLabels
from headstart.training.learn import learn
from headstart.training.race import Clock
from headstart.training.recipe import Recipe


def test_only_what_is_open_is_filled_in() -> None:
    recipe = Recipe(steps=0, lr=0.01, seed=3).sized(20_000)
    assert (recipe.model, recipe.steps, recipe.batch_size, recipe.lr, recipe.seed) == (
        "mlp-5x100",
        0,
        256,
        0.01,
        3,
    )


@pytest.mark.parametrize(
    "bad",
    [
        {"steps": -1},
        {"batch_size": 0},
        {"samples": 0},
        {"patience": 0},
        {"lr": 0},
        {"validation": 1.0},
    ],
)
def test_a_setting_out_of_range_is_named(bad: dict[str, Any]) -> None:
    with pytest.raises(hs.HeadstartError, match=next(iter(bad))):
        Recipe(**bad)


@pytest.mark.parametrize("y", [torch.arange(40) % 3, torch.randn(40), torch.randn(40, 2)])
def test_every_row_is_on_one_side(y: torch.Tensor) -> None:
    train, held_out = split_validation(y, 0.2, seed=1)
    assert sorted([*train.tolist(), *held_out.tolist()]) == list(range(40))
    assert 7 <= len(held_out) <= 9


def test_many_rows_are_held_out_from_every_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folds, "MAX_VALIDATION_ROWS", 30)
    y = torch.arange(3).repeat_interleave(200)
    _, held_out = split_validation(y, 0.2, seed=0)
    assert len(held_out) == 30
    assert set(y[held_out].tolist()) == {0, 1, 2}


@pytest.mark.parametrize("seed", range(8))
def test_a_class_of_one_row_is_learned_from(seed: int) -> None:
    y = torch.tensor([0, 0, 1, 2])
    train, held_out = split_validation(y, 0.1, seed)
    assert set(y[train].tolist()) == {0, 1, 2}
    assert y[held_out].tolist() == [0]


def test_no_steps_leave_the_initialized_net() -> None:
    x = torch.randn(60, 3)
    found = learn(
        x, QuantityLabels(x.sum(1).double()), Recipe(steps=0, effort="quick", trees=False)
    )
    assert found.history.steps == []
    assert found.scores["rmse"] < 0.5


@pytest.mark.slow
def test_a_time_limit_bounds_steps_and_evaluations() -> None:
    x = torch.randn(3000, 3)
    recipe = Recipe(time_limit=1.5, steps=100_000, trees=False, noise="constant")
    begun = time.perf_counter()
    found = learn(x, QuantityLabels((3 * x).sin().sum(1).double()), recipe)
    assert len(found.trials[0].history.steps) < 100_000
    # More than the limit: other processes may be busy.
    assert time.perf_counter() - begun < 6
    assert 1 <= len(found.history.validation) <= trial.MAX_EVALUATIONS + 1


def test_words_where_numbers_belong_get_a_sentence() -> None:
    for name in ("lr", "steps", "patience", "time_limit"):
        with pytest.raises(hs.HeadstartError, match=f"{name} must be a number, not 'x'"):
            Recipe(**{name: "x"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"refine": True, "folds": 5}, "leave out folds=5"),
        ({"time_limit": math.nan}, "time_limit must be a number, not nan"),
    ],
)
def test_settings_that_would_be_ignored_are_refused(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(HeadstartError, match=sentence):
        Recipe(**settings)


def test_quick_trees_follow_the_number_of_rows() -> None:
    quick, default = Recipe(effort="quick"), Recipe()
    (few,), (many,) = quick.tree_sizes(999) or (), quick.tree_sizes(1000) or ()
    assert few.leaves < many.leaves
    assert default.tree_sizes(999) is None


def test_a_time_limit_leaves_some_for_scores_and_the_report() -> None:
    for limit, planned in ((5.0, 4.0), (20.0, 16.0), (60.0, 54.0)):
        assert Clock(Recipe(time_limit=limit)).share(1) == pytest.approx(planned, abs=0.5)
        assert Clock(Recipe(time_limit=limit)).share(4) == pytest.approx(planned / 4, abs=0.5)
    assert Clock(Recipe()).share(1) is None
