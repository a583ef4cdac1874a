"""How far a whole net follows its own labels: the degrees of freedom that it spends on them.

With J the gradient of an output by all Bayesian weights, at a draw of q, `E` over draws, priors
N(m, Λ⁻¹) and noise v, the mean of q follows the label of row i by
`h_i = ∂E[f_i]/∂y_i = E[J_i] P⁻¹ E[J_i]ᵀ / v` with `P = Λ + Σ E[JᵀJ]/v`, to first order.
The noise of the weights is in P twice: it smooths E[J], and it makes E[JᵀJ] larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headstart.distributed.sharding import concatenate
from headstart.kernels.random_state import kept_random_state
from headstart.linalg.affine import is_dense
from headstart.linalg.precision import in_double
from headstart.network.forward import drawing
from headstart.network.layer import Bayesian, bayesian_layers
from headstart.network.members import member
from headstart.network.probe import evaluating
from headstart.training.read_out import ReadOut

WEIGHT_DRAWS = 4
"""Draws of the weights."""
MAX_GRADIENTS = 1024
"""Gradients of one member: draws times rows times outputs."""
ROWS_TO_COUNT = 16
"""Rows below which gradients say too little."""


def fraction_spent(read_out: ReadOut, noise_var: Tensor) -> Tensor | None:
    """The mean over rows of h, of each output; of a mixture its mean over members too, (K,).

    None where only the read-out is random, where a layer is not dense or sees a row several times,
    or where outputs are too many.

    Args:
        read_out: the read-out and its data.
        noise_var: v of each output, in its own units, (K,).
    """
    rows = min(read_out.num_data, MAX_GRADIENTS // (WEIGHT_DRAWS * read_out.outputs))
    if not read_out.below or rows < min(ROWS_TO_COUNT, read_out.num_data):
        return None
    batch = concatenate(list(read_out.inputs.batches.shards(rows)))
    x, model = batch.shard.gather(batch.x), read_out.inputs.model
    read_out.group.synchronize_rng_()
    weight = read_out.num_data / len(x)
    found = []
    for index in range(read_out.members):
        # The same random numbers for each of them: members that are equal stay so.
        same = kept_random_state(model, enabled=index < read_out.members - 1)
        with same, member(model, index), evaluating(model):
            kernel = _kernel(model, x, noise_var)
        if kernel is None:
            return None
        found.append(spent_by_kernel(kernel, weight).unflatten(0, (len(x), -1)).mean(0))
    return torch.stack(found).mean(0)


def spent_by_kernel(kernel: Tensor, weight: float) -> Tensor:
    """h of each gradient, (R,), from `K = J Λ⁻¹ Jᵀ/v` of S draws, (S, R, S, R).

    With `M = w K/S` of all draws as rows, `J P⁻¹ Jᵀ/v = S/w · [M − M (I + M)⁻¹ M]`. Of it the mean
    over pairs of draws is taken that are not the same: a square of one draw holds its noise too.

    Args:
        kernel: K.
        weight: w, how many rows of the data set a row stands for.
    """
    draws, rows = kernel.shape[:2]
    scaled = (weight / draws) * kernel.flatten(2).flatten(0, 1)
    cholesky = torch.linalg.cholesky(scaled + torch.eye(len(scaled), dtype=scaled.dtype))
    half = torch.linalg.solve_triangular(cholesky, scaled, upper=False)
    solved = (scaled - half.T @ half).reshape(draws, rows, draws, rows)
    pairs = solved.diagonal(dim1=1, dim2=3)
    own = pairs.diagonal(dim1=0, dim2=1).sum(-1)
    return (draws / weight) * (pairs.sum((0, 1)) - own) / (draws * (draws - 1))


def _kernel(model: nn.Module, x: Tensor, noise_var: Tensor) -> Tensor | None:
    """`J Λ⁻¹ Jᵀ/v` between draws, rows and outputs, (S, N·K, S, N·K); None where J is not known.

    The gradient by the weights of a dense layer is an outer product, so that a kernel is a product
    of two.
    """
    layers = bayesian_layers(model)
    inputs: dict[str, list[Tensor]] = {name: [] for name in layers}
    slopes: dict[str, list[Tensor]] = {name: [] for name in layers}
    for _ in range(WEIGHT_DRAWS):
        found = _backward(model, layers, x)
        if found is None:
            return None
        for name, (rows, slope) in found.items():
            inputs[name].append(rows)
            slopes[name].append(slope)
    size = WEIGHT_DRAWS * len(x) * len(noise_var)
    total = in_double(x.new_zeros(size, size))
    for name, layer in layers.items():
        a, b = torch.cat(inputs[name]), torch.cat(slopes[name])
        total += (a @ a.T + layer.has_bias) * (b @ b.T) / layer.prior.mean_precision()
    scale = noise_var.to(total).rsqrt().repeat(size // len(noise_var))
    total = scale.unsqueeze(1) * total * scale
    return total.reshape(WEIGHT_DRAWS, -1, WEIGHT_DRAWS, size // WEIGHT_DRAWS).cpu()


def _backward(
    model: nn.Module, layers: Mapping[str, Bayesian], x: Tensor
) -> dict[str, tuple[Tensor, Tensor]] | None:
    """Inputs and gradients by the outputs of each layer, (N·K, ...), at one draw of the weights."""
    seen: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in layers}

    def see(name: str, args: tuple[Any, ...], output: Tensor) -> Tensor:
        given = output if output.requires_grad else output.detach().requires_grad_()
        seen[name].append((args[0].detach(), given))
        # A copy, since what follows may work in place.
        return given.clone()

    handles = [
        layer.register_forward_hook(lambda _, args, out, name=name: see(name, args, out))
        for name, layer in layers.items()
    ]
    try:
        with torch.enable_grad(), drawing(model, "weights"):
            columns = model(x).unbind(1)
    finally:
        for handle in handles:
            handle.remove()
    for name, calls in seen.items():
        if len(calls) != 1 or calls[0][0].ndim != 2 or not is_dense(layers[name].op):
            return None
    given = [calls[0][1] for calls in seen.values()]
    # Rows do not touch each other: the gradient of their sum has that of each row.
    found = [
        torch.autograd.grad(
            column, given, torch.ones_like(column), retain_graph=True, materialize_grads=True
        )
        for column in columns
    ]
    return {
        name: (
            in_double(calls[0][0]).repeat_interleave(len(columns), 0),
            in_double(torch.stack([each[place] for each in found], 1)).flatten(0, 1),
        )
        for place, (name, calls) in enumerate(seen.items())
    }
