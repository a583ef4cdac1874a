"""Posteriors with random parameters, and their dense covariances by definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from headstart.linalg.gaussians import UnitGaussian
from headstart.posteriors import POSTERIORS, Posterior


def scrambled(family: str, units: int = 3, size: int = 5, **options: Any) -> Posterior:
    posterior = POSTERIORS[family](units, size, **options)
    with torch.no_grad():
        for parameter in posterior.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    return posterior


def _of_units(blocks: Iterable[Tensor]) -> Tensor:
    """The covariance of independent units."""
    return torch.block_diag(*blocks)


def _kronecker(q: Any) -> Tensor:
    inputs, outputs = q.inputs.matrix(), q.outputs.matrix()
    return torch.kron(outputs @ outputs.T, inputs @ inputs.T)


DEFINITIONS: dict[str, Callable[[Any], Tensor]] = {
    "mean_field": lambda q: _of_units(torch.diag(row.exp()) for row in q.logvar),
    "low_rank": lambda q: _of_units(
        torch.diag(row.exp()) + v.T @ v
        for row, v in zip(q.logvar, q.directions.unbind(1), strict=True)
    ),
    "full_covariance": lambda q: _of_units(factor @ factor.T for factor in q.factor.matrix()),
    "matrix_normal": _kronecker,
    "dropout": lambda q: _of_units(q.p / (1 - q.p) * torch.outer(row, row) for row in q.mean),
}


def joint_covariance(q: Posterior) -> Tensor:
    """The dense covariance of all weights, from each family's definition, not from its methods."""
    return DEFINITIONS[q.name](q)


def kl_to(q: Posterior, p: UnitGaussian) -> float:
    """KL(q‖p) by torch.distributions."""
    target = torch.block_diag(*p.covariance().expand(q.units, -1, -1))
    law = MultivariateNormal(q.mean.flatten(), joint_covariance(q))
    return float(kl_divergence(law, MultivariateNormal(p.mean.flatten(), target)).detach())
