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
    MIN_GAIN,
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


def test_small_noise_is_a_plateau_and_a_slope_is_not() -> None:
    noise = torch.randn(2000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    slope = torch.linspace(0.2, 0, 2000, dtype=torch.float64)
    asked = range(600, 2001, 100)
    assert any(plateau_reached((0.01 * noise[:t]).tolist(), 100) for t in asked)
    assert not any(plateau_reached((0.01 * noise + slope)[:t].tolist(), 100) for t in asked)


def test_noise_that_could_hide_a_gain_is_no_plateau() -> None:
    """A fall of 1e-3 of the noise at each step: windows are too short to tell it from none."""
    noise = torch.randn(4000, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    falling = noise - 1e-3 * torch.arange(4000)
    assert not any(plateau_reached(falling[:t].tolist(), 100) for t in range(500, 4001, 100))


def test_the_tolerance_is_half_a_hundredth_of_a_nat_or_of_the_level() -> None:
    for level, scale in ((0.0, 1.0), (0.5, 1.0), (200.0, 200.0)):
        for gain, flat in ((0.9, True), (1.1, False)):
            fall = gain * MIN_GAIN * scale
            record = [level + fall] * 80 + [level] * 20
            gained, error = improvement(record)
            assert (gained, error) == (pytest.approx(fall), 0.0)
            # The checks before saw no fall at all.
            assert plateau_reached(record, 20) is flat


def test_a_single_batch_does_not_set_the_tolerance() -> None:
    """A fall of 0.3 from window to window, and a batch far off wherever it is checked."""
    record = [2 - 0.3 * n / 960 for n in range(4800)]
    for check in range(399, 4800, 400):
        record[check] += 200
    assert not plateau_reached(record, 400)


def stops_of(sd: float, fall: float, seed: int) -> list[int]:
    """The first stop of each of 40 records of 1500 values that fall by so much at each."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(40, 1500, generator=generator, dtype=torch.float64)
    records = 3 - fall * torch.arange(1500) + sd * noise
    found = []
    for record in records.tolist():
        stops = (t for t in range(500, 1501, 50) if plateau_reached(record[:t], 50))
        found += [t for t in [next(stops, None)] if t is not None]
    return found


def test_a_rise_by_chance_does_not_make_up_for_the_noise() -> None:
    """Noise of 1 hides a fall of 0.015 and more from window to window; it is no plateau."""
    assert len(stops_of(sd=1.0, fall=1.5e-4, seed=4)) <= 1


def test_noise_says_how_long_a_flat_record_is_no_plateau() -> None:
    """`10 (s/0.015)²` values at a level of 3, where 0.015 matters: 1000 for noise of 0.15."""
    stops = stops_of(sd=0.15, fall=0.0, seed=5)
    assert len(stops) >= 20
    assert min(stops) >= 1000


def test_a_record_that_gets_worse_is_told() -> None:
    """However noisy: it rises by eight standard errors from window to window."""
    noise = torch.randn(1000, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    record = (0.1 * noise + 5e-4 * torch.arange(1000)).tolist()
    assert not plateau_reached(record[:300], 40)
    assert plateau_reached(record, 40)


def test_one_check_is_not_enough() -> None:
    """The record falls until value 60; checks see a plateau only from there on."""
    record = [1 - n / 60 for n in range(60)] + [0.0] * 300
    stops = [t for t in range(20, 360, 20) if plateau_reached(record[:t], 20)]
    flat = [t for t in range(20, 360, 20) if sum(improvement(record[:t])) < MIN_GAIN]
    assert stops[0] == flat[0] + 40


def test_twenty_values_are_the_shortest_record_or_more_where_asked() -> None:
    assert not plateau_reached([1.0] * 21)
    assert plateau_reached([1.0] * 22)
    assert not plateau_reached([1.0] * 31, min_record=30)
    assert plateau_reached([1.0] * 32, min_record=30)


def test_scores_that_are_no_numbers_are_no_plateau() -> None:
    assert not plateau_reached([math.nan] * 40)


def moved(model: nn.Module, shift: float, widen: float) -> None:
    """The first layer's means by `shift` of its sds, its log sds by `widen`."""
    posterior = model[0].posterior
    with torch.no_grad():
        posterior.logvar += 2 * widen
        posterior.mean += shift * posterior.variance().sqrt()


def test_movement_is_in_posterior_sds_of_the_layer_that_moved_most() -> None:
    model = hs.bayesianize(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).double())
    tail = Tail(model)
    assert tail.movement(1, 1e-3) is None
    for step in range(100, 1001, 100):
        tail.see(step)
    moved(model, 0.5, 0.25)
    found = tail.movement(1000, 1e-2)
    assert found is not None
    assert (found.since, found.until) == (900, 1000)
    assert found.means == pytest.approx(0.5, abs=1e-12)
    assert found.log_sds == pytest.approx(0.25, abs=1e-12)
    assert found.allowed == pytest.approx(0.5)
    assert not found.converged


def test_weights_without_spread_are_not_measured() -> None:
    model = hs.bayesianize(nn.Sequential(nn.Linear(3, 4)).double())
    tail = Tail(model)
    with torch.no_grad():
        model[0].posterior.logvar[0] = -math.inf
    for step in (100, 200):
        tail.see(step)
    with torch.no_grad():
        model[0].posterior.logvar[0] = 0.0
    moved(model, 0.5, 0.0)
    found = tail.movement(300, 1e-3)
    assert found is not None
    assert found.means == pytest.approx(0.5, abs=1e-12)
    with torch.no_grad():
        model[0].posterior.logvar[:] = -math.inf
    assert tail.movement(300, 1e-3) is None


def test_converged_is_little_movement_where_more_was_possible() -> None:
    assert Movement(900, 1000, MAX_MOVEMENT, 0.05, 0.1).converged
    assert not Movement(900, 1000, 1.01 * MAX_MOVEMENT, 0.0, 0.1).converged
    # Variances that went as far as their rate lets them.
    assert not Movement(900, 1000, 0.0, 0.05, 0.05).converged
    assert not Movement(98, 100, 0.0, 0.0, 0.1).converged
    assert str(Movement(900, 1000, 0.01, 0.02, 0.1)).startswith("converged: in the last 100 steps")


def test_the_tail_goes_on_from_its_state() -> None:
    model = hs.bayesianize(nn.Sequential(nn.Linear(3, 4)))
    one, other = Tail(model), Tail(model)
    for step in range(10, 101, 10):
        one.see(step)
    other.load_state_(one.state())
    moved(model, 0.3, 0.0)
    assert one.movement(101, 1e-3) == other.movement(101, 1e-3) is not None
