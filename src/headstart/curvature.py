"""Kronecker factors of a net's Fisher matrix: per layer `F ≈ outputs ⊗ inputs`, and the posterior they stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headstart.affine import channel_axis, design, groups
from headstart.errors import HeadstartError
from headstart.layers import Bayesian, bayesian_layers
from headstart.likelihoods import Likelihood
from headstart.passes import check_outputs, drawing

FISHERS = ("sampled", "empirical")
"""Whose labels the gradients are of: drawn from the model's own predictions, or those of the data."""
ITERATIONS, TOLERANCE = 100, 1e-7


class Factors(NamedTuple):
    """`F ≈ outputs ⊗ inputs` for the (units, size) weights of a layer, per example."""

    inputs: Tensor
    outputs: Tensor


def kronecker_factors(
    model: nn.Module, likelihood: Likelihood, x: Tensor, y: Any = None, *, sampler: str = "weights"
) -> dict[str, Factors]:
    """The factors of every Bayesian layer that learns, averaged over the rows of `x`, from one draw of the weights.

    With a_t the inputs (a 1 for the bias last) and g_t the gradient of −log p(y | x) by the outputs at position t of T:
    `inputs = E Σ_t a_t a_tᵀ`, `outputs = (1/T) E Σ_t g_t g_tᵀ` (Martens and Grosse 2015; Grosse and Martens 2016). Labels are
    drawn from the model's own predictions, or given as `y`: the empirical Fisher.

    Example:
        >>> import headstart as hs
        >>> model = hs.bayesianize(nn.Linear(3, 2), posterior="matrix_normal")
        >>> factors = kronecker_factors(model, hs.Gaussian(noise_var=0.5), torch.randn(8, 3))
        >>> [tuple(factor.shape) for factor in factors[""]]
        [(4, 4), (2, 2)]
    """
    layers = bayesian_layers(model)
    seen: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in layers}

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def keep(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            if output.requires_grad:  # a frozen layer's has no gradient
                seen[name].append((args[0].detach(), output))

        return keep

    handles = [layer.register_forward_hook(watch(name)) for name, layer in layers.items()]
    try:
        with drawing(model, sampler, rows=len(x)):
            f = check_outputs(model(x).unsqueeze(0))[0]
    finally:
        for handle in handles:
            handle.remove()
    y = likelihood.sample(f.detach()) if y is None else y
    loss = -likelihood.log_prob(f, likelihood.check(torch.as_tensor(y, device=f.device), f.shape[-1])).sum()
    used = {name: calls for name, calls in seen.items() if calls}
    gradients = iter(torch.autograd.grad(loss, [output for calls in used.values() for _, output in calls]))
    with torch.no_grad():
        return {
            name: _factors(layers[name], [(inputs, next(gradients)) for inputs, _ in calls])
            for name, calls in used.items()
        }


def _factors(layer: Bayesian, calls: list[tuple[Tensor, Tensor]]) -> Factors:
    """Of a layer's calls, (inputs, gradient of its outputs) each: the positions of all of them together."""
    op = layer.op
    if groups(op) > 1:
        raise HeadstartError(f"Kronecker factors do not know grouped layers ({op}); leave this one out with where=.")
    rows = torch.cat([design(op, inputs)[0] for inputs, _ in calls], 1)  # (N, T, D)
    slopes = torch.cat(
        [g.movedim(channel_axis(op), -1).reshape(len(g), -1, g.shape[channel_axis(op)]) for _, g in calls], 1
    )
    count, positions = rows.shape[:2]
    a, g = rows.flatten(0, 1), slopes.flatten(0, 1)
    if layer.has_bias:
        a = torch.cat([a, a.new_ones(len(a), 1)], 1)
    return Factors(a.T @ a / count, g.T @ g / (count * positions))


@dataclass(frozen=True)
class Split:
    """`F + damping ≈ (a_outputs · outputs + d_outputs) ⊗ (a_inputs · inputs + d_inputs)`."""

    a_inputs: float
    d_inputs: float
    a_outputs: float
    d_outputs: float


def split_damping(inputs: Tensor, outputs: Tensor, damping: float) -> Split:
    """How to damp two factors, given their eigenvalues, so that their product stands for `F + damping`.

    The matrix normal nearest in KL(q‖p) to N(·, (F + damping)⁻¹), by the flip-flop of its stationary point: with u, v the
    eigenvalues of its covariances, `1/u_i = mean_j v_j (s_j a_i + damping)`, `1/v_j = mean_i u_i (s_j a_i + damping)`. Exact
    where one factor is a multiple of the identity.

    Example:
        >>> a, s = torch.tensor([3.0, 1.0]), torch.tensor([2.0, 2.0])
        >>> split = split_damping(a, s, 0.5)
        >>> (split.a_inputs * a + split.d_inputs) * (split.a_outputs * s + split.d_outputs)  # 2a + 1/2
        tensor([6.5000, 2.5000])
    """
    a, s = (values.double().clamp_min(0) for values in (inputs, outputs))
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
    return Split(float(alpha), float(delta), float(beta), float(epsilon))


def damped(factors: Factors, split: Split) -> Factors:
    """The factors with this damping in them."""
    inputs, outputs = (torch.eye(len(factor), dtype=factor.dtype, device=factor.device) for factor in factors)
    return Factors(
        split.a_inputs * factors.inputs + split.d_inputs * inputs,
        split.a_outputs * factors.outputs + split.d_outputs * outputs,
    )
