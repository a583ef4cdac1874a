"""Columns become numbers, the same whatever stands beside or below a cell."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from headstart.errors import HeadstartError
from headstart.tabular.cells import (
    MISSING_LEVEL,
    labels_of,
    marked_number,
    to_days,
    to_numbers,
)
from headstart.tabular.columns import (
    MAX_LEVELS,
    CategoryColumn,
    NumberColumn,
    category_column,
    column_from_json,
    log_compress,
    warn_of_levels,
    warn_of_unit,
)
from headstart.tabular.frames import plain_frame
from headstart.tabular.schema import Schema
from tests.tabular.tables import N, learn_schema, text_frame


def test_numbers_are_centered_scaled_and_log_compressed() -> None:
    table = text_frame(a=[*range(N - 1), 1e6])
    z = Schema.learn(table, "y").encode(table)[:, 0]
    # An outlier is told, and does not shout.
    assert 5 < z[-1] < 20
    calm = Schema.learn(text_frame(a=list(np.sin(range(N)))), "y").encode(
        text_frame(a=list(np.sin(range(N))))
    )[:, 0]
    assert abs(float(calm.mean())) < 0.01
    assert abs(float(calm.std()) - 1) < 0.01
    x = np.linspace(-50, 50, 1001)
    assert (np.diff(log_compress(x)) > 0).all()
    np.testing.assert_allclose(log_compress(x), -log_compress(-x))
    # The curve has no kink.
    np.testing.assert_allclose((log_compress(np.array([5 + 1e-6])) - 5) / 1e-6, 1.0, rtol=1e-4)


def test_missing_numbers_are_put_at_the_center_and_told() -> None:
    table = text_frame(a=[None if i % 3 == 0 else i for i in range(N)])
    encoded = Schema.learn(table, "y").encode(table)
    assert encoded.shape == (N, 2)
    assert encoded[0].tolist() == [0.0, 1.0]
    assert encoded[1, 1] == 0.0


def test_categories_with_rare_and_unseen_levels() -> None:
    table = text_frame(a=["x", "y"] * 29 + ["rare", "once"])
    schema = Schema.learn(table, "y")
    assert schema.feature_names == ("a = x", "a = y", "a is another")
    new = pd.DataFrame({"a": ["x", "rare", "never seen", None]})
    assert schema.encode(new).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]]
    plain = learn_schema(a=["x", "y"] * 30)
    assert plain.encode(new).tolist() == [[1, 0], [0, 0], [0, 0], [0, 0]]
    assert plain.unseen(new) == {"a": 3}


def test_a_level_is_the_same_from_text_integers_and_floats() -> None:
    schema = Schema.learn(text_frame(a=["north", "2", "3"] * 20), "y")
    assert isinstance(schema.columns[0], CategoryColumn)
    for values in (["2", "3"], [2, 3], [2.0, 3.0]):
        assert schema.encode(pd.DataFrame({"a": values})).tolist() == [[1, 0, 0], [0, 1, 0]]


def test_days_and_months_keep_their_order() -> None:
    """Days beyond the twelfth tell; a later table with none of them is read the same way."""
    days = [
        str((pd.Timestamp("2024-01-01") + pd.Timedelta(days=5 * i)).strftime("%d/%m/%Y"))
        for i in range(N)
    ]
    schema = learn_schema(day=days)
    one, other = (
        schema.encode(pd.DataFrame({"day": [text]})) for text in ("05/03/2024", "25/03/2024")
    )
    assert float(other[0, 0] - one[0, 0]) == pytest.approx(20 / schema.columns[0].scale, rel=1e-4)
    assert schema.unseen(pd.DataFrame({"day": ["2024-03-05", "03/25/2024"]})) == {"day": 2}


def test_infinite_numbers_are_missing_ones() -> None:
    schema = learn_schema(a=["inf" if i % 9 == 0 else str(np.sin(i)) for i in range(N)])
    assert isinstance(schema.columns[0], NumberColumn)
    assert schema.columns[0].missing


def test_a_row_is_encoded_alike_whatever_stands_beside_it() -> None:
    schema = learn_schema(flag=["yes", "no"] * 30, size=list(np.sin(range(N))))
    table = pd.DataFrame({"flag": ["yes", "no", "unknown"], "size": ["0.5", "x", "0.25"]})
    whole = schema.encode(table)
    for row in range(3):
        np.testing.assert_array_equal(schema.encode(table.iloc[[row]]), whole[[row]])
    assert whole[0, 0] != whole[1, 0]


def inferred(cells: list[object]) -> pd.Series:
    """A column of the type that pandas finds for it; old pandas finds none for 10**400."""
    column = pd.Series(cells, dtype=object)
    try:
        return column.infer_objects()
    except OverflowError:
        return column


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
    among = inferred([*pd.Series(cells).astype(object), stray])
    beside = plain_frame(pd.DataFrame({"a": among}), "t")["a"].iloc[:-1]
    np.testing.assert_array_equal(to_numbers(alone), to_numbers(beside))
    np.testing.assert_array_equal(to_days(alone, "ISO8601"), to_days(beside, "ISO8601"))
    if (
        max((abs(cell) for cell in cells if isinstance(cell, int)), default=0) < 2**53
        or among.dtype == object
    ):
        assert labels_of(alone).tolist() == labels_of(beside).tolist()


def test_whole_numbers_beyond_a_double_are_read() -> None:
    schema = learn_schema(a=[str(2**62 + 2**55 * (i * i % 17)) for i in range(N)])
    assert isinstance(schema.columns[0], NumberColumn)
    assert schema.columns[0].center == pytest.approx(
        np.mean([2**62 + 2**55 * (i * i % 17) for i in range(N)])
    )


def test_dates_far_away_and_dates_that_fit_two_forms() -> None:
    days = ["9999-12-31" if i % 5 == 0 else f"2024-01-{1 + i % 28:02d}" for i in range(N)]
    assert np.isfinite(learn_schema(day=days).encode(text_frame(day=days))).all()
    schema = learn_schema(day=[f"{1 + i % 9:02d}/{1 + i % 7:02d}/2024" for i in range(N)])
    assert "would fit them too" in schema.warnings[0]
    assert isinstance(
        learn_schema(a=[f"{1900 + i % 30}" if i % 12 else "unk" for i in range(N)]).columns[0],
        CategoryColumn,
    )


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("1,234", 1234.0),
        ("1,234,567.5", 1234567.5),
        ("$1,234", 1234.0),
        ("-$5", -5.0),
        ("12.50 €", 12.5),
        ("EUR 3", 3.0),
        ("1 234", 1234.0),
        ("1'234.5", 1234.5),
        ("-1,000", -1000.0),
        ("0,567", None),
        ("1,23", None),
        ("12,34,567", None),
        ("1,234 567", None),
        ("5 apples", None),
        ("$", None),
        ("€ and more", None),
    ],
)
def test_currencies_and_thousands(cell: str, number: float | None) -> None:
    found = to_numbers(pd.Series([cell, None, "7"], dtype=object))
    assert found[2] == 7
    assert (np.isnan(found[0]) and number is None) or found[0] == number


def test_the_first_marked_number_is_told() -> None:
    assert marked_number(pd.Series(["1", "yes", "1,234 €", "2,000"])) == "1,234 €"
    assert marked_number(pd.Series(["1", "yes", "word"])) is None


@pytest.mark.parametrize(
    ("form", "unit"),
    [("{} kg", "kg"), ("{:,} m2", "m2"), ("{},5%", "%"), ("{} €/m2", "€/m2"), ("{}-01", None)],
)
def test_a_column_of_numbers_with_a_unit_is_told(form: str, unit: str | None) -> None:
    warnings: list[str] = []
    cells = pd.Series([form.format(1000 + 7 * k) for k in range(40)])
    warn_of_unit("size", cells, warnings)
    assert [f"numbers with {unit!r} behind" in each for each in warnings] == [True] * bool(unit)


def test_levels_that_are_too_many_for_features_have_keys() -> None:
    cells = [f"v{i % 70:02d}" for i in range(280)] + ["alone", *[None] * 5]
    column = category_column("a", pd.Series(cells, dtype=object))
    assert column.levels[0] == MISSING_LEVEL
    assert len(column.levels) == MAX_LEVELS
    assert column.keyed == tuple(f"v{i:02d}" for i in range(70))
    assert column.describe() == "category with 70 levels and rarer ones"
    new = pd.Series(["v00", "v69", "alone", None, "never seen", " v01 "], dtype=object)
    assert column.keys(new).tolist() == [[0], [69], [-1], [-1], [-1], [1]]
    assert column.keys(new).dtype == np.int32
    again = column_from_json(json.loads(json.dumps(column.to_json())))
    assert again == column
    few = category_column("a", pd.Series(cells[:40] * 2, dtype=object))
    assert not few.has_keys
    assert "keyed" not in few.to_json()
    assert few.keys(new).shape == (6, 0)
    twice = {**column.to_json(), "keyed": ["v00", "v00"]}
    with pytest.raises(HeadstartError, match="not described as it should be"):
        column_from_json(twice)


def test_the_number_of_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headstart.tabular.columns.MAX_KEYED", 60)
    cells = pd.Series([f"v{i % 70:02d}" for i in range(200)])
    column = category_column("a", cells)
    # Two rows of the last ten levels, three of the others.
    assert column.keyed == tuple(f"v{i:02d}" for i in range(60))
    warnings: list[str] = []
    warn_of_levels(column, cells, warnings)
    assert "and the 60 most frequent with 2 rows or more are told apart by" in warnings[0]
