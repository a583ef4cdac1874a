"""Columns become numbers: learned from training rows, the same for later tables, and JSON."""

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
    labels_of,
    log_compress,
    to_days,
    to_numbers,
)
from headstart.tabular.frames import plain_frame
from headstart.tabular.schema import Schema
from headstart.tabular.target import MAX_CLASSES

N = 60


def frame(**columns: list[object]) -> pd.DataFrame:
    """Text, as a csv file gives it."""
    given = pd.DataFrame({"y": [str(value) for value in np.linspace(0, 1, N)], **columns})
    return given.map(lambda value: None if pd.isna(value) else str(value))


def learn(**columns: list[object]) -> Schema:
    return Schema.learn(frame(**columns), "y")


def test_kinds() -> None:
    schema = learn(
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


def test_numbers_are_centered_scaled_and_log_compressed() -> None:
    table = frame(a=[*range(N - 1), 1e6])
    z = Schema.learn(table, "y").encode(table)[:, 0]
    assert 5 < z[-1] < 20  # an outlier is told, and does not shout
    calm = Schema.learn(frame(a=list(np.sin(range(N)))), "y").encode(
        frame(a=list(np.sin(range(N))))
    )[:, 0]
    assert abs(float(calm.mean())) < 0.01
    assert abs(float(calm.std()) - 1) < 0.01
    x = np.linspace(-50, 50, 1001)
    assert (np.diff(log_compress(x)) > 0).all()
    np.testing.assert_allclose(log_compress(x), -log_compress(-x))
    np.testing.assert_allclose(
        (log_compress(np.array([5 + 1e-6])) - 5) / 1e-6, 1.0, rtol=1e-4
    )  # no kink


def test_missing_numbers_are_put_at_the_center_and_told() -> None:
    table = frame(a=[None if i % 3 == 0 else i for i in range(N)])
    encoded = Schema.learn(table, "y").encode(table)
    assert encoded.shape == (N, 2)
    assert encoded[0].tolist() == [0.0, 1.0]
    assert encoded[1, 1] == 0.0


def test_categories_with_rare_and_unseen_levels() -> None:
    table = frame(a=["x", "y"] * 29 + ["rare", "once"])
    schema = Schema.learn(table, "y")
    assert schema.feature_names == ("a = x", "a = y", "a is another")
    new = pd.DataFrame({"a": ["x", "rare", "never seen", None]})
    assert schema.encode(new).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]]
    plain = learn(a=["x", "y"] * 30)
    assert plain.encode(new).tolist() == [[1, 0], [0, 0], [0, 0], [0, 0]]
    assert plain.unseen(new) == {"a": 3}


def test_a_level_is_the_same_from_text_integers_and_floats() -> None:
    schema = Schema.learn(frame(a=["north", "2", "3"] * 20), "y")
    assert isinstance(schema.columns[0], CategoryColumn)
    for values in (["2", "3"], [2, 3], [2.0, 3.0]):
        assert schema.encode(pd.DataFrame({"a": values})).tolist() == [[1, 0, 0], [0, 1, 0]]


def test_many_levels_are_cut_and_told() -> None:
    schema = Schema.learn(
        pd.DataFrame({"y": np.arange(400) % 37 * 1.5, "a": [f"c{i % 80}" for i in range(400)]}), "y"
    )
    assert len(schema.columns[0].features) == MAX_LEVELS + 1
    assert any("80 levels" in warning for warning in schema.warnings)


def test_a_few_words_among_numbers_count_as_missing() -> None:
    values = [str(i % 13) for i in range(N)]
    values[5] = "n/k"
    schema = learn(a=values)
    assert isinstance(schema.columns[0], NumberColumn)
    assert "'n/k'" in schema.warnings[0]


def test_the_target_among_the_features_and_copies_are_told() -> None:
    table = frame(a=[3 - 2 * value for value in np.linspace(0, 1, N)], b=[i % 4 for i in range(N)])
    (warning,) = Schema.learn(table, "y").leakage(table)
    assert "'a' is the target but for its scale" in warning
    twice = pd.concat([table, table], ignore_index=True)
    assert "60 rows of 120 occur more than once" in Schema.learn(twice, "y").leakage(twice)[-1]


@pytest.mark.parametrize(
    ("labels", "task", "classes"),
    [
        ([i % 3 for i in range(N)], "classification", ("0", "1", "2")),
        ([f"{i % 2 * 1.5}" for i in range(N)], "classification", ("0.0", "1.5")),
        (["no", "yes"] * 30, "classification", ("no", "yes")),
        ([10, 9] * 30, "classification", ("9", "10")),
        ([0.1 * i for i in range(N)], "regression", ()),
    ],
)
def test_targets(labels: list[object], task: str, classes: tuple[str, ...]) -> None:
    target = Schema.learn(
        frame(a=list(np.sin(range(N)))).assign(y=[str(label) for label in labels]), "y"
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
    table = frame(a=list(np.sin(range(N)))).assign(y=labels)
    with pytest.raises(HeadstartError, match=sentence):
        Schema.learn(table, "y", task=task)


def test_too_many_classes() -> None:
    table = pd.DataFrame({"a": np.sin(range(3000)), "y": [f"c{i % 1000}" for i in range(3000)]})
    with pytest.raises(HeadstartError, match=f"1000 different labels.*at most {MAX_CLASSES}"):
        Schema.learn(table, "y")


def test_missing_columns_are_named() -> None:
    schema = learn(a=list(np.sin(range(N))), b=["x", "y"] * 30)
    with pytest.raises(HeadstartError, match=r"lacks 1 column .*'b'"):
        schema.encode(pd.DataFrame({"a": [1.0]}))
    with pytest.raises(HeadstartError, match="no column beside"):
        learn(a=[None] * N)
    with pytest.raises(HeadstartError, match="'z'"):
        Schema.learn(frame(), "z")
    assert [
        column.name
        for column in Schema.learn(
            frame(a=list(np.sin(range(N))), b=["x", "y"] * 30), "y", ignore=["a"]
        ).columns
    ] == ["b"]


def test_there_and_back_through_json() -> None:
    table = frame(
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
    entry = learn(a=list(np.sin(range(N)))).to_json()
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


def test_days_and_months_keep_their_order() -> None:
    """Days beyond the twelfth tell; a later table with none of them is read the same way."""
    days = [
        str((pd.Timestamp("2024-01-01") + pd.Timedelta(days=5 * i)).strftime("%d/%m/%Y"))
        for i in range(N)
    ]
    schema = learn(day=days)
    one, other = (
        schema.encode(pd.DataFrame({"day": [text]})) for text in ("05/03/2024", "25/03/2024")
    )
    assert float(other[0, 0] - one[0, 0]) == pytest.approx(20 / schema.columns[0].scale, rel=1e-4)
    assert schema.unseen(pd.DataFrame({"day": ["2024-03-05", "03/25/2024"]})) == {"day": 2}


def test_infinite_numbers_are_missing_ones() -> None:
    schema = learn(a=["inf" if i % 9 == 0 else str(np.sin(i)) for i in range(N)])
    assert isinstance(schema.columns[0], NumberColumn)
    assert schema.columns[0].missing


def test_a_row_is_encoded_alike_whatever_stands_beside_it() -> None:
    schema = learn(flag=["yes", "no"] * 30, size=list(np.sin(range(N))))
    table = pd.DataFrame({"flag": ["yes", "no", "unknown"], "size": ["0.5", "x", "0.25"]})
    whole = schema.encode(table)
    for row in range(3):
        np.testing.assert_array_equal(schema.encode(table.iloc[[row]]), whole[[row]])
    assert whole[0, 0] != whole[1, 0]


@pytest.mark.parametrize(
    "cells",
    [
        [0.1 + 0.2, 1e-7 / 3, -2.0, np.nan],
        [2**53 + 1, 2**62 - 1, -7],
        [True, False],
        [1, None],
        [np.float32(0.1), np.float32(3)],
        [pd.Timestamp("2024-03-01 12:30"), pd.NaT],
        [pd.Timedelta(days=3), pd.Timedelta(seconds=1)],
        ["12345678901234567", "7"],
        ["yes", "no "],
        ["2024-03-01", "2024-13-01"],
    ],
)
@pytest.mark.parametrize(
    "stray", ["word", "1.5", 1.5, 10**400, None, "yes", "18446744073709551616", "-1"]
)
def test_a_cell_means_the_same_whatever_stands_below_it(cells: list[object], stray: object) -> None:
    alone = plain_frame(pd.DataFrame({"a": pd.Series(cells)}), "t")["a"]
    among = pd.Series([*pd.Series(cells).astype(object), stray], dtype=object).infer_objects()
    beside = plain_frame(pd.DataFrame({"a": among}), "t")["a"].iloc[:-1]
    np.testing.assert_array_equal(to_numbers(alone), to_numbers(beside))
    np.testing.assert_array_equal(to_days(alone, "ISO8601"), to_days(beside, "ISO8601"))
    if (
        max((abs(cell) for cell in cells if isinstance(cell, int)), default=0) < 2**53
        or among.dtype == object
    ):
        assert labels_of(alone).tolist() == labels_of(beside).tolist()


def test_whole_numbers_beyond_a_double_are_read() -> None:
    schema = learn(a=[str(2**62 + 2**55 * (i * i % 17)) for i in range(N)])
    assert isinstance(schema.columns[0], NumberColumn)
    assert schema.columns[0].center == pytest.approx(
        np.mean([2**62 + 2**55 * (i * i % 17) for i in range(N)])
    )


def test_dates_far_away_and_dates_that_fit_two_forms() -> None:
    days = ["9999-12-31" if i % 5 == 0 else f"2024-01-{1 + i % 28:02d}" for i in range(N)]
    assert np.isfinite(learn(day=days).encode(frame(day=days))).all()
    schema = learn(day=[f"{1 + i % 9:02d}/{1 + i % 7:02d}/2024" for i in range(N)])
    assert "would fit them too" in schema.warnings[0]
    assert isinstance(
        learn(a=[f"{1900 + i % 30}" if i % 12 else "unk" for i in range(N)]).columns[0],
        CategoryColumn,
    )
