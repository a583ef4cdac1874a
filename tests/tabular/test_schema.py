"""A table as a matrix: which columns are used, what is warned of, and back from JSON."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from headstart.errors import HeadstartError
from headstart.tabular.columns import (
    MAX_LEVELS,
    CategoryColumn,
    DateColumn,
    NumberColumn,
    column_from_json,
)
from headstart.tabular.schema import Schema
from tests.tabular.tables import N, learn_schema, text_frame


def test_kinds() -> None:
    schema = learn_schema(
        number=[0.5 * i * i for i in range(N)],
        flag=["yes", "no"] * 30,
        city=["Rome", "Paris", "Oslo"] * 20,
        day=[str(pd.Timestamp("2024-01-01") + pd.Timedelta(days=3 * i))[:10] for i in range(N)],
        holes=[None if i % 7 == 0 else i % 5 for i in range(N)],
        empty=[None] * N,
        same=["x"] * N,
        name=[f"customer {i}" for i in range(N)],
        row=list(range(N)),
    )
    kinds = {column.name: type(column) for column in schema.columns}
    assert kinds == {
        "number": NumberColumn,
        "flag": NumberColumn,
        "city": CategoryColumn,
        "day": DateColumn,
        "holes": NumberColumn,
    }
    assert set(schema.left_out) == {"empty", "same", "name", "row"}
    assert schema.feature_names[-2:] == ("holes", "holes is missing")
    assert schema.target.task == "regression"


def test_long_numbers_are_names() -> None:
    schema = learn_schema(
        long=[10**25 + 7919 * i for i in range(N)],
        mass=[f"{i % 7}.5e20" for i in range(N)],
        short=[10**12 + 7919 * (i % 9) for i in range(N)],
    )
    assert schema.left_out == {"long": "names its rows: nearly every value is another"}
    assert [column.name for column in schema.columns] == ["mass", "short"]


def test_many_levels_are_cut_and_told() -> None:
    schema = Schema.learn(
        pd.DataFrame({"y": np.arange(400) % 37 * 1.5, "a": [f"c{i % 80}" for i in range(400)]}), "y"
    )
    assert len(schema.columns[0].features) == MAX_LEVELS + 1
    assert schema.key_columns == ("a",)
    assert schema.warnings == [
        "The column 'a' has 80 levels: the 50 most frequent get a feature each, and all with 2 "
        "rows or more are told apart by the target's mean."
    ]
    rare = [f"c{i % 40 if i < 340 else i}" for i in range(400)]
    schema = Schema.learn(pd.DataFrame({"y": np.arange(400) % 37 * 1.5, "a": rare}), "y")
    assert schema.key_columns == ()
    assert schema.warnings == [
        "The column 'a' has 100 levels: the 40 most frequent get a feature each, and those with a "
        "single row are not told apart."
    ]


def test_a_few_words_among_numbers_count_as_missing() -> None:
    values = [str(i % 13) for i in range(N)]
    values[5] = "n/k"
    schema = learn_schema(a=values)
    assert isinstance(schema.columns[0], NumberColumn)
    assert "'n/k'" in schema.warnings[0]


def test_the_target_among_the_features_and_copies_are_told() -> None:
    table = text_frame(
        a=[3 - 2 * value for value in np.linspace(0, 1, N)], b=[i % 4 for i in range(N)]
    )
    (warning,) = Schema.learn(table, "y").leakage(table)
    assert "'a' is the target but for its scale" in warning
    twice = pd.concat([table, table], ignore_index=True)
    assert "60 rows of 120 occur more than once" in Schema.learn(twice, "y").leakage(twice)[-1]


def test_missing_columns_are_named() -> None:
    schema = learn_schema(a=list(np.sin(range(N))), b=["x", "y"] * 30)
    with pytest.raises(HeadstartError, match=r"lacks 1 column .*'b'"):
        schema.encode(pd.DataFrame({"a": [1.0]}))
    with pytest.raises(HeadstartError, match="no column beside"):
        learn_schema(a=[None] * N)
    with pytest.raises(HeadstartError, match="'z'"):
        Schema.learn(text_frame(), "z")
    assert [
        column.name
        for column in Schema.learn(
            text_frame(a=list(np.sin(range(N))), b=["x", "y"] * 30), "y", ignore=["a"]
        ).columns
    ] == ["b"]


def test_there_and_back_through_json() -> None:
    table = text_frame(
        a=[None if i % 9 == 0 else i * i for i in range(N)],
        b=["x", "y"] * 30,
        c=["2024-01-02", "2024-03-01"] * 30,
    )
    schema = Schema.learn(table, "y")
    again = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    np.testing.assert_array_equal(again.encode(table), schema.encode(table))
    assert again == schema


@pytest.mark.parametrize("change", ["kind", "scale", "extra", "columns", "task", "classes"])
def test_a_description_that_is_not_one(change: str) -> None:
    entry = learn_schema(a=list(np.sin(range(N)))).to_json()
    column = entry["columns"][0]
    changes = {
        "kind": lambda: column.update(kind="__import__"),
        "scale": lambda: column.update(scale=0.0),
        "extra": lambda: column.update(more=1),
        "columns": lambda: entry.update(columns=[]),
        "task": lambda: entry["target"].update(task="ranking"),
        "classes": lambda: entry["target"].update(classes=["a", "b"]),
    }
    changes[change]()
    with pytest.raises(HeadstartError):
        Schema.from_json(entry)
    with pytest.raises(HeadstartError):
        column_from_json({"kind": "number", "name": "a"})
