"""Kronecker factors of a net's Fisher matrix: per layer `F ≈ outputs ⊗ inputs`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from headstart.errors import HeadstartError
from headstart.likelihoods import Likelihood
from headstart.linalg.affine import channel_axis, design, groups
from headstart.linalg.kronecker import Factors
from headstart.nested import TensorTree, map_each, parts_of
from headstart.network.forward import forward
from headstart.network.inputs import as_tensors
from headstart.network.layer import Bayesian, bayesian_layers, count_members
from headstart.network.probe import check_rows

FISHERS = ("sampled", "empirical")
"""Whose labels the gradients are of: drawn from the model's own predictions, or the data's."""
PATCH_BUDGET = 2**24
"""Numbers in the patches whose products are summed at once."""


class _DifferentiableCall(NamedTuple):
    """What a layer received, and the way to the gradient of what it gave."""

    inputs: Tensor
    output: GradientEdge
    """Not the tensor: an activation in place would put its own gradient there."""


def kronecker_factors(
    model: nn.Module,
    likelihood: Likelihood,
    x: TensorTree,
    y: Any = None,
    *,
    sampler: str = "weights",
) -> dict[str, Factors]:
    """The factors of every Bayesian layer whose output learns, from one draw of the weights.

    With a_t the inputs (a 1 for the bias last) and g_t the gradient of −log p(y | x) by the outputs
    at position t of T, averaged over the rows of `x`:
    `inputs = E Σ_t a_t a_tᵀ`, `outputs = (1/T) E Σ_t g_t g_tᵀ` (Martens and Grosse 2015; Grosse and
    Martens 2016).

    Args:
        model: a net from `bayesianize`.
        likelihood: p(y | f).
        x: the rows.
        y: their labels, for the empirical Fisher; None draws labels from the model's own
            predictions.
        sampler: how the weights are drawn.

    Returns:
        The factors by the name of the layer; what is not finite is left out.

    Example:
        >>> import headstart as hs
        >>> model = hs.bayesianize(nn.Linear(3, 2), posterior="matrix_normal")
        >>> factors = kronecker_factors(model, hs.Gaussian(noise_var=0.5), torch.randn(8, 3))
        >>> [tuple(factor.shape) for factor in factors[""]]
        [(4, 4), (2, 2)]
    """
    if count_members(model) > 1:
        raise HeadstartError(
            "Kronecker factors are those of a single posterior; this model has several members: "
            "take them within hs.member(model, index)."
        )
    # Before any call is recorded: it passes rows of its own.
    check_rows(model, x)
    with _recording(model) as seen:
        f = likelihood.read(forward(model, x, 1, sampler))[0]
    if not all(bool(torch.isfinite(part).all()) for part in parts_of(f)):
        return {}
    if y is None:
        labels = likelihood.sample(map_each(torch.Tensor.detach, f))
    else:
        given = map_each(lambda part: part.to(x.device), as_tensors(y, "y"))
        labels = likelihood.check(given, likelihood.outputs_of(f))
    loss = -likelihood.log_prob(f, labels).sum()
    layers, found = bayesian_layers(model), {}
    slopes = _gradients(loss, seen)
    with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
        for name, calls in slopes.items():
            if calls:
                found[name] = _layer_factors(layers[name], calls, len(x))
    return {name: each for name, each in found.items() if _is_finite(each)}


@contextmanager
def _recording(model: nn.Module) -> Iterator[dict[str, list[_DifferentiableCall]]]:
    """Within this scope the calls of each Bayesian layer are kept, by its name."""
    seen: dict[str, list[_DifferentiableCall]] = {name: [] for name in bayesian_layers(model)}

    def record(name: str, inputs: Tensor, output: Tensor) -> None:
        # Nothing below or in a layer that is frozen, and the input, has a gradient.
        if output.requires_grad:
            seen[name].append(_DifferentiableCall(inputs.detach(), get_gradient_edge(output)))

    handles = [
        layer.register_forward_hook(
            lambda _, args, named, out, name=name: record(
                name, args[0] if args else named["input"], out
            ),
            with_kwargs=True,
        )
        for name, layer in bayesian_layers(model).items()
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _gradients(
    loss: Tensor, seen: dict[str, list[_DifferentiableCall]]
) -> dict[str, list[tuple[Tensor, Tensor]]]:
    """Inputs and gradient of the outputs of every call that the loss depends on, by layer."""
    edges = [call.output for calls in seen.values() for call in calls]
    gradients = iter(torch.autograd.grad(loss, edges, allow_unused=True) if edges else ())
    pairs = {
        name: [(call.inputs, next(gradients)) for call in calls] for name, calls in seen.items()
    }
    return {
        name: [(inputs, gradient) for inputs, gradient in calls if gradient is not None]
        for name, calls in pairs.items()
    }


def _is_finite(factors: Factors) -> bool:
    return all(bool(torch.isfinite(factor).all()) for factor in factors)


def _layer_factors(layer: Bayesian, calls: list[tuple[Tensor, Tensor]], count: int) -> Factors:
    """From a layer's calls, (inputs, gradient of its outputs) each, over `count` examples.

    The positions of all calls count together.
    """
    op, posterior = layer.op, layer.posterior
    if groups(op) > 1:
        raise HeadstartError(
            f"Kronecker factors do not know grouped layers ({op}); leave this one out with where=."
        )
    a = posterior.mean.new_zeros(posterior.size, posterior.size)
    g = posterior.mean.new_zeros(posterior.units, posterior.units)
    total, fan_in, axis = 0, layer.fan_in, channel_axis(op)
    for inputs, gradient in calls:
        slopes = gradient.movedim(axis, -1).reshape(-1, posterior.units).to(a)
        g += slopes.T @ slopes
        total += len(slopes)
        # As many images at a time as have patches that fit.
        at_once = max(1, PATCH_BUDGET // max(1, fan_in * (len(slopes) // len(inputs))))
        for part in inputs.split(at_once):
            rows = design(op, part)[0].flatten(0, 1).to(a)
            a[:fan_in, :fan_in] += rows.T @ rows
            if layer.has_bias:
                sums = rows.sum(0)
                a[-1, :-1] += sums
                a[:-1, -1] += sums
                a[-1, -1] += len(rows)
    return Factors(a / count, g / total)
