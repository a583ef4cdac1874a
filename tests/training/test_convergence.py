"""A plateau is told from a slope by its noise; movement is in posterior standard deviations."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import headstart as hs
from headstart.errors import HeadstartError
from headstart.training.convergence import (
    MAX_MOVEMENT,
    Movement,
    Tail,
    improvement,
    plateau_reached,
)


def test_improvement_is_a_difference_of_means_with_its_error() -> None:
    values = torch.randn(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    before, recent = values[60:80], values[80:]
    gain, error = improvement(values.tolist())
    assert gain == pytest.approx(float(before.mean() - recent.mean()), abs=1e-12)
    assert error == pytest.approx(math.sqrt(float(before.var() + recent.var()) / 20), abs=1e-12)


def test_a_record_too_short_is_refused() -> None:
    with pytest.raises(HeadstartError, match="too short"):
        improvement([1.0, 2.0, 3.0])


def test_pure_noise_is_a_plateau_and_a_slope_beyond_the_noise_is_not() -> None:
    noise = torch.randn(2000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    slope = torch.linspace(20, 0, 2000, dtype=torch.float64)
    asked = range(600, 2001, 100)
    assert any(plateau_reached(noise[:t].tolist(), 100) for t in asked)
    assert not any(plateau_reached((noise + slope)[:t].tolist(), 100) for t in asked)


def test_one_check_without_an_improvement_is_not_enough() -> None:
    """The record falls until step 60; only from there on do checks miss."""
    record = [1 - n / 60 for n in range(60)] + [0.0] * 200
    stops = [t for t in range(20, 260, 20) if plateau_reached(record[:t], 20)]
    missed = [t for t in range(20, 260, 20) if improvement(record[:t])[0] <= 0]
    assert stops[0] == missed[0] + 40


def test_twenty_values_are_the_shortest_record() -> None:
    assert not plateau_reached([1.0] * 21)
    assert plateau_reached([1.0] * 22)


def moved(model: nn.Module, shift: float, widen: float) -> None:
    """The first layer's means by `shift` of its sds, its log sds by `widen`."""
    posterior = model[0].posterior
    with torch.no_grad():
        posterior.logvar += 2 * widen
        posterior.mean += shift * posterior.variance().sqrt()


@pytest.mark.parametrize("total", [100, None])
def test_movement_is_in_posterior_sds_of_the_layer_that_moved_most(total: int | None) -> None:
    model = hs.bayesianize(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).double())
    tail = Tail(model, total)
    assert tail.movement(1) is None
    for step in range(1, 101):
        tail.see(step, due=step % 10 == 0)
    moved(model, 0.5, 0.25)
    found = tail.movement(100)
    assert found is not None
    assert (found.since, found.until) == (90, 100)
    assert found.means == pytest.approx(0.5, abs=1e-12)
    assert found.log_sds == pytest.approx(0.25, abs=1e-12)
    assert not found.converged


def test_converged_is_a_tenth_of_a_posterior_sd() -> None:
    assert Movement(90, 100, MAX_MOVEMENT, MAX_MOVEMENT).converged
    assert not Movement(90, 100, 0.0, 1.01 * MAX_MOVEMENT).converged
    assert str(Movement(90, 100, 0.01, 0.02)).startswith("converged: in the last 10 steps")


def test_the_tail_goes_on_from_its_state() -> None:
    model = hs.bayesianize(nn.Sequential(nn.Linear(3, 4)))
    one, other = Tail(model, None), Tail(model, None)
    for step in range(10, 101, 10):
        one.see(step, due=True)
    other.load_state_(one.state())
    moved(model, 0.3, 0.0)
    assert one.movement(101) == other.movement(101) is not None
