"""Data sets that need no files."""

from __future__ import annotations

import math

import torch

from headstart.data import load, toy_function


def test_toy_is_the_function_with_its_noise() -> None:
    data = load("toy")
    residual = (data.y - toy_function(data.x)).double()
    assert data.x.abs().max() <= 10
    n, var = 512, math.exp(-4.0)
    assert abs(residual.mean().item()) < 4 * math.sqrt(var / n)
    assert abs(residual.square().mean().item() - var) < 4 * var * math.sqrt(2 / n)
    x = torch.tensor(math.pi, dtype=torch.float64)
    torch.testing.assert_close(toy_function(x).item(), 1 + math.sqrt(3) / 2 - math.sqrt(2) / 2)
    assert torch.equal(load("toy").x, data.x)
