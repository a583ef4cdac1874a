"""A small regression problem for the tests of training."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import headstart as hs


def table(rows: int = 200) -> tuple[Tensor, Tensor]:
    x = torch.randn(rows, 4)
    return x, (x[:, :1] - 2 * x[:, 1:2]) + 0.3 * torch.randn(rows, 1)


def regressor() -> tuple[nn.Module, hs.Gaussian]:
    return hs.bayesianize(
        nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 1))
    ), hs.Gaussian()
