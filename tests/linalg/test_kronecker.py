"""Damping of Kronecker factors: the nearest matrix normal."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from headstart.linalg.kronecker import Damping, Factors, damped, split_damping


def kl(precision: Tensor, product: Tensor) -> Tensor:
    """KL of N(0, product⁻¹) from N(0, precision⁻¹), eigenvalue by eigenvalue, constants apart."""
    return 0.5 * (precision / product + product.log()).sum()


def product(split: Damping, a: Tensor, s: Tensor) -> Tensor:
    return torch.outer(split.a_outputs * s + split.d_outputs, split.a_inputs * a + split.d_inputs)


def test_the_damping_is_split_as_the_nearest_matrix_normal() -> None:
    torch.manual_seed(0)
    a, s, damping = torch.rand(6).double() * 5, torch.rand(4).double() * 0.2, 0.07
    split = split_damping(a, s, damping)
    precision = torch.outer(s, a) + damping
    ours = kl(precision, product(split, a, s))
    # Martens and Grosse's split of the square root.
    pi = math.sqrt(float(a.mean() / s.mean()))
    theirs = torch.outer(s + math.sqrt(damping) / pi, a + pi * math.sqrt(damping))
    assert float(ours) < float(kl(precision, theirs))
    # No eigenvalue of either factor could be better.
    for index in range(4):
        for sign in (0.999, 1.001):
            worse = product(split, a, s)
            worse[index] *= sign
            assert float(kl(precision, worse)) > float(ours)
            worse = product(split, a, s)
            worse[:, index] *= sign
            assert float(kl(precision, worse)) > float(ours)


@pytest.mark.parametrize(("a", "s"), [([3.0, 1.0, 0.0], [2.0, 2.0]), ([4.0, 4.0], [0.5, 0.0, 1.0])])
def test_the_split_is_exact_where_a_factor_is_a_multiple_of_the_identity(
    a: list[float], s: list[float]
) -> None:
    inputs, outputs = torch.tensor(a).double(), torch.tensor(s).double()
    split = split_damping(inputs, outputs, 0.3)
    torch.testing.assert_close(product(split, inputs, outputs), torch.outer(outputs, inputs) + 0.3)
    whole = damped(Factors(torch.diag(inputs), torch.diag(outputs)), split)
    torch.testing.assert_close(
        torch.outer(whole.outputs.diagonal(), whole.inputs.diagonal()),
        torch.outer(outputs, inputs) + 0.3,
    )
