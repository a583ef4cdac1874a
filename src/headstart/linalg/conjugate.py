"""Conjugate-computation steps: the Gaussian posterior of a linear read-out of any likelihood.

Each draw of a row's features x says of unit u what a Gaussian observation would: with
`g = E_q ∂ log p` and `h = −E_q ∂² log p` by the output, the natural-gradient step of length ρ is
`P ← (1−ρ) P + ρ (Λ + Σ h x xᵀ)`, `m ← m + ρ H⁻¹ (Σ g x − Λ (m − m0))` (Khan and Lin 2017), with
H the precision that P goes to; of several units H has the curvature between them too.
Steps that do not raise the bound are halved.
Shapes: `G` groups of units that see the same features, `R` rows, `U` units, `D` weights of a unit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from headstart.linalg.gaussians import Primal, factorized, precision_to_scale_tril
from headstart.linalg.precision import in_double
from headstart.linalg.read_out import CollapsedBound, Moments, maximize

MAX_STEPS, MAX_HALVINGS = 8, 5
JOINT_NOISE = 2
"""Draws of the noise of which the curvature between units is computed."""
MAX_CHANGE = 5.0
"""How far a step may move the logarithm of the prior variance."""


@dataclass(frozen=True)
class WeightPrior:
    """A prior N(m0, Λ⁻¹) of each unit's weights.

    Args:
        mean: m0, (U, D).
        precision: Λ, (U, D, D).
    """

    mean: Tensor
    precision: Tensor

    def kl(self, state: Primal) -> Tensor:
        """KL(q‖p), summed over units.

        Args:
            state: q.
        """
        offset, size = state.mean - self.mean, self.mean.shape[1]
        covariance = torch.cholesky_inverse(state.cholesky)
        quadratic = torch.einsum("ui,uij,uj->u", offset, self.precision, offset)
        trace = (covariance * self.precision).sum((-2, -1))
        logdet = _log_determinant(state.cholesky) - _log_determinant(factorized(self.precision))
        return 0.5 * (quadratic + trace - size + logdet).sum()


def _log_determinant(cholesky: Tensor) -> Tensor:
    return 2 * cholesky.diagonal(dim1=-2, dim2=-1).log().sum(-1)


@dataclass(frozen=True)
class Observations:
    """Rows of features, with what their labels say of the outputs.

    Args:
        x: features, (G, R, D).
        offset: what the net adds, (R, U).
        weight: how often each row counts.
        noise: standard normal numbers, (T, R, U), the same in every evaluation.
        log_prob: of the labels given outputs (T, R, U), as (T, R).
        curvature: its gradient and negative second derivative by each output, (T, R, U).
    """

    x: Tensor
    offset: Tensor
    weight: float
    noise: Tensor
    log_prob: Callable[[Tensor], Tensor]
    curvature: Callable[[Tensor], tuple[Tensor, Tensor]]

    def outputs(self, mean: Tensor, tril: Tensor) -> Tensor:
        """Draws of the outputs, (T, R, U).

        Args:
            mean: of each unit's weights, (U, D).
            tril: the Cholesky factors of their covariances, (U, D, D).
        """
        per_group = len(mean) // len(self.x)
        center, sd = torch.empty_like(self.offset), torch.empty_like(self.offset)
        for unit in range(len(mean)):
            x = self.x[unit // per_group]
            center[:, unit] = x @ mean[unit].to(x)
            sd[:, unit] = (x @ tril[unit].to(x)).square_().sum(-1).sqrt()
        return self.offset + center + sd * self.noise

    def expected_log_prob(self, f: Tensor) -> float:
        """`Σ E_q log p` by these draws of the outputs.

        Args:
            f: (T, R, U).
        """
        return self.weight * float(in_double(self.log_prob(f)).sum()) / len(f)

    def target(self, f: Tensor, max_rows: int) -> tuple[Tensor, Tensor]:
        """`Σ g x`, (U, D), and `Σ h x xᵀ`, (U, D, D).

        Args:
            f: draws of the outputs, (T, R, U).
            max_rows: rows of which the second is computed; they stand for the others.
        """
        slope, curvature = (self.weight * part.mean(0) for part in self.curvature(f))
        curvature = curvature.clamp_min(0)
        per_group = f.shape[-1] // len(self.x)
        some = slice(None, None, -(-len(slope) // max_rows))
        factor = len(slope) / len(slope[some])
        gradients, grams = [], []
        for unit in range(f.shape[-1]):
            x = self.x[unit // per_group]
            few = x[some]
            gradients.append(in_double(slope[:, unit].to(x) @ x))
            gram = few.T @ (few * curvature[some, unit].to(x).unsqueeze(1))
            gram = factor * in_double(gram)
            # Its rounding must not make the precision indefinite where the prior is wide.
            gram.diagonal().add_(torch.finfo(x.dtype).eps * gram.trace())
            grams.append(gram)
        return torch.stack(gradients), torch.stack(grams)

    def products(self, f: Tensor) -> Callable[[Tensor], Tensor]:
        """`Σ Xᵀ E[−∂² log p] X w` for weights w (U, D), units together.

        Args:
            f: draws of the outputs, (T, R, U).
        """
        with torch.enable_grad():
            f = f.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.log_prob(f).sum(), f, create_graph=True)

        def product(weights: Tensor) -> Tensor:
            w = weights.to(self.x).unflatten(0, (len(self.x), -1))
            along = torch.einsum("grd,gud->rgu", self.x, w).flatten(1)
            (found,) = torch.autograd.grad(slope, f, along.expand_as(f), retain_graph=True)
            found = found.mean(0).unflatten(1, (len(self.x), -1))
            total = torch.einsum("grd,rgu->gud", self.x, found).flatten(0, 1)
            return -self.weight * in_double(total)

        return product


def joint_step(
    slope: Tensor, product: Callable[[Tensor], Tensor], near: Primal, max_steps: int = 10
) -> Tensor:
    """`H⁻¹ slope` by conjugate gradients, H the precision of all units together.

    Classes compete: the best step of one depends on the others', which a precision for each unit
    does not see. Where H has no positive curvature along the way, the step ends there.

    Args:
        slope: (U, D).
        product: H times weights (U, D).
        near: a Gaussian whose precision is near to H, unit by unit.
        max_steps: a bound on the steps.
    """
    step, residual = torch.zeros_like(slope), slope
    solved = torch.cholesky_solve(residual.unsqueeze(-1), near.cholesky).squeeze(-1)
    direction, size = solved, (residual * solved).sum()
    first = size
    for _ in range(max_steps):
        bent = product(direction)
        curvature = (direction * bent).sum()
        if curvature <= 0:
            break
        step = step + size / curvature * direction
        residual = residual - size / curvature * bent
        solved = torch.cholesky_solve(residual.unsqueeze(-1), near.cholesky).squeeze(-1)
        new = (residual * solved).sum()
        if new < 1e-4 * first:
            break
        direction, size = solved + new / size * direction, new
    return step


@dataclass(frozen=True)
class Climb:
    """Natural-gradient steps from a start.

    Args:
        observations: the rows.
        learn_variance: whether the prior is `N(0, σp²)` with a variance to be found.
        max_rows: rows of which second derivatives are computed.
        tolerance: a gain in nats below which a step is the last.
        joint: whether the log-likelihood of a label depends on several units at once.
    """

    observations: Observations
    learn_variance: bool
    max_rows: int
    tolerance: float
    joint: bool

    def run(self, start: Primal, prior: WeightPrior) -> tuple[Primal, WeightPrior, int]:
        """Climb until a step gains next to nothing.

        Args:
            start: the first posterior.
            prior: the first prior.

        Returns:
            Posterior and prior, and the number of steps.
        """
        place = self._place(start, prior)
        for step in range(1, MAX_STEPS + 1):
            found = self._step(place)
            if found is None:
                return place.state, place.prior, step - 1
            gain, place = found.bound - place.bound, found
            if gain < self.tolerance:
                return place.state, place.prior, step
        return place.state, place.prior, MAX_STEPS

    def _step(self, place: _Place) -> _Place | None:
        """A step that raises the bound; None where there is none."""
        state = place.state
        gradient, gram = self.observations.target(place.outputs, self.max_rows)
        moment = gradient + torch.einsum("uij,uj->ui", gram, state.mean)
        priors = [best_isotropic(gram, moment, place.prior)] if self.learn_variance else []
        for prior in (*priors, place.prior):
            pull = torch.einsum("uij,uj->ui", prior.precision, state.mean - prior.mean)
            goal, length = prior.precision + gram, 1.0
            full = self._direction(place, prior, gradient - pull, goal)
            for _ in range(MAX_HALVINGS):
                precision = (1 - length) * state.precision() + length * goal
                mean = state.mean + length * full
                rhs = torch.einsum("uij,uj->ui", precision, mean)
                found = self._place(Primal(precision, rhs), prior)
                if found.bound > place.bound:
                    return found
                length /= 2
        return None

    def _direction(self, place: _Place, prior: WeightPrior, slope: Tensor, goal: Tensor) -> Tensor:
        """Where the mean goes in a whole step."""
        near = Primal(goal, slope)
        if not self.joint:
            return near.mean
        product = self.observations.products(place.outputs[:JOINT_NOISE])

        def whole(weights: Tensor) -> Tensor:
            return torch.einsum("uij,uj->ui", prior.precision, weights) + product(weights)

        return joint_step(slope, whole, near)

    def _place(self, state: Primal, prior: WeightPrior) -> _Place:
        f = self.observations.outputs(state.mean, precision_to_scale_tril(state.precision()))
        bound = self.observations.expected_log_prob(f) - float(prior.kl(state))
        return _Place(state, prior, f, bound)


class _Place(NamedTuple):
    """Where a climb is: posterior, prior, draws of the outputs, and the bound."""

    state: Primal
    prior: WeightPrior
    outputs: Tensor
    bound: float


def best_isotropic(gram: Tensor, moment: Tensor, near: WeightPrior) -> WeightPrior:
    """The prior `N(0, σp²)` with the largest evidence of Gaussian observations.

    Args:
        gram: their `Σ h x xᵀ`, (U, D, D).
        moment: their `Σ h x t`, (U, D).
        near: a prior of that kind, where the search begins.
    """
    nothing = torch.zeros_like(moment[:, :1])
    bound, one = CollapsedBound(Moments(gram, moment.unsqueeze(1), nothing, 0.0)), gram.new_ones(())
    start = -near.precision[0, 0, 0].log().reshape(1)

    def value(at: Tensor) -> Tensor:
        return bound.value(one.expand(len(gram)), at.exp()).sum()

    log_var = maximize(value, start, start - MAX_CHANGE, start + MAX_CHANGE)
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    return WeightPrior(torch.zeros_like(moment), (eye / log_var.exp()).expand_as(gram))
