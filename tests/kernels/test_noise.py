"""Antithetic and common noise: each sample's is right, and averages are not worse for it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import headstart as hs
from headstart.kernels.noise import Noise, Reused, folded, fresh
from headstart.network.forward import draw

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("samples", [1, 2, 3, 4, 5, 8, 16])
@pytest.mark.parametrize(
    ("rows", "units", "shift"),
    [
        (1, 2048, 2048),
        (64, 50, 69),
        (32, 50, 69),
        (64, 25, 36),
        (64, 20, 29),
        (64, 1, 64),
        (400, 15, 6000),
        (6, 6, 36),
    ],
)
def test_shape_and_parts(samples: int, rows: int, units: int, shift: int) -> None:
    """Each number comes with both signs, at other places, never at the same unit; but for few."""
    size, half = rows * units, -(-samples // 2)
    noise = folded(Reused(samples, rows)((samples * rows, units), torch.empty(0)), 2)
    assert noise.shape == (samples * rows, units)
    assert len(noise.abs().unique()) == size + (half - 1) * shift
    each = noise.view(samples, size)
    if samples > 1 and samples % 2 == 0:
        torch.testing.assert_close(each[:half], -each[half:])
    if half > 1:
        assert torch.equal(each[1, : size - shift], each[0, shift:])
    assert rows == 1 or shift == size or all(j * shift % units for j in range(1, half))


def test_weights_are_shifted_by_units() -> None:
    noise = folded(Reused(4)((4, 128, 50), torch.empty(0)), 3).flatten(1)
    assert torch.equal(noise[1, :-119], noise[0, 119:])
    assert torch.equal(noise[:2], -noise[2:])


def test_each_sample_is_standard_normal_and_its_numbers_independent() -> None:
    """Fixed n: z-tests of every mean, variance and correlation of each sample's numbers."""
    n, samples, width = 4000, 4, 3
    draws = [folded(Reused(samples, 2)((samples * 2, width), torch.empty(0)), 2) for _ in range(n)]
    # Two rows of three: all that one sample sees.
    each = torch.stack(draws).view(n, samples, 2 * width)
    assert float((each.mean(0) * n**0.5).abs().max()) < 4.5
    for sample in range(samples):
        moments = each[:, sample].T @ each[:, sample] / n
        z = (
            (moments - torch.eye(2 * width))
            / torch.where(torch.eye(2 * width) > 0, 2.0, 1.0).sqrt()
            * n**0.5
        )
        assert float(z.abs().max()) < 4.5


def estimates(noise: Noise, samples: int, repeats: int) -> torch.Tensor:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    model, x = hs.bayesianize(net), torch.linspace(-1, 1, 12).view(4, 3)
    with torch.no_grad():
        losses = [
            (draw(model, x, samples, "local", noise) - 3).square().mean() for _ in range(repeats)
        ]
    return torch.stack(losses)


@pytest.mark.slow
def test_an_average_has_the_same_mean_and_a_smaller_variance() -> None:
    """Where the loss leans on its draws: squared errors of a model that does not fit perfectly."""
    n = 3000
    ours, plain = estimates(Reused(8, 4), 8, n), estimates(fresh, 8, n)
    z = (ours.mean() - plain.mean()) / ((ours.var() + plain.var()) / n).sqrt()
    assert abs(float(z)) < 4
    assert float(ours.var()) < 0.5 * float(plain.var())


def test_predictions_keep_independent_draws() -> None:
    """An average may have antithetic noise; a spread may not: pairs would make it too wide."""
    model = hs.bayesianize(nn.Linear(2, 1))
    draws = hs.predict(
        model, hs.Gaussian(), torch.ones(1, 2), samples=64, sampler="local"
    ).draws.flatten()
    from_mean = draws - model.posterior.mean.sum().detach()
    assert float((from_mean.unsqueeze(0) + from_mean.unsqueeze(1)).abs().min()) > 1e-9


def test_axis_0_that_is_no_batch_gets_fresh_noise() -> None:
    """Time first, then samples, then rows: a block is no sample, and must not repeat its noise."""
    noise = Reused(4, 5)((3 * 4 * 5, 2), torch.empty(0))
    assert len(noise.abs().unique()) == 120

    class TimeFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(1, 3), nn.Linear(3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows, steps = x.shape
            hidden = self.first(x.T.reshape(-1, 1)).tanh()
            return self.second(hidden).view(steps, rows).sum(0).unsqueeze(1)

    torch.manual_seed(0)
    model, x, n = hs.bayesianize(TimeFirst(), where="second"), torch.randn(4, 2), 2000
    with torch.no_grad():
        found = [
            [draw(model, x, 4, "local", kind).square().mean() for _ in range(n)]
            for kind in (Reused(4, 4), fresh)
        ]
    ours, plain = (torch.stack(part) for part in found)
    assert abs(float((ours.mean() - plain.mean()) / ((ours.var() + plain.var()) / n).sqrt())) < 4
