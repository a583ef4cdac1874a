"""Gauss-Newton matrices of a net's layers at its mean weights, in the form a posterior can hold.

With J the Jacobian of a row's outputs f by the weights of a layer and `H = −∂² log p(y | f)`, the
matrix is `Σ_rows Jᵀ H J`. With `H = Σ_r s_r s_rᵀ` it takes a backward pass for each root s_r.
Shapes: `R` roots, `N` rows, `T` positions at which a row meets the weights (of all calls of a
layer), `G` groups of units that see the same inputs, `U` units, `D` weights of a unit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn

from headstart.distributed.rows import AllRows
from headstart.initializers.regression import rows_with_bias
from headstart.likelihoods import Likelihood
from headstart.linalg.affine import affine, channel_axis, split
from headstart.linalg.gaussians import Diagonal, Primal, UnitGaussian, precision_to_scale_tril
from headstart.linalg.kronecker import Factors, damped, split_damping, without_rounding
from headstart.linalg.precision import exact_device, in_double
from headstart.nested import TensorTree, feed, heads_of
from headstart.network.forward import check_outputs, drawing
from headstart.network.layer import Bayesian, bayesian_layers
from headstart.network.probe import evaluating
from headstart.posteriors import MatrixNormal, Posterior

MAX_COVARIANCE = 2**27
"""Numbers in the precision matrices of a layer's units; with more their diagonals are taken."""
MAX_PRODUCTS = 2**38
"""Multiplications for the matrices of a layer: so many rows are used, and stand for the others."""
MIN_PRIOR = 1e-10
"""Of the prior beside the mean eigenvalue of Kronecker factors, which must not be singular."""


@dataclass(frozen=True)
class _Traced:
    """The mean of a layer's output, plus zeros whose gradient is that of the output.

    It switches gradients on: the caller's scope without them ends at the first of these layers.
    """

    calls: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def __call__(self, op: nn.Module, posterior: Posterior, x: Tensor) -> Tensor:
        torch.set_grad_enabled(True)
        output = affine(op, x, *split(op, posterior.mean.detach()))
        zeros = torch.zeros_like(output, requires_grad=True)
        # A copy: the net may go on to overwrite its activations in place.
        self.calls.append((x.detach().clone(), zeros))
        return output + zeros


def _trace(model: nn.Module, x: TensorTree) -> tuple[dict[str, _Traced], Tensor]:
    """The calls of every Bayesian layer, and the outputs of the mean network, (N, K)."""
    traced = {name: _Traced() for name in bayesian_layers(model)}
    with evaluating(model), torch.no_grad(), drawing(model, "mean"):
        for name, layer in bayesian_layers(model).items():
            layer.use(traced[name])
        # Within the scope, in which gradients have been switched on.
        return traced, check_outputs(heads_of(feed(model, x)).unsqueeze(0))[0]


def hessian_roots(likelihood: Likelihood, f: Tensor, y: Tensor) -> Tensor:
    """Roots s_r of `H = −∂² log p(y | f)`, (R, N, K); negative curvature counts as none.

    Args:
        likelihood: p(y | f).
        f: outputs, (N, K).
        y: labels as the likelihood's `check` returns them.

    Example:
        >>> import headstart as hs
        >>> roots = hessian_roots(hs.Bernoulli(), torch.zeros(1, 1), torch.ones(1))
        >>> roots.square().sum(0)  # p (1 − p)
        tensor([[0.2500]], dtype=torch.float64)
    """
    with torch.enable_grad():
        f, y = in_double(f.detach()).requires_grad_(), y.to(exact_device(f.device))
        (slope,) = torch.autograd.grad(likelihood.log_prob(f, y).sum(), f, create_graph=True)
        columns = [
            torch.autograd.grad(each.sum(), f, retain_graph=True, materialize_grads=True)[0]
            for each in slope.unbind(-1)
        ]
    hessian = -torch.stack(columns, -1)
    values, vectors = torch.linalg.eigh((hessian + hessian.mT) / 2)
    return (vectors * values.clamp_min(0).sqrt().unsqueeze(-2)).permute(2, 0, 1)


class Slopes:
    """Inputs of a layer, and gradients by its outputs of each root, for the rows of a batch.

    Args:
        inputs: (G, N, T, D), a 1 for the bias last.
        outputs: (R, N, T, U).
    """

    def __init__(self, inputs: Tensor, outputs: Tensor) -> None:
        self.inputs, self.outputs = inputs, outputs

    def by_unit(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Of each unit its number, the inputs (N, T, D) and the gradients (R, N, T)."""
        units = self.outputs.shape[-1]
        for unit in range(units):
            yield unit, self.inputs[unit * len(self.inputs) // units], self.outputs[..., unit]


def layer_slopes(
    model: nn.Module, likelihood: Likelihood, x: TensorTree, y: Tensor
) -> Iterator[tuple[str, Slopes]]:
    """What a batch says of every layer that it reaches.

    Args:
        model: a net from `bayesianize`.
        likelihood: the likelihood of its labels.
        x: the rows.
        y: their labels.
    """
    traced, f = _trace(model, x)
    roots = hessian_roots(likelihood, f, likelihood.check(y, f.shape[-1])).to(f)
    layers, zeros = bayesian_layers(model), [z for each in traced.values() for _, z in each.calls]
    found = [
        torch.autograd.grad(f, zeros, root, retain_graph=True, materialize_grads=True)
        for root in roots
    ]
    gradients = iter([torch.stack(each) for each in zip(*found, strict=True)])
    for name, each in traced.items():
        layer, inputs, outputs = layers[name], [], []
        for given, _ in each.calls:
            slopes = in_double(next(gradients)).movedim(channel_axis(layer.op) % given.ndim + 1, -1)
            slopes = slopes.unsqueeze(2) if slopes.ndim == 3 else slopes.flatten(2, -2)
            outputs.append(_by_row(slopes, len(x)))
            inputs.append(_by_row(rows_with_bias(layer, given), len(x)))
        if each.calls:
            yield name, Slopes(torch.cat(inputs, 2), torch.cat(outputs, 2))


def _by_row(values: Tensor, rows: int) -> Tensor:
    """Positions of several batches, one under another on axis 1, as positions of each row."""
    return values.unflatten(1, (-1, rows)).transpose(1, 2).flatten(2, 3)


class Curvature(ABC):
    """The Gauss-Newton matrix of a layer, summed over rows, in the form that its posterior holds.

    Args:
        layer: the layer.
    """

    rows = 0
    """Rows of all processes that were added."""

    def __init__(self, layer: Bayesian) -> None:
        self.layer, self.units, self.size = layer, layer.posterior.units, layer.posterior.size
        self.like = in_double(layer.posterior.mean.detach())

    @property
    def max_rows(self) -> float:
        """The rows after which no more are needed."""
        return float("inf")

    @abstractmethod
    def add(self, slopes: Slopes) -> None:
        """Add a batch."""

    @abstractmethod
    def scale_(self, rows: AllRows, num_data: int) -> None:
        """Sum over all processes; the rows that were added then stand for `num_data`."""

    @abstractmethod
    def eigenvalues(self) -> Tensor:
        """Of the matrix, one for each weight."""

    @abstractmethod
    def place_(self) -> None:
        """Give the posterior the covariance `(matrix + Λ)⁻¹`, Λ the prior's precision."""

    def _prior(self) -> UnitGaussian:
        """The prior of the layer's weights."""
        law, like = self.layer.prior.law(self.units, self.size), self.like
        if law.var is not None:
            return Diagonal(law.mean.to(like), law.var.to(like))
        assert law.scale_tril is not None
        precision = torch.cholesky_inverse(law.scale_tril.to(like))
        return Primal(precision, torch.einsum("uij,uj->ui", precision, law.mean.to(like)))

    def _project_(self, gaussian: UnitGaussian) -> None:
        """The covariance of this Gaussian; the mean stays, to the last bit."""
        posterior = self.layer.posterior
        mean = posterior.mean.detach().clone()
        posterior.project_(gaussian)
        posterior.mean.copy_(mean)


class DiagonalCurvature(Curvature):
    """`Σ (∂f/∂w)ᵀ H (∂f/∂w)` for each weight."""

    def __init__(self, layer: Bayesian) -> None:
        super().__init__(layer)
        self.matrix = torch.zeros_like(self.like)

    def add(self, slopes: Slopes) -> None:
        """One position: `Σ_n (Σ_r g²) x²`; several: the square of their sum."""
        for unit, x, g in slopes.by_unit():
            if x.shape[1] == 1:
                self.matrix[unit] += g.square().sum((0, 2)) @ x[:, 0].square()
            else:
                self.matrix[unit] += torch.einsum("rnt,ntd->rnd", g, x).square().sum((0, 1))

    def scale_(self, rows: AllRows, num_data: int) -> None:
        self.matrix = rows.sum(self.matrix) * (num_data / max(1, self.rows))

    def eigenvalues(self) -> Tensor:
        return self.matrix

    def place_(self) -> None:
        precision = self.matrix + self._prior().precision_diagonal()
        self._project_(Diagonal(self.like, 1 / precision))


class UnitCurvature(Curvature):
    """A matrix for the weights of each unit."""

    def __init__(self, layer: Bayesian) -> None:
        super().__init__(layer)
        self.matrix = self.like.new_zeros(self.units, self.size, self.size)

    @property
    def max_rows(self) -> float:
        return max(2 * self.size, MAX_PRODUCTS // (self.units * self.size**2))

    def add(self, slopes: Slopes) -> None:
        """One position: `Σ_n (Σ_r g²) x xᵀ`; several: the products of their sum."""
        for unit, x, g in slopes.by_unit():
            if x.shape[1] == 1:
                weights = g.square().sum((0, 2)).unsqueeze(1)
                self.matrix[unit] += x[:, 0].T @ (weights * x[:, 0])
            else:
                rows = torch.einsum("rnt,ntd->rnd", g, x).flatten(0, 1)
                self.matrix[unit] += rows.T @ rows

    def scale_(self, rows: AllRows, num_data: int) -> None:
        self.matrix = rows.sum(self.matrix) * (num_data / max(1, self.rows))

    def eigenvalues(self) -> Tensor:
        return torch.linalg.eigvalsh(self.matrix)

    def place_(self) -> None:
        precision = self.matrix + self._prior().precision()
        self._project_(Primal(precision, torch.einsum("uij,uj->ui", precision, self.like)))


class KroneckerCurvature(Curvature):
    """`rows · outputs ⊗ inputs`, `inputs = E Σ_t x xᵀ`, `outputs = (1/T) E Σ_rt g gᵀ`."""

    def __init__(self, layer: Bayesian) -> None:
        super().__init__(layer)
        self.factors = Factors(*(self.like.new_zeros(n, n) for n in (self.size, self.units)))
        self.positions, self.num_data = 0, 1

    def add(self, slopes: Slopes) -> None:
        x, g = slopes.inputs.flatten(0, 2), slopes.outputs.flatten(0, 2)
        self.factors = Factors(self.factors.inputs + x.T @ x, self.factors.outputs + g.T @ g)
        self.positions += len(x)

    def scale_(self, rows: AllRows, num_data: int) -> None:
        inputs, outputs = map(rows.sum, self.factors)
        positions = max(1, rows.total(self.positions))
        self.factors = Factors(
            without_rounding(inputs / max(1, self.rows))[0],
            without_rounding(outputs / positions)[0],
        )
        self.num_data = num_data

    def eigenvalues(self) -> Tensor:
        a, s = map(torch.linalg.eigvalsh, self.factors)
        return self.num_data * torch.outer(s, a)

    def place_(self) -> None:
        """The matrix normal nearest in KL(q‖p) to `(matrix + Λ)⁻¹`."""
        a, s = map(torch.linalg.eigvalsh, self.factors)
        smallest = MIN_PRIOR * float(a.mean() * s.mean())
        prior = max(smallest, self.layer.prior.mean_precision() / self.num_data)
        inputs, outputs = damped(self.factors, split_damping(a, s, prior))
        cast(MatrixNormal, self.layer.posterior).set_(
            precision_to_scale_tril(inputs), precision_to_scale_tril(self.num_data * outputs)
        )


def curvature_of(layer: Bayesian) -> Curvature:
    """Nothing added yet, in the form that the layer's posterior holds.

    Args:
        layer: the layer.
    """
    q = layer.posterior
    if q.is_kronecker:
        return KroneckerCurvature(layer)
    correlated = q.has_density and q.factors() is not None
    if correlated and q.units * q.size**2 <= MAX_COVARIANCE:
        return UnitCurvature(layer)
    return DiagonalCurvature(layer)
