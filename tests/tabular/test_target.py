"""What a target is taken for, and targets that cannot be learned."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from headstart.errors import HeadstartError
from headstart.tabular.schema import Schema
from headstart.tabular.target import MAX_CLASSES, task_of
from tests.tabular.tables import N, text_frame


@pytest.mark.parametrize(
    ("labels", "task", "classes"),
    [
        ([i % 3 for i in range(N)], "classification", ("0", "1", "2")),
        ([f"{i % 2 * 1.5}" for i in range(N)], "classification", ("0.0", "1.5")),
        (["no", "yes"] * 30, "classification", ("no", "yes")),
        ([10, 9] * 30, "classification", ("9", "10")),
        ([0.1 * i for i in range(N)], "regression", ()),
        ([i % 11 for i in range(N - 1)] + [30], "regression", ()),
        ([i % 9 for i in range(N - 1)] + [30], "classification", (*"012345678", "30")),
    ],
)
def test_targets(labels: list[object], task: str, classes: tuple[str, ...]) -> None:
    target = Schema.learn(
        text_frame(a=list(np.sin(range(N)))).assign(y=[str(label) for label in labels]), "y"
    ).target
    assert target.task == task
    assert target.classes == classes


@pytest.mark.parametrize(
    ("labels", "task", "sentence"),
    [
        (["a"] * N, "auto", "single value"),
        ([None] * N, "auto", "empty"),
        ([f"label {i}" for i in range(N)], "auto", "different labels"),
        (["a", "b"] * 30, "regression", "not a number"),
        ([1.0] * N, "regression", "single value"),
        ([1, 2] * 30, "ranking", "task"),
    ],
)
def test_targets_that_cannot_be(labels: list[object], task: str, sentence: str) -> None:
    table = text_frame(a=list(np.sin(range(N)))).assign(y=labels)
    with pytest.raises(HeadstartError, match=sentence):
        Schema.learn(table, "y", task=task)


def test_few_rows_of_different_numbers_are_a_quantity() -> None:
    known = pd.Series([0.5, 1.25, 2.0, 7.5, 1.0])
    assert task_of(known) == "regression"
    assert task_of(known, "classification") == "classification"
    assert task_of(pd.Series([0, 1, 0, 1, 2, 2])) == "classification"


def test_too_many_classes() -> None:
    table = pd.DataFrame({"a": np.sin(range(3000)), "y": [f"c{i % 1000}" for i in range(3000)]})
    with pytest.raises(HeadstartError, match=f"1000 different labels.*at most {MAX_CLASSES}"):
        Schema.learn(table, "y")


def test_classes_that_may_be_one_and_classes_of_hardly_any_row() -> None:
    labels = ["yes", "no"] * 27 + ["Yes", "Yes", "non smoker", "Non-Smoker", "yse", "yes"]
    table = text_frame(a=list(np.sin(range(N)))).assign(y=labels)
    said = Schema.learn(table, "y").warnings
    assert [each.split(" of ")[0] for each in said] == [
        "The classes 'Non-Smoker' and 'non smoker'",
        "The classes 'Yes' and 'yes'",
        "The class 'Non-Smoker'",
        "The class 'non smoker'",
        "The class 'yse'",
    ]
    # Marks tell grades apart, and points numbers.
    plain = text_frame(a=list(np.sin(range(N)))).assign(y=["A+", "A-", "1.0", "10"] * 15)
    assert Schema.learn(plain, "y").warnings == []
