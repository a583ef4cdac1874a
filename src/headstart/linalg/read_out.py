"""A linear read-out of random features: its collapsed bound, and what leaves one row out.

The features x of a row are random: draws of the layers below. With `E` over them, the read-out
`t ~ N(wᵀx, v)`, `w ~ N(0, σp²)` has the evidence lower bound that one gets from the evidence of a
linear model with `E[x xᵀ]`, `E[x t]` and `E[t²]` in the place of its statistics.
Shapes: `G` groups of units that see the same features, `M` units of a group, `D` weights of a unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from headstart.linalg.gaussians import Primal

MAX_STEP = 3.0
"""The longest step of a logarithm in `maximize`."""
SHORTEST_STEP = 1e-9
"""A step so short ends it."""
ROUNDING = 1e-9
"""Values that differ by so little of themselves are the same."""


class Moments(NamedTuple):
    """Sums over rows of what is expected of their features and targets."""

    gram: Tensor
    """`Σ E[x xᵀ]`, (G, D, D)."""
    moment: Tensor
    """`Σ E[x t]`, (G, M, D)."""
    square: Tensor
    """`Σ E[t²]`, (G, M)."""
    rows: float
    """How many rows these are."""

    def scaled(self, weight: float) -> Moments:
        """Each row counted `weight` times.

        Args:
            weight: the factor.
        """
        return Moments(
            weight * self.gram, weight * self.moment, weight * self.square, weight * self.rows
        )

    def whitened(self, mean: Tensor, scale_tril: Tensor) -> Moments:
        """Those of `z` in `w = mean + L z`: every unit becomes a group of its own.

        Args:
            mean: of each unit's weights, (U, D).
            scale_tril: L of each unit, (U, D, D).
        """
        units = self.moment.shape[0] * self.moment.shape[1]
        gram = self.gram.repeat_interleave(units // len(self.gram), 0)
        moment, square = self.moment.flatten(0, 1), self.square.flatten()
        shifted = torch.einsum("uij,uj->ui", gram, mean)
        square = square - 2 * (moment * mean).sum(-1) + (shifted * mean).sum(-1)
        moment = torch.einsum("uij,ui->uj", scale_tril, moment - shifted)
        gram = scale_tril.mT @ gram @ scale_tril
        return Moments(gram, moment.unsqueeze(1), square.unsqueeze(1), self.rows)

    def expected_error(
        self, mean: Tensor, diagonal: Tensor | None, factors: Tensor | None
    ) -> Tensor:
        """`Σ E (t − wᵀx)²` of each unit for weights with covariance `diag(d) + Σ_r v_r v_rᵀ`, (U,).

        Args:
            mean: of the weights, (U, D).
            diagonal: d, (U, D), or None for zero.
            factors: v, (R, U, D), or None for none.
        """
        each = mean.unflatten(0, self.moment.shape[:2])
        error = self.square - 2 * (self.moment * each).sum(-1) + _quadratic(self.gram, each)
        if diagonal is not None:
            spread = diagonal.unflatten(0, self.moment.shape[:2])
            error = error + (spread * self.gram.diagonal(dim1=-2, dim2=-1).unsqueeze(1)).sum(-1)
        if factors is not None:
            along = factors.unflatten(1, self.moment.shape[:2])
            error = error + _quadratic(self.gram, along).sum(0)
        return error.flatten()

    def condition(self, noise_var: Tensor, mean: Tensor, scale_tril: Tensor) -> Primal:
        """The weights at their best: `P = Λ + E[x xᵀ]/v`, mean `P⁻¹ (Λ m0 + E[x t]/v)`.

        Args:
            noise_var: v of each unit, (U,).
            mean: m0 of each unit's prior, (U, D).
            scale_tril: the Cholesky factor of its covariance `Λ⁻¹`, (U, D, D).
        """
        precision, units = torch.cholesky_inverse(scale_tril), self.moment.shape[1]
        gram = self.gram.repeat_interleave(units, 0) / noise_var.reshape(-1, 1, 1)
        rhs = self.moment.flatten(0, 1) / noise_var.unsqueeze(1)
        return Primal(precision + gram, torch.einsum("uij,uj->ui", precision, mean) + rhs)


def _quadratic(gram: Tensor, vectors: Tensor) -> Tensor:
    """`vᵀ G v` for vectors (..., G, M, D)."""
    return ((vectors @ gram) * vectors).sum(-1)


class CollapsedBound:
    """The bound as a function of the noise and the prior variance, the weights at their best.

    `B(v, σp²) = −½ [n log 2πv + Σ_i log(1 + λ_i σp²/v) + E t²/v − Σ_i β_i² σp²/(v (v + λ_i σp²))]`,
    with `E[x xᵀ] = Q diag(λ) Qᵀ` and `β = Qᵀ E[x t]`, all summed over rows: after one
    eigendecomposition a value costs D operations for each unit.

    Args:
        moments: the statistics.
    """

    def __init__(self, moments: Moments) -> None:
        self.moments = moments
        values, vectors = torch.linalg.eigh(moments.gram)
        self.values = values.clamp_min(0).unsqueeze(1)
        self.squares = (moments.moment @ vectors).square()

    def value(self, noise_var: Tensor, prior_var: Tensor) -> Tensor:
        """The bound of each unit, (U,).

        Args:
            noise_var: v of each unit, (U,).
            prior_var: σp².
        """
        noise = noise_var.reshape(self.moments.square.shape)
        wide = noise.unsqueeze(-1)
        total = wide + self.values * prior_var
        explained = (self.squares * prior_var / (wide * total)).sum(-1)
        logdet = (total / wide).log().sum(-1)
        rows = self.moments.rows * (2 * math.pi * noise).log()
        return -0.5 * (rows + logdet + self.moments.square / noise - explained).flatten()


def maximize(
    value: Callable[[Tensor], Tensor],
    start: Tensor,
    low: Tensor,
    high: Tensor,
    max_steps: int = 100,
) -> Tensor:
    """A maximum of a smooth function of few numbers in a box, by Newton's steps with backtracking.

    Where the function is not concave, a step goes along the gradient scaled by the curvatures'
    sizes.

    Args:
        value: the function, (P,) to a scalar.
        start: where to start, (P,).
        low: the box's lower ends.
        high: its upper ends.
        max_steps: a bound on the steps.
    """
    at = start.clamp(low, high)
    best = value(at)
    for _ in range(max_steps):
        slope = _slope(value, at)
        with torch.enable_grad():
            curvature = torch.autograd.functional.hessian(value, at)
        # What the box holds back does not take part.
        free = ((slope < 0) & (at > low) | (slope > 0) & (at < high)).nonzero().squeeze(1)
        if not len(free):
            return at
        sizes, axes = torch.linalg.eigh(curvature[free][:, free])
        sizes = sizes.abs().clamp_min(1e-9 * float(sizes.abs().max()) + 1e-30)
        step = torch.zeros_like(at)
        step[free] = (axes @ (axes.T @ slope[free] / sizes)).clamp(-MAX_STEP, MAX_STEP)
        whole = found = (at + step).clamp(low, high)
        while not value(found) > best and float(step.abs().max()) > SHORTEST_STEP:
            step = step / 2
            found = (at + step).clamp(low, high)
        if not value(found) > best:
            # Values tell the place of a maximum to the root of rounding only, slopes to rounding.
            flat = _slope(value, whole)[free].abs().max() < slope[free].abs().max()
            level = value(whole) >= best - ROUNDING * (1 + best.abs())
            return whole if flat and level else at
        at, best = found, value(found)
    return at


def _slope(value: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    # A scope of its own: the caller may have switched gradients off.
    with torch.enable_grad():
        return torch.autograd.functional.jacobian(value, at)


def leave_one_out(
    x: Tensor, t: Tensor, gaussian: Primal, noise_var: Tensor
) -> tuple[Tensor, Tensor]:
    """What the read-out says of each row once that row's evidence is taken away.

    With `a_s = x_s/√(S v)` for the S draws of a row, `H = a Σ aᵀ` and `K = H (I − H)⁻¹`, the
    weights without it have `a m₋ = a m + K (a m − t/√(S v))` and `a Σ₋ aᵀ = K`.

    Args:
        x: draws of the features, (G, S, N, D).
        t: the targets, less what the net adds, (S, N, U).
        gaussian: the weights given all rows.
        noise_var: v of each unit, (U,).

    Returns:
        Mean and variance of `wᵀx` for each draw, (S, N, U).
    """
    draws, units = x.shape[1], len(noise_var)
    per_group = units // len(x)
    tril, means, variances = gaussian.scale_tril(), [], []
    for unit in range(units):
        size = (draws * noise_var[unit]).sqrt()
        a = (x[unit // per_group] / size).transpose(0, 1)
        half = a @ tril[unit]
        h = half @ half.mT
        # Draws other than those of the statistics may seem to explain more than all rows do.
        values, vectors = torch.linalg.eigh(h)
        ratio = (values / (1 - values.clamp(0, 1 - 1e-6))).clamp_min(0)
        k = (vectors * ratio.unsqueeze(-2)) @ vectors.mT
        fitted = a @ gaussian.mean[unit]
        residual = fitted - t[..., unit].T / size
        means.append(((fitted + (k @ residual.unsqueeze(-1)).squeeze(-1)) * size).T)
        variances.append((k.diagonal(dim1=-2, dim2=-1) * size.square()).T)
    return torch.stack(means, -1), torch.stack(variances, -1)
