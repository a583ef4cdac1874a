"""Rows that go through a chain once: which nets, which rows, and how often."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.batching import Batches
from headstart.initializers import carried
from headstart.initializers.carried import CarriedRows, carry, next_rows, row_source
from headstart.initializers.iblm import iblm_
from headstart.initializers.layer_inputs import LayerInputs, RowStream
from headstart.initializers.regression import Extent
from headstart.initializers.settings import IBLMSettings
from headstart.initializers.walk import count_calls
from headstart.network.chain import chain_elements

pytestmark = pytest.mark.usefixtures("float64")


def convolutions() -> nn.Module:
    return hs.bayesianize(
        nn.Sequential(
            nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(inplace=True)),
            nn.Conv2d(3, 4, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64, 5),
            nn.Tanh(),
            nn.Linear(5, 2),
        )
    )


def inputs_of(model: nn.Module, sampler: str, rows: int = 100, batch: int = 30) -> LayerInputs:
    """Images that their first pixel numbers."""
    x = torch.randn(rows, 1, 8, 8)
    x[:, 0, 0, 0] = torch.arange(rows)
    batches = Batches((x, torch.arange(rows) % 2), batch_size=batch, like=model)
    return LayerInputs(model, batches, sampler, count_calls(model, x[:2]))


def numbers(x: Tensor) -> list[int]:
    return x[:, 0, 0, 0].int().tolist()


@pytest.mark.parametrize("sampler", ["local", "weights"])
def test_carried_rows_are_what_the_chain_makes_of_the_data(sampler: str) -> None:
    model = convolutions()
    for layer in hs.bayesian_layers(model).values():
        # Draws are the mean.
        layer.posterior.logvar.data.fill_(-200.0)
    rows = CarriedRows(inputs_of(model, sampler), 100, 1)
    images = torch.cat([part.x for part in rows.parts])
    assert sorted(numbers(images)) == list(range(100))
    mean = nn.Sequential(*chain_elements(model))
    for at in (2, 5, 7):
        layer: Any = mean[at]
        rows.reach_(layer)
        with torch.no_grad(), hs.drawing(mean, "mean"):
            expected = mean[:at](images.clone())
        torch.testing.assert_close(torch.cat([part.x for part in rows.parts]), expected)
        (found,) = rows.inputs.of(layer, rows.parts[0])
        torch.testing.assert_close(found, rows.parts[0].x)


def test_rows_wait_where_a_layer_is_too_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    model = convolutions()
    rows = CarriedRows(inputs_of(model, "weights"), 100, 1)
    _, wide, narrow, _ = hs.bayesian_layers(model).values()
    monkeypatch.setattr(carried, "CARRIED_BUDGET", 100 * 64)
    rows.reach_(wide)
    assert rows.parts[0].x.shape[1:] == (1, 8, 8)
    # What reaches it all the same, from the data.
    (found,) = rows.inputs.of(wide, rows.take(7))
    assert found.shape == (7, 3, 6, 6)
    rows.reach_(narrow)
    assert rows.parts[0].x.shape[1:] == (64,)


def test_layers_take_other_rows_as_long_as_there_are_any() -> None:
    rows = CarriedRows(inputs_of(convolutions(), "weights"), 100, 1)
    assert rows.total == 100
    # Sixteen draws: six rows each, and what is left of a batch.
    assert len(rows.parts) >= 16
    first = numbers(rows.take(40).x)
    other = numbers(rows.beside(40).x)
    second = numbers(rows.take(40).x)
    assert other == second
    assert len(first) == len(second) == 40
    assert not set(first) & set(second)
    third = numbers(rows.take(20).x)
    assert sorted(first + second + third) == list(range(100))
    assert sorted(numbers(rows.take(40).x)) == sorted(first)


def test_small_data_come_several_times_each_with_a_draw_of_its_own() -> None:
    model = convolutions()
    rows = CarriedRows(inputs_of(model, "weights", rows=10), 45, 16)
    assert rows.total == 40
    images = torch.cat([part.x for part in rows.parts])
    assert sorted(numbers(images)) == sorted(list(range(10)) * 4)
    rows.reach_(chain_elements(model)[2])
    same = torch.cat([part.x for part in rows.parts])[[n == 3 for n in numbers(images)]]
    assert len(same.unique(dim=0)) == 4


def test_only_chains_that_fit_are_carried() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(64, 64)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.inner(x)

    model = convolutions()
    assert carry(inputs_of(model, "weights"), 50, 1, 50 * 64) is not None
    assert carry(inputs_of(model, "weights"), 50, 1, 49 * 64) is None
    hooked = convolutions()
    hooked.register_forward_hook(lambda module, args, out: 2 * out)
    assert carry(inputs_of(hooked, "weights"), 50, 1, 50 * 64) is None
    residual = hs.bayesianize(nn.Sequential(nn.Flatten(), Residual(), nn.Linear(64, 2)))
    assert carry(inputs_of(residual, "local"), 50, 1, 50 * 64) is None
    twice = nn.Linear(64, 64)
    again = hs.bayesianize(nn.Sequential(nn.Flatten(), twice, twice, nn.Linear(64, 2)))
    assert carry(inputs_of(again, "local"), 50, 1, 50 * 64) is None


def test_a_regression_with_more_rows_than_are_carried_has_its_own() -> None:
    inputs = inputs_of(convolutions(), "weights")
    rows = CarriedRows(inputs, 50, 1)
    assert row_source(inputs, rows, Extent(30, 4, 20)) is rows
    assert isinstance(row_source(inputs, rows, Extent(31, 4, 20)), RowStream)
    assert isinstance(row_source(inputs, None, Extent(30, 4, 20)), RowStream)


def test_a_chain_runs_each_row_through_its_first_layer_once() -> None:
    model = hs.bayesianize(hs.models.create("mlp-3x6", (6,), 2))
    seen = 0

    def count(module: nn.Module, args: tuple[Any, ...], out: Tensor) -> None:
        nonlocal seen
        seen += len(args[0])

    model[1].register_forward_hook(count)
    data = torch.randn(3000, 6), torch.randint(2, (3000,))
    settings = IBLMSettings(rows=1000, last_rows=2500)
    list(iblm_(model, hs.Categorical(2), Batches(data, like=model), settings))
    # The carried rows, and a few for shapes and probes.
    assert 2500 <= seen < 2600


@pytest.mark.parametrize("budget", [None, 0])
def test_what_works_in_place_on_the_data_leaves_carried_rows_as_they_were(
    budget: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if budget is not None:
        monkeypatch.setattr(carried, "CARRIED_BUDGET", budget)
    # Negative, for the first module to change all of them.
    x = -torch.rand(1000, 3)
    means = []
    for inplace in (False, True):
        torch.manual_seed(0)
        first = nn.LeakyReLU(0.1, inplace=inplace)
        body = nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1)
        model = hs.bayesianize(nn.Sequential(first, *body))
        hs.initialize_(model, "iblm", hs.Gaussian(), (x.clone(), x.sum(1)), seed=0)
        means.append([layer.posterior.mean for layer in hs.bayesian_layers(model).values()])
    torch.testing.assert_close(*means, rtol=1e-12, atol=1e-12)


def test_no_row_comes_twice_however_many_were_taken() -> None:
    for counts in ([3, 5], [7, 2, 4], [1, 1, 9, 3], [6]):
        total = sum(counts)
        for taken in range(3 * total):
            for rows in range(1, total + 1):
                found = next_rows(counts, taken, rows)
                assert sum(end - start for start, end in found) == rows
                for (start, end), count in zip(found, counts, strict=True):
                    assert 0 <= start < count
                    assert 0 <= end - start <= count
