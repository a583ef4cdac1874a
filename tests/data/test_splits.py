"""Splits are seeded partitions; standardization is exact and sees only the training part."""

from __future__ import annotations

import pytest
import torch

from headstart.data import Dataset, Split, load, split, split_in_time, standardize
from headstart.errors import HeadstartError


def table(n: int, test: tuple[torch.Tensor, torch.Tensor] | None = None) -> Dataset:
    x = torch.arange(2.0 * n).reshape(n, 2)
    return Dataset("t", "t", "regression", x, x[:, :1] / 2, test, ("a", "b"), "y", ())


@pytest.mark.parametrize(
    ("n", "fraction", "test_rows"), [(20, 0.1, 2), (9568, 0.1, 957), (20, 0.35, 7)]
)
def test_a_split_is_a_partition_with_rows_kept_together(
    n: int, fraction: float, test_rows: int
) -> None:
    parts = split(table(n), 0, fraction=fraction)
    assert len(parts.x_test) == len(parts.y_test) == test_rows
    x, y = torch.cat([parts.x_train, parts.x_test]), torch.cat([parts.y_train, parts.y_test])
    assert torch.equal(x[:, :1], 2 * y)
    assert torch.equal(x[:, 0].sort().values, table(n).x[:, 0])


def test_splits_repeat_and_differ_by_index_and_seed() -> None:
    rows = {
        key: tuple(split(table(500), key[0], seed=key[1]).y_test.flatten().tolist())
        for key in [(0, 0), (1, 0), (0, 1)]
    }
    assert len(set(rows.values())) == 3
    assert tuple(split(table(500), 1).y_test.flatten().tolist()) == rows[1, 0]


def test_splits_are_pinned_for_every_platform() -> None:
    assert split(table(20), 0, fraction=0.25).y_test.flatten().tolist() == [
        15.0,
        14.0,
        12.0,
        16.0,
        1.0,
    ]
    assert split(table(20), 4, fraction=0.25, seed=7).y_test.flatten().tolist() == [
        18.0,
        8.0,
        14.0,
        2.0,
        11.0,
    ]


def test_the_official_test_set_is_every_split() -> None:
    official = (torch.full((3, 2), -1.0), torch.full((3, 1), -2.0))
    for index in (0, 3):
        parts = split(table(20, official), index)
        assert len(parts.x_train) == 20
        assert parts.x_test is official[0]
        assert parts.y_test is official[1]


@pytest.mark.parametrize("fraction", [0.0, 1.0, 0.001, -0.5])
def test_fractions_that_leave_nothing(fraction: float) -> None:
    with pytest.raises(HeadstartError, match="choose another"):
        split(table(20), 0, fraction=fraction)


@pytest.mark.parametrize(("index", "seed"), [(-1, 0), (0, -1)])
def test_negative_numbers(index: int, seed: int) -> None:
    with pytest.raises(HeadstartError, match="numbered from 0"):
        split(table(20), index, seed=seed)


def drawn(dtype: torch.dtype = torch.float64) -> Split:
    generator = torch.Generator().manual_seed(3)
    x = (
        torch.randn(50, 3, generator=generator, dtype=torch.float64)
        * torch.tensor([1e-3, 2.0, 5e4])
        + 7e3
    ).to(dtype)
    y = (torch.randn(50, 1, generator=generator, dtype=torch.float64) * 17 + 454).to(dtype)
    return Split(x[:40], y[:40], x[40:], y[40:])


def test_standardization_is_exact_in_float64_and_fitted_on_train() -> None:
    parts = drawn()
    scaled, scaling = standardize(parts, targets=True)
    mean = parts.x_train.sum(0) / 40
    scale = (((parts.x_train - mean) ** 2).sum(0) / 40).sqrt()
    for actual, expected in [
        (scaling.x_mean, mean),
        (scaling.x_scale, scale),
        (scaled.x_train, (parts.x_train - mean) / scale),
        (scaled.x_test, (parts.x_test - mean) / scale),
        (scaled.x_train.mean(0), torch.zeros(3)),
        (scaled.y_train.std(0, correction=0), torch.ones(1)),
        (scaling.in_units(scaled.y_test), parts.y_test),
        (scaling.y_scale, parts.y_train.std(0, correction=0)),
    ]:
        torch.testing.assert_close(actual, expected.double(), rtol=1e-11, atol=1e-9)


def test_float32_is_computed_in_float64_and_stays_float32() -> None:
    parts = drawn(torch.float32)
    scaled, scaling = standardize(parts, targets=True)
    double = Split(
        *(getattr(parts, name).double() for name in ("x_train", "y_train", "x_test", "y_test"))
    )
    exact, _ = standardize(double, targets=True)
    assert scaling.x_mean.dtype == torch.float64
    assert torch.equal(scaled.x_train, exact.x_train.float())
    assert torch.equal(scaled.y_test, exact.y_test.float())


def test_targets_are_left_alone_unless_asked_for() -> None:
    parts = drawn()
    scaled, scaling = standardize(parts, targets=False)
    assert torch.equal(scaled.y_train, parts.y_train)
    assert (scaling.y_mean.item(), scaling.y_scale.item()) == (0.0, 1.0)


def test_constant_columns_become_zero_whatever_rounding_does() -> None:
    x = torch.full((977, 2), 0.1, dtype=torch.float64)
    x[:, 1] = torch.arange(977)
    # The mean of equal numbers need not be that number.
    assert x[:, 0].mean() != 0.1 or x[:, 0].std() == 0
    y = torch.full((977, 1), -3.3)
    scaled, scaling = standardize(Split(x, y, x[:1] + 1, y[:1]), targets=True)
    assert torch.equal(scaled.x_train[:, 0], torch.zeros(977, dtype=torch.float64))
    assert torch.equal(scaled.y_train, torch.zeros(977, 1))
    assert scaling.x_scale[0] == scaling.y_scale == 1
    torch.testing.assert_close(scaled.x_test[0, 0], torch.tensor(1.0, dtype=torch.float64))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_missing_values_are_named(bad: float) -> None:
    parts = drawn()
    parts.x_train[3, 1] = bad
    with pytest.raises(HeadstartError, match="column 1:"):
        standardize(parts, targets=False)


def test_labels_are_not_standardized() -> None:
    parts = drawn()
    labels = Split(
        parts.x_train,
        torch.zeros(40, dtype=torch.int64),
        parts.x_test,
        torch.ones(10, dtype=torch.int64),
    )
    assert standardize(labels, targets=False)[0].y_test.dtype == torch.int64
    with pytest.raises(HeadstartError, match="labels"):
        standardize(labels, targets=True)


def test_images_are_normalised_per_channel() -> None:
    generator = torch.Generator().manual_seed(5)
    x = torch.randint(0, 256, (9, 3, 4, 5), generator=generator, dtype=torch.uint8)
    x[:, 1] = x[:, 1] // 4 + 100
    x[:, 2] = 77
    y = torch.zeros(7, dtype=torch.int64)
    scaled, scaling = standardize(Split(x[:7], y, x[7:], y[:2]), targets=False)
    unit = x.double() / 255
    mean = unit[:7].mean((0, 2, 3), keepdim=True)
    scale = unit[:7].std((0, 2, 3), correction=0, keepdim=True)
    torch.testing.assert_close(scaling.x_mean[None, :2], mean[:, :2], rtol=1e-13, atol=0)
    torch.testing.assert_close(scaling.x_scale[None, :2], scale[:, :2], rtol=1e-13, atol=0)
    assert scaling.x_scale[2].item() == 1
    assert scaled.x_train.dtype == torch.float32
    expected = (unit[7:, :2] - mean[:, :2]) / scale[:, :2]
    torch.testing.assert_close(scaled.x_test[:, :2].double(), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(scaled.x_train[:, 2], torch.zeros(7, 4, 5))


def test_digits_have_constant_pixels() -> None:
    scaled, scaling = standardize(split(load("digits"), 2), targets=False)
    assert scaled.x_train.isfinite().all()
    assert (scaling.x_scale == 1).any()


def test_a_split_is_independent_of_how_the_rows_were_drawn() -> None:
    """The toy's inputs come from PCG64(0): the same stream would split them in order of size."""
    parts = split(load("toy"), 0)
    assert float(parts.x_test.min()) < -5 < 5 < float(parts.x_test.max())


def test_stretches_of_a_series_are_disjoint_and_cover_it() -> None:
    series = load("diabetes")
    parts = [split_in_time(series, index) for index in range(10)]
    rows = torch.cat([part.x_test for part in parts])
    assert len(rows) == len(series.x)
    assert {tuple(row) for row in rows.tolist()} == {tuple(row) for row in series.x.tolist()}
    # Nothing of a stretch is among its training rows, which keep their order.
    first = parts[5]
    assert torch.equal(first.x_test, series.x[:44])
    assert torch.equal(first.x_train, series.x[44:])
    with pytest.raises(HeadstartError, match="splits 0 to 9, not 10"):
        split_in_time(series, 10)
