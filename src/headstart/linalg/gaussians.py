"""Gaussians over the weights of each output unit: what initializers hand to posteriors.

Shapes: `D` weights of a unit (its bias included, as the last one), `U` units.
Everything is batched over units.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.errors import HeadstartError


class UnitGaussian(ABC):
    """One Gaussian over the D weights of each of U output units.

    It knows its moments however it was solved, so that neither initializer nor posterior asks.
    """

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """(U, D)."""

    @abstractmethod
    def precision_diagonal(self) -> Tensor:
        """The diagonal of Σ⁻¹, (U, D); its inverse is the nearest diagonal in KL(q‖p)."""

    @abstractmethod
    def covariance_diagonal(self) -> Tensor:
        """The diagonal of Σ, (U, D): the nearest diagonal in KL(p‖q)."""

    @abstractmethod
    def precision(self) -> Tensor:
        """Σ⁻¹, broadcastable to (U, D, D)."""

    @abstractmethod
    def covariance(self) -> Tensor:
        """Σ, broadcastable to (U, D, D)."""

    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of Σ, broadcastable to (U, D, D)."""
        return precision_to_scale_tril(self.precision())

    # What needs no precision matrix for each unit, where all have the same or a diagonal one.
    def weighted_precision(self, weights: Tensor) -> Tensor:
        """`Σ_u weights_u Σ_u⁻¹`, (D, D)."""
        precision = self.precision()
        if len(precision) == 1:
            return weights.sum() * precision[0]
        return torch.einsum("u,uij->ij", weights, precision)

    def precision_traces(self, matrix: Tensor) -> Tensor:
        """`tr(Σ_u⁻¹ matrix)` of each unit, (U,)."""
        return (self.precision() * matrix).sum((-2, -1)).expand(len(self.mean))


@dataclass(frozen=True)
class Diagonal(UnitGaussian):
    """Independent weights: N(mean, diag(var)).

    Example:
        >>> Diagonal(torch.zeros(1, 2), torch.tensor([[4.0, 0.5]])).precision_diagonal()
        tensor([[0.2500, 2.0000]])
    """

    loc: Tensor
    var: Tensor

    @property
    def mean(self) -> Tensor:
        return self.loc

    def precision_diagonal(self) -> Tensor:
        return 1 / self.var

    def covariance_diagonal(self) -> Tensor:
        return self.var

    def precision(self) -> Tensor:
        return torch.diag_embed(1 / self.var)

    def covariance(self) -> Tensor:
        return torch.diag_embed(self.var)

    def scale_tril(self) -> Tensor:
        return torch.diag_embed(self.var.sqrt())

    def weighted_precision(self, weights: Tensor) -> Tensor:
        return torch.diag(weights @ (1 / self.var))

    def precision_traces(self, matrix: Tensor) -> Tensor:
        return (1 / self.var) @ matrix.diagonal()


class Primal(UnitGaussian):
    """N(P⁻¹ b, P⁻¹).

    Args:
        precision: P, broadcastable to (U, D, D).
        rhs: b, (U, D).
    """

    def __init__(self, precision: Tensor, rhs: Tensor) -> None:
        self._precision = precision
        self.cholesky = factorized(precision)
        # One factor for all units: one solve with U right-hand sides.
        if precision.shape[0] == 1:
            self._mean = torch.cholesky_solve(rhs.T, self.cholesky[0]).T
        else:
            self._mean = torch.cholesky_solve(rhs.unsqueeze(-1), self.cholesky).squeeze(-1)

    @property
    def mean(self) -> Tensor:
        return self._mean

    def precision_diagonal(self) -> Tensor:
        return self._precision.diagonal(dim1=-2, dim2=-1).expand_as(self._mean)

    def covariance_diagonal(self) -> Tensor:
        return self.covariance().diagonal(dim1=-2, dim2=-1).expand_as(self._mean)

    def precision(self) -> Tensor:
        return self._precision

    def covariance(self) -> Tensor:
        return torch.cholesky_inverse(self.cholesky)


@dataclass(frozen=True)
class Rescaled(UnitGaussian):
    """The law of `scale · w + shift`, its covariance multiplied by `variance_scale` besides.

    Args:
        base: the law of w.
        scale: (U, 1).
        shift: (U, D).
        variance_scale: a positive number.
    """

    base: UnitGaussian
    scale: Tensor
    shift: Tensor
    variance_scale: float = 1.0

    @property
    def mean(self) -> Tensor:
        return self.scale * self.base.mean + self.shift

    def precision_diagonal(self) -> Tensor:
        return self.base.precision_diagonal() / self._factor()

    def covariance_diagonal(self) -> Tensor:
        return self.base.covariance_diagonal() * self._factor()

    def precision(self) -> Tensor:
        return self.base.precision() / self._factor().unsqueeze(-1)

    def covariance(self) -> Tensor:
        return self.base.covariance() * self._factor().unsqueeze(-1)

    def scale_tril(self) -> Tensor:
        return self.base.scale_tril() * self._factor().sqrt().unsqueeze(-1)

    def weighted_precision(self, weights: Tensor) -> Tensor:
        return self.base.weighted_precision(weights / self._factor().squeeze(1))

    def precision_traces(self, matrix: Tensor) -> Tensor:
        return self.base.precision_traces(matrix) / self._factor().squeeze(1)

    def _factor(self) -> Tensor:
        return self.variance_scale * self.scale.square()


@dataclass(frozen=True)
class Stacked(UnitGaussian):
    """The units of several Gaussians, one after another."""

    parts: tuple[UnitGaussian, ...]

    @property
    def mean(self) -> Tensor:
        return torch.cat([part.mean for part in self.parts])

    def precision_diagonal(self) -> Tensor:
        return torch.cat([part.precision_diagonal() for part in self.parts])

    def covariance_diagonal(self) -> Tensor:
        return torch.cat([part.covariance_diagonal() for part in self.parts])

    def precision(self) -> Tensor:
        return torch.cat([_per_unit(part.precision(), part) for part in self.parts])

    def covariance(self) -> Tensor:
        return torch.cat([_per_unit(part.covariance(), part) for part in self.parts])

    def scale_tril(self) -> Tensor:
        return torch.cat([_per_unit(part.scale_tril(), part) for part in self.parts])

    def weighted_precision(self, weights: Tensor) -> Tensor:
        each = weights.split([len(part.mean) for part in self.parts])
        return torch.stack(
            [part.weighted_precision(mine) for part, mine in zip(self.parts, each, strict=True)]
        ).sum(0)

    def precision_traces(self, matrix: Tensor) -> Tensor:
        return torch.cat([part.precision_traces(matrix) for part in self.parts])


def _per_unit(matrix: Tensor, gaussian: UnitGaussian) -> Tensor:
    return matrix.expand(len(gaussian.mean), *matrix.shape[-2:])


def factorized(matrix: Tensor) -> Tensor:
    """The Cholesky factor of a positive definite matrix.

    Where rounding has eaten the smallest eigenvalues, that of the matrix with a little more on its
    diagonal.

    Args:
        matrix: (..., D, D).

    Raises:
        HeadstartError: where it is singular to working precision.
    """
    factor, info = torch.linalg.cholesky_ex(matrix)
    scale = matrix.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)
    for jitter in (1e-12, 1e-10, 1e-8):
        if not info.any():
            return factor
        factor, info = torch.linalg.cholesky_ex(
            matrix + torch.diag_embed((jitter * scale).expand(matrix.shape[:-1]))
        )
    if info.any():
        raise HeadstartError(
            "A linear model is singular to working precision; standardize inputs and targets, "
            "or drop columns that repeat others."
        )
    return factor


def precision_to_scale_tril(precision: Tensor) -> Tensor:
    """The lower-triangular C with `C Cᵀ = P⁻¹`.

    By one Cholesky of the flipped P: no inverse is formed.

    Example:
        >>> p = torch.tensor([[2.0, 0.5], [0.5, 1.0]])
        >>> c = precision_to_scale_tril(p)
        >>> torch.allclose(c @ c.T @ p, torch.eye(2), atol=1e-6)
        True
    """
    flipped = torch.linalg.cholesky(precision.flip(-2, -1))
    eye = torch.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return (
        torch.linalg.solve_triangular(flipped, eye.expand_as(flipped), upper=False).flip(-2, -1).mT
    )
