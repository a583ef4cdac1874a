"""Step sizes follow from the layers' inputs."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

import headstart as hs
from headstart.errors import HeadstartError
from headstart.linalg.affine import design
from headstart.network.layer import bayesian_layers
from headstart.training.step_sizes import (
    MAX_CHANGE,
    MAX_MEAN_RATE,
    MIN_WARMUP,
    WARMUP,
    choose_rates,
    measure_inputs,
    rates_at,
)


def reach(model: nn.Module, x: Tensor, name: str = "") -> float:
    return measure_inputs(model, x)[name].reach


def quiet(layer: nn.Module) -> nn.Module:
    """With outputs so small that a reach is not divided by them."""
    with torch.no_grad():
        for p in layer.parameters():
            p.mul_(1e-3)
    model = hs.bayesianize(layer)
    for each in bayesian_layers(model).values():
        nn.init.constant_(each.posterior.logvar, -30.0)
    return model


def test_the_reach_of_a_dense_layer_is_the_sum_of_its_inputs() -> None:
    x = torch.randn(50, 4, dtype=torch.float64)
    model = quiet(nn.Linear(4, 3).double())
    expected = float(x.abs().sum(1).mean()) + 1
    assert reach(model, x) == pytest.approx(expected, rel=1e-12)


def test_the_reach_of_a_convolution_is_that_of_its_patches() -> None:
    op = nn.Conv2d(2, 4, 3, stride=2, groups=2).double()
    x = torch.randn(5, 2, 7, 7, dtype=torch.float64)
    patches = x.abs().unfold(2, 3, 2).unfold(3, 3, 2).sum((-1, -2))
    expected = float(patches.mean()) + 1
    assert reach(quiet(op), x) == pytest.approx(expected, rel=1e-12)


def test_layers_without_a_posterior_count_where_they_learn() -> None:
    net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    model, x = hs.bayesianize(net, where="last"), torch.randn(20, 3)
    assert list(measure_inputs(model, x)) == ["0", "2"]
    for p in model[0].parameters():
        p.requires_grad_(False)
    assert list(measure_inputs(model, x)) == ["2"]


def test_batch_norm_is_measured_as_it_trains_and_left_as_it_was() -> None:
    with pytest.warns(UserWarning, match="BatchNorm"):
        model = hs.bayesianize(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)).double())
    x = 100 * torch.randn(500, 2, dtype=torch.float64)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    found = measure_inputs(model.train(), x)["1"].calls[0, 0]
    # Rows of unit variance: 2 √(2/π), and the bias's 1.
    assert float(found) == pytest.approx(1 + 2 * math.sqrt(2 / math.pi), rel=0.1)
    assert all(torch.equal(before[name], buffer) for name, buffer in model.named_buffers())


def test_a_layer_may_be_called_by_keyword() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(input=x)

    model, x = quiet(Named()), torch.randn(20, 3)
    assert reach(model, x, "layer") == pytest.approx(float(x.abs().sum(1).mean()) + 1, rel=1e-6)


def test_a_layer_called_twice_counts_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + self.layer(x)

    model, x = quiet(Twice()), torch.ones(4, 3)
    assert reach(model, x, "layer") == pytest.approx(8.0)


def test_a_step_in_the_worst_direction_moves_a_layer_by_its_rate_times_the_input_sum() -> None:
    """What the sum is for: the bound is met with equality where signs agree."""
    x = torch.rand(6, 5, dtype=torch.float64)
    layer, rate = nn.Linear(5, 1).double(), 1e-3
    moved = copy.deepcopy(layer)
    with torch.no_grad():
        for p in moved.parameters():
            p += rate
    change = float((moved(x) - layer(x)).detach().abs().mean())
    assert change == pytest.approx(rate * reach(quiet(layer), x), rel=1e-9)


def test_a_reach_is_seen_beside_what_the_layer_gives() -> None:
    layer, x = nn.Linear(2, 1, bias=False).double(), torch.randn(1000, 2, dtype=torch.float64)
    nn.init.constant_(layer.weight, 100.0)
    model = hs.bayesianize(layer)
    nn.init.constant_(model.posterior.logvar, -40.0)
    sd = float((100 * x.sum(1)).std(correction=0))
    assert reach(model, x) == pytest.approx(float(x.abs().sum(1).mean()) / sd, rel=1e-6)


def test_mean_inputs_are_those_of_the_patches_of_each_group() -> None:
    op = nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2).double()
    x = torch.rand(5, 2, 7, 7, dtype=torch.float64)
    found = measure_inputs(hs.bayesianize(op), x)[""].mean
    expected = design(op, x).mean((1, 2)).repeat_interleave(2, 0)
    assert found is not None
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_a_layer_without_bias_has_no_center_and_one_without_groups_one_for_all_units() -> None:
    x = torch.rand(5, 3)
    assert measure_inputs(hs.bayesianize(nn.Linear(3, 4, bias=False)), x)[""].mean is None
    mean = measure_inputs(hs.bayesianize(nn.Linear(3, 4)), x)[""].mean
    assert mean is not None
    torch.testing.assert_close(mean, x.mean(0, keepdim=True))


def test_rates_bound_the_change_of_the_output() -> None:
    sums = [700.0, 60.0, 40.0]
    rates = choose_rates(sums)
    assert rates.mean * sum(sums) == pytest.approx(MAX_CHANGE)
    assert choose_rates([1.0]).mean == choose_rates([1.0, 1.0]).mean == MAX_MEAN_RATE
    assert choose_rates([1.0] * 6).mean == MAX_MEAN_RATE / 5
    assert rates.spread <= rates.mean
    assert choose_rates([1e5]).spread == choose_rates([1e5]).mean
    assert choose_rates([1e4]).warmup == WARMUP * 1e4
    assert rates_at(0.5).warmup == choose_rates([1.0]).warmup == MIN_WARMUP


def test_inputs_without_end_or_size_are_refused() -> None:
    for sums in ([math.nan], [math.inf], [0.0]):
        with pytest.raises(HeadstartError, match="standardize the inputs"):
            choose_rates(sums)


def test_stiff_directions_are_the_leading_eigenvectors_of_the_patches() -> None:
    """A convolution's patches of spread eigenvalues, against a decomposition of the design."""
    op = nn.Conv2d(4, 5, 4, stride=2, padding=1).double()
    x = torch.randn(40, 4, 8, 8, dtype=torch.float64).cumsum(2).cumsum(3) + 1
    found = measure_inputs(hs.bayesianize(op), x)[""]
    rows = design(op, x)[0].flatten(0, 1)
    values, vectors = torch.linalg.eigh(torch.cov(rows.T, correction=0))
    assert found.directions is not None
    assert found.variances is not None
    assert found.directions.shape == (4, 64)
    torch.testing.assert_close(found.variances, values.flip(0)[:4], rtol=1e-3, atol=0)
    overlap = found.directions @ vectors.flip(1)[:, :4]
    torch.testing.assert_close(overlap.square().sum(1), torch.ones(4).double(), rtol=0, atol=1e-2)
    assert found.damping is not None
    torch.testing.assert_close(
        found.damping, (values[-4] / values.flip(0)[:4]).sqrt(), rtol=1e-3, atol=0
    )


def test_few_inputs_and_groups_of_units_have_no_stiff_directions() -> None:
    few = measure_inputs(hs.bayesianize(nn.Linear(15, 2)), torch.randn(9, 15))[""]
    grouped = measure_inputs(hs.bayesianize(nn.Conv1d(32, 4, 3, groups=2)), torch.randn(9, 32, 8))[
        ""
    ]
    assert few.directions is few.damping is grouped.directions is grouped.damping is None


def test_constant_inputs_have_directions_that_are_finite() -> None:
    found = measure_inputs(hs.bayesianize(nn.Linear(32, 2)), torch.ones(9, 32))[""]
    assert found.directions is not None
    assert found.damping is not None
    assert found.directions.isfinite().all()
    assert torch.equal(found.damping, torch.ones(2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fewer_rows_than_directions_do_not_stop_the_steps(dtype: torch.dtype) -> None:
    """Nine rows vary in eight directions around their mean, of twenty that are asked for."""
    x = torch.randn(9, 320, dtype=dtype, generator=torch.Generator().manual_seed(0))
    x[:, :4] *= 9
    found = measure_inputs(hs.bayesianize(nn.Linear(320, 2).to(dtype)), x)[""]
    assert found.damping is not None
    values = torch.linalg.eigvalsh(torch.cov(x.double().T, correction=0)).flip(0)
    expected = torch.ones(20, dtype=torch.float64)
    expected[:8] = (values[7] / values[:8]).sqrt()
    torch.testing.assert_close(found.damping.double(), expected, rtol=1e-3, atol=0)


def test_wide_nets_are_damped_and_others_are_not() -> None:
    assert choose_rates([1100.0]).damped
    assert not choose_rates([900.0]).damped
