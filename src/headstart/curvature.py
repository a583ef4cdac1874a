"""Kronecker factors of a net's Fisher matrix: per layer `F ≈ outputs ⊗ inputs`, and how to damp their product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from headstart.errors import HeadstartError
from headstart.likelihoods import Likelihood
from headstart.linalg.affine import channel_axis, design, groups
from headstart.network.forward import check_outputs, forward
from headstart.network.layer import Bayesian, bayesian_layers
from headstart.network.probe import check_rows

FISHERS = ("sampled", "empirical")
"""Whose labels the gradients are of: drawn from the model's own predictions, or those of the data."""
ROW_BUDGET = 2**24
"""Numbers in the patches whose products are summed at once."""
ITERATIONS, TOLERANCE = 1000, 1e-7


class Factors(NamedTuple):
    """`F ≈ outputs ⊗ inputs` for the (units, size) weights of a layer, per example."""

    inputs: Tensor
    outputs: Tensor


class _Call(NamedTuple):
    """What a layer received, and the way to the gradient of what it gave."""

    inputs: Tensor
    output: GradientEdge  # not the tensor: an activation in place would put its own gradient there


def kronecker_factors(
    model: nn.Module, likelihood: Likelihood, x: Tensor, y: Any = None, *, sampler: str = "weights"
) -> dict[str, Factors]:
    """The factors of every Bayesian layer whose output learns, averaged over the rows of `x`, from one draw of the weights.

    With a_t the inputs (a 1 for the bias last) and g_t the gradient of −log p(y | x) by the outputs at position t of T:
    `inputs = E Σ_t a_t a_tᵀ`, `outputs = (1/T) E Σ_t g_t g_tᵀ` (Martens and Grosse 2015; Grosse and Martens 2016). Labels are
    drawn from the model's own predictions, or given as `y`: the empirical Fisher. What is not finite
    is left out.

    Example:
        >>> import headstart as hs
        >>> model = hs.bayesianize(nn.Linear(3, 2), posterior="matrix_normal")
        >>> factors = kronecker_factors(model, hs.Gaussian(noise_var=0.5), torch.randn(8, 3))
        >>> [tuple(factor.shape) for factor in factors[""]]
        [(4, 4), (2, 2)]
    """
    layers = bayesian_layers(model)
    seen: dict[str, list[_Call]] = {name: [] for name in layers}

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def keep(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            if (
                output.requires_grad
            ):  # nothing below or in a layer that is frozen, and the input, has a gradient
                seen[name].append(_Call(args[0].detach(), get_gradient_edge(output)))

        return keep

    # before anything is watched: it passes rows of its own
    check_rows(model, x)
    handles = [layer.register_forward_hook(watch(name)) for name, layer in layers.items()]
    try:
        f = check_outputs(forward(model, x, 1, sampler))[0]
    finally:
        for handle in handles:
            handle.remove()
    if not torch.isfinite(f).all():
        return {}
    labels = (
        likelihood.sample(f.detach())
        if y is None
        else likelihood.check(torch.as_tensor(y, device=f.device), f.shape[-1])
    )
    loss = -likelihood.log_prob(f, labels).sum()
    edges = [call.output for calls in seen.values() for call in calls]
    gradients = iter(torch.autograd.grad(loss, edges, allow_unused=True) if edges else ())
    found = {}
    with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
        for name, calls in seen.items():
            pairs = [(call.inputs, next(gradients)) for call in calls]
            used = [(inputs, gradient) for inputs, gradient in pairs if gradient is not None]
            if used:
                found[name] = _factors(layers[name], used, len(x))
    return {
        name: each
        for name, each in found.items()
        if all(bool(torch.isfinite(part).all()) for part in each)
    }


def _factors(layer: Bayesian, calls: list[tuple[Tensor, Tensor]], count: int) -> Factors:
    """From a layer's calls, (inputs, gradient of its outputs) each: the positions of all of them together, over `count` examples."""
    op, posterior = layer.op, layer.posterior
    if groups(op) > 1:
        raise HeadstartError(
            f"Kronecker factors do not know grouped layers ({op}); leave this one out with where=."
        )
    a, g = (
        posterior.mean.new_zeros(posterior.size, posterior.size),
        posterior.mean.new_zeros(posterior.units, posterior.units),
    )
    total, fan_in, axis = 0, layer.fan_in, channel_axis(op)
    for inputs, gradient in calls:
        slopes = gradient.movedim(axis, -1).reshape(-1, posterior.units).to(a)
        g += slopes.T @ slopes
        total += len(slopes)
        few = max(
            1, ROW_BUDGET // max(1, fan_in * (len(slopes) // len(inputs)))
        )  # images whose patches fit
        for part in inputs.split(few):
            rows = design(op, part)[0].flatten(0, 1).to(a)
            a[:fan_in, :fan_in] += rows.T @ rows
            if layer.has_bias:
                sums = rows.sum(0)
                a[-1, :-1] += sums
                a[:-1, -1] += sums
                a[-1, -1] += len(rows)
    return Factors(a / count, g / total)


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
    inputs, outputs = (
        torch.eye(len(factor), dtype=factor.dtype, device=factor.device) for factor in factors
    )
    return Factors(
        split.a_inputs * factors.inputs + split.d_inputs * inputs,
        split.a_outputs * factors.outputs + split.d_outputs * outputs,
    )


def without_rounding(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """A sum of products as rounding left it, in double precision, symmetric and without negative eigenvalues; and its eigenvalues."""
    matrix = (matrix.double() + matrix.double().T) / 2
    values = torch.linalg.eigvalsh(matrix)
    below = (-values[0]).clamp_min(0)
    return matrix + below * torch.eye(
        len(matrix), dtype=matrix.dtype, device=matrix.device
    ), values + below
