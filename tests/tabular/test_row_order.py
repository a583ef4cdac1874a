"""Splits that respect groups and time, and a warning where random ones flatter."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from headstart.errors import HeadstartError
from headstart.tabular.fit import fit_table
from headstart.tabular.holdout import RowOrder, neighbor_correlation, split_rows
from headstart.training.recipe import Recipe

RECIPE = Recipe(model="mlp-1x8", steps=10, samples=2, effort="quick", trees=False, noise="constant")


def table(rows: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=rows), "who": [f"p{i % 12}" for i in range(rows)]})
    frame["day"] = pd.date_range("2020-01-01", periods=rows)[::-1].strftime("%Y-%m-%d")
    return frame.assign(y=frame.a + 0.1 * rng.normal(size=rows))


@pytest.mark.parametrize("classes", [False, True])
def test_groups_stay_together(classes: bool) -> None:
    frame = table()
    labels = pd.Series(np.where(frame.a > 0, "x", "z")) if classes else frame.y
    order = RowOrder.of(frame, "who", None)
    _, train, test = split_rows(labels, "y", fraction=0.25, order=order)
    assert sorted([*train, *test]) == list(range(120))
    assert not set(frame.who[train]) & set(frame.who[test])
    assert 20 <= len(test) <= 40


def test_the_latest_rows_are_tested_on() -> None:
    frame = table()
    order = RowOrder.of(frame, None, "day")
    _, train, test = split_rows(frame.y, "y", fraction=0.25, order=order)
    assert len(test) == 30
    assert frame.day[train].max() < frame.day[test].min()
    assert frame.day[train].is_monotonic_increasing
    numbers = RowOrder.of(frame.assign(day=np.arange(120)), None, "day")
    _, train, test = split_rows(frame.y, "y", fraction=0.1, order=numbers)
    assert test.tolist() == list(range(108, 120))


def test_what_cannot_order_rows_is_refused() -> None:
    frame = table()
    with pytest.raises(HeadstartError, match="--group or --time"):
        RowOrder.of(frame, "who", "day")
    with pytest.raises(HeadstartError, match="'p0', which is no time"):
        RowOrder.of(frame, None, "who")
    with pytest.raises(HeadstartError, match="whom"):
        RowOrder.of(frame, "whom", None)


def test_a_group_is_no_feature_and_its_rows_are_held_out_together() -> None:
    run = fit_table(table(), "y", recipe=RECIPE, group="who")
    assert "who" not in {column.name for column in run.schema.columns}
    assert run.schema.left_out["who"] == "holds the groups of rows"


def test_errors_of_neighbors_that_are_alike_are_told() -> None:
    rng = np.random.default_rng(0)
    positions = rng.permutation(400)
    walk = np.cumsum(rng.normal(size=400))
    assert neighbor_correlation(positions, walk[positions]) > 0.9
    assert neighbor_correlation(positions, rng.normal(size=400)) == 0.0
    frame = pd.DataFrame({"a": rng.normal(size=400), "y": np.repeat(rng.normal(size=20), 20)})
    recipe = Recipe(**{**vars(RECIPE), "effort": "default", "folds": 3})
    run = fit_table(frame, "y", task="regression", recipe=recipe)
    assert any("errors of neighboring rows are alike" in warning for warning in run.warnings)


def test_a_large_group_is_not_what_is_tested_on() -> None:
    frame = table().assign(who=["large"] * 80 + [f"p{i}" for i in range(40)])
    order = RowOrder.of(frame, "who", None)
    _, train, test = split_rows(frame.y, "y", fraction=0.1, order=order)
    assert 1 <= len(test) <= 20
    assert "large" in set(frame.who[train])
    with pytest.raises(HeadstartError, match="of one group"):
        split_rows(frame.y, "y", order=RowOrder.of(frame.assign(who="large"), "who", None))


@pytest.mark.parametrize("form", ["%d/%m/%Y", "%d/%m/%Y %H:%M", "%m/%d/%Y", "%B %d, %Y"])
def test_days_and_months_are_told_apart_in_one_way(form: str) -> None:
    frame = table()
    days = pd.to_datetime(frame.day)
    order = RowOrder.of(frame.assign(day=days.dt.strftime(form)), None, "day")
    assert np.argsort(order.times).tolist() == np.argsort(days.to_numpy()).tolist()


def test_rows_too_few_to_learn_from_are_said() -> None:
    with pytest.raises(HeadstartError, match="1 row would be left to learn from, and 119"):
        split_rows(table().y, "y", fraction=0.99)


@pytest.mark.parametrize("option", [{"ignore": ("y",)}, {"group": "y"}, {"time": "y"}])
def test_the_target_is_nothing_else(option: dict[str, object]) -> None:
    with pytest.raises(HeadstartError, match="'y' is the column to predict"):
        fit_table(table(), "y", recipe=RECIPE, **option)  # type: ignore[arg-type]
