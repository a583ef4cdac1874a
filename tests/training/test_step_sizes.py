"""Step sizes follow from the layers' inputs, the average from its definition."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.errors import HeadstartError
from headstart.training.step_sizes import (
    CHANGE,
    LOOK_AHEAD,
    MAX_RATE,
    RECENCY,
    SQUARES,
    Averaged,
    Plateau,
    choose_rates,
    improvement,
    input_sums,
)


def test_input_sums_of_a_dense_layer_are_those_of_its_rows() -> None:
    x = torch.randn(50, 4, dtype=torch.float64)
    model = hs.bayesianize(nn.Linear(4, 3).double())
    expected = float(x.abs().sum(1).mean()) + 1
    assert input_sums(model, x)[""] == pytest.approx(expected, rel=1e-12)


def test_input_sums_of_a_convolution_are_those_of_its_patches() -> None:
    op = nn.Conv2d(2, 4, 3, stride=2, groups=2).double()
    x = torch.randn(5, 2, 7, 7, dtype=torch.float64)
    patches = x.abs().unfold(2, 3, 2).unfold(3, 3, 2).sum((-1, -2))
    expected = float(patches.mean()) + 1
    assert input_sums(hs.bayesianize(op), x)[""] == pytest.approx(expected, rel=1e-12)


def test_a_layer_called_twice_counts_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + self.layer(x)

    model, x = hs.bayesianize(Twice()), torch.ones(4, 3)
    assert input_sums(model, x)["layer"] == pytest.approx(8.0)


def test_a_step_in_the_worst_direction_moves_a_layer_by_its_rate_times_the_input_sum() -> None:
    """What the sum is for: the bound is met with equality where signs agree."""
    x = torch.rand(6, 5, dtype=torch.float64)
    layer, rate = nn.Linear(5, 1).double(), 1e-3
    moved = copy.deepcopy(layer)
    with torch.no_grad():
        for p in moved.parameters():
            p += rate
    change = float((moved(x) - layer(x)).detach().abs().mean())
    assert change == pytest.approx(rate * input_sums(hs.bayesianize(layer), x)[""], rel=1e-9)


def test_rates_bound_the_change_of_the_output() -> None:
    sums = [700.0, 60.0, 40.0]
    rates = choose_rates(sums)
    assert rates.mean * sum(sums) == pytest.approx(CHANGE)
    assert choose_rates([1.0]).mean == choose_rates([1.0, 1.0]).mean == MAX_RATE
    assert choose_rates([1.0] * 6).mean == MAX_RATE / 5
    assert rates.spread <= rates.mean
    assert choose_rates([1e5]).spread == choose_rates([1e5]).mean


def test_inputs_without_end_or_size_are_refused() -> None:
    for sums in ([math.nan], [math.inf], [0.0]):
        with pytest.raises(HeadstartError, match="standardize the inputs"):
            choose_rates(sums)


def by_hand(
    start: Tensor, curvature: Tensor, rate: float, warmup: int, steps: int
) -> tuple[Tensor, Tensor]:
    """The average, as a weighted sum over all iterates, and the last iterate."""
    x, z, squares = start.clone(), start.clone(), torch.zeros_like(start)
    iterates, weights = [start.clone()], [1.0]
    for t in range(1, steps + 1):
        y = (1 - LOOK_AHEAD) * x + LOOK_AHEAD * z
        g = curvature * y
        squares = SQUARES * squares + (1 - SQUARES) * g**2
        share = min(1.0, t / warmup)
        z = z - rate * share * g / ((squares / (1 - SQUARES**t)).sqrt() + 1e-8)
        iterates.append(z)
        weights.append(share**2 * (t / warmup) ** RECENCY)
        total = sum(weights)
        x = torch.stack([w / total * each for w, each in zip(weights, iterates, strict=True)]).sum(
            0
        )
    return x, z


def run(optimizer: Averaged, p: nn.Parameter, curvature: Tensor, steps: int) -> None:
    for _ in range(steps):
        optimizer.ahead_()
        optimizer.zero_grad()
        (0.5 * curvature * p.square()).sum().backward()
        optimizer.step()


def test_parameters_are_the_average_of_their_iterates() -> None:
    curvature = torch.tensor([1.0, 30.0, 0.01], dtype=torch.float64)
    start = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    p = nn.Parameter(start.clone())
    optimizer = Averaged([p], lr=0.05, warmup=7)
    run(optimizer, p, curvature, 40)
    x, z = by_hand(start, curvature, 0.05, 7, 40)
    torch.testing.assert_close(p.detach(), x, rtol=0, atol=1e-9)
    torch.testing.assert_close(optimizer.state[p]["iterate"], z, rtol=0, atol=1e-9)


def test_the_start_is_left_slowly() -> None:
    """After one step of a long warm-up next to nothing has changed, however large the rate."""
    p = nn.Parameter(torch.ones(1, dtype=torch.float64))
    run(Averaged([p], lr=1.0, warmup=100), p, torch.ones(1, dtype=torch.float64), 1)
    assert 0 < 1 - float(p.detach()) < 1e-5


def test_it_resumes_to_the_bit() -> None:
    curvature = torch.tensor([1.0, 5.0])
    whole, halves = (nn.Parameter(torch.tensor([1.0, 2.0])) for _ in range(2))
    run(Averaged([whole], lr=0.1, warmup=5), whole, curvature, 12)
    first = Averaged([halves], lr=0.1, warmup=5)
    run(first, halves, curvature, 6)
    second = Averaged([halves], lr=0.1, warmup=5)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    run(second, halves, curvature, 6)
    assert torch.equal(whole, halves)


def test_a_parameter_without_a_gradient_stays() -> None:
    used, idle = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    optimizer = Averaged([used, idle], lr=0.1, warmup=1)
    run(optimizer, used, torch.ones(1), 5)
    assert float(idle.detach()) == 1.0
    assert float(used.detach()) < 1.0


def test_there_and_back_changes_nothing() -> None:
    p = nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float64))
    optimizer = Averaged([p], lr=0.1, warmup=2)
    run(optimizer, p, torch.ones(2, dtype=torch.float64), 5)
    before = p.detach().clone()
    optimizer.ahead_()
    optimizer.ahead_()
    assert not torch.equal(p, before)
    optimizer.back_()
    optimizer.back_()
    torch.testing.assert_close(p.detach(), before, rtol=0, atol=1e-14)


def test_a_warm_up_of_no_step_is_refused() -> None:
    with pytest.raises(HeadstartError, match="at least one step"):
        Averaged([nn.Parameter(torch.ones(1))], lr=0.1, warmup=0)


def test_improvement_is_a_difference_of_means_with_its_error() -> None:
    values = torch.randn(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    before, recent = values[60:80], values[80:]
    gain, error = improvement(values.tolist())
    assert gain == pytest.approx(float(before.mean() - recent.mean()), abs=1e-12)
    assert error == pytest.approx(math.sqrt(float(before.var() + recent.var()) / 20), abs=1e-12)


def test_pure_noise_is_a_plateau_and_a_slope_beyond_the_noise_is_not() -> None:
    noise = torch.randn(2000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    slope = torch.linspace(20, 0, 2000, dtype=torch.float64)
    flat, falling = Plateau(), Plateau()
    assert any(flat.reached(noise[:t].tolist()) for t in range(600, 2001, 100))
    assert not any(falling.reached((noise + slope)[:t].tolist()) for t in range(600, 2001, 100))


def test_nobody_asks_before_the_first_steps() -> None:
    assert not Plateau(min_steps=100, patience=1).reached([1.0] * 99)
    assert Plateau(min_steps=100, patience=1).reached([1.0] * 100)


def test_a_record_too_short_is_refused() -> None:
    with pytest.raises(HeadstartError, match="too short"):
        improvement([1.0, 2.0, 3.0])
