"""Kronecker factors `F ≈ outputs ⊗ inputs` of a layer's curvature, and how to damp them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from headstart.linalg.precision import in_double

ITERATIONS, TOLERANCE = 1000, 1e-7


class Factors(NamedTuple):
    """`F ≈ outputs ⊗ inputs` for the (units, size) weights of a layer, per example."""

    inputs: Tensor
    """(size, size)."""
    outputs: Tensor
    """(units, units)."""


@dataclass(frozen=True)
class Damping:
    """`F + damping ≈ (a_outputs · outputs + d_outputs) ⊗ (a_inputs · inputs + d_inputs)`."""

    a_inputs: float
    d_inputs: float
    a_outputs: float
    d_outputs: float


def split_damping(inputs: Tensor, outputs: Tensor, damping: float) -> Damping:
    """How to damp two factors, so that their product stands for `F + damping`.

    The matrix normal nearest in KL(q‖p) to N(·, (F + damping)⁻¹), by the flip-flop of its
    stationary point: with u, v the eigenvalues of its covariances,
    `1/u_i = mean_j v_j (s_j a_i + damping)`, `1/v_j = mean_i u_i (s_j a_i + damping)`.
    Exact where one factor is a multiple of the identity.

    Args:
        inputs: a, the eigenvalues of the factor of the inputs.
        outputs: s, those of the factor of the outputs.
        damping: a positive number.

    Example:
        >>> a, s = torch.tensor([3.0, 1.0]), torch.tensor([2.0, 2.0])
        >>> split = split_damping(a, s, 0.5)
        >>> left, right = split.a_inputs * a + split.d_inputs, split.a_outputs * s + split.d_outputs
        >>> left * right  # 2a + 1/2
        tensor([6.5000, 2.5000])
    """
    a, s = (in_double(values).clamp_min(0) for values in (inputs, outputs))
    v = 1 / (s + s.mean() + damping)
    for _ in range(ITERATIONS):
        alpha, delta = (v * s).mean(), damping * v.mean()
        u = 1 / (alpha * a + delta)
        beta, epsilon = (u * a).mean(), damping * u.mean()
        updated = 1 / (beta * s + epsilon)
        change = (updated / v - 1).abs().max()
        v = updated
        if change < TOLERANCE:
            break
    return Damping(float(alpha), float(delta), float(beta), float(epsilon))


def damped(factors: Factors, damping: Damping) -> Factors:
    """The factors with this damping in them."""
    inputs, outputs = (
        torch.eye(len(factor), dtype=factor.dtype, device=factor.device) for factor in factors
    )
    return Factors(
        damping.a_inputs * factors.inputs + damping.d_inputs * inputs,
        damping.a_outputs * factors.outputs + damping.d_outputs * outputs,
    )


def without_rounding(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """A sum of products without what rounding did to it, and its eigenvalues.

    In double precision, symmetric and without negative eigenvalues.
    """
    matrix = (in_double(matrix) + in_double(matrix).T) / 2
    values = torch.linalg.eigvalsh(matrix)
    below = (-values[0]).clamp_min(0)
    eye = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    return matrix + below * eye, values + below
