"""The Laplace approximation of a layer: its evidence as a function of the prior variance."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headstart.linalg.precision import in_double
from headstart.linalg.read_out import maximize

SMALLEST, LARGEST = 1e-10, 1e10
"""Bounds of a prior variance."""


def best_prior_variance(eigenvalues: Tensor, square: float) -> float:
    """The prior variance σp² with the largest Laplace evidence at given weights w.

    With λ the eigenvalues of the curvature of −log p(y | w), the evidence is
    `−½ [‖w‖²/σp² + Σ_i log(1 + λ_i σp²)]`, what does not depend on σp² apart. It is concave in
    log σp², so that its maximum is the only one (MacKay 1992).

    Args:
        eigenvalues: λ, one for each weight.
        square: `‖w‖²`.

    Example:
        >>> # One weight, well measured: its square.
        >>> round(best_prior_variance(torch.tensor([1e9]).double(), 4.0), 6)
        4.0
    """
    values = in_double(eigenvalues).clamp_min(0).flatten()

    def evidence(log_var: Tensor) -> Tensor:
        var = log_var.exp()
        return -0.5 * (square / var + torch.log1p(values * var).sum()).sum()

    low, high = (values.new_tensor([math.log(bound)]) for bound in (SMALLEST, LARGEST))
    start = values.new_tensor([math.log(max(square / len(values), SMALLEST))])
    return float(maximize(evidence, start, low, high).exp())
