"""Small data for the tests of initializers."""

from __future__ import annotations

import torch
from torch import Tensor


def data(rows: int = 300, classes: int = 3) -> tuple[Tensor, Tensor]:
    """Rows with four features and the class of a random linear map."""
    x = torch.randn(rows, 4)
    return x, (x @ torch.randn(4, classes)).argmax(1)


def regression(n: int = 80) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 4)
    return x, x @ torch.tensor([[1.0], [-1.0], [0.5], [0.0]]) + 0.3 * torch.randn(n, 1)
