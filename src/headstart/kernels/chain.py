"""A chain of dense layers: all their draws and their KL in one pass, with its gradient written out.

Layer by layer these are `headstart.kernels.fused.dense` and `isotropic_kl`, or `dense_each` of
several members: the same numbers. What is spared are the graph between the layers and copies of
what lies between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.kernels import private as torch_private
from headstart.kernels.draws import (
    draw_samples,
    leading_columns,
    moments_grad,
    noise_slope,
    with_ones,
)
from headstart.kernels.fused import (
    dense_input_grad,
    dense_moments,
    kl_and_variances,
    kl_slopes,
    once_differentiable_if_asked,
)
from headstart.kernels.members import Fold, draw_each, each_grad, member_noise
from headstart.kernels.noise import Noise


class ActivationPair(NamedTuple):
    """A function of each number on its own, and its gradient."""

    run: Callable[[Tensor], Tensor]
    """It may overwrite its input, unless that is kept."""
    back: Callable[[Tensor, Tensor], Tensor]
    """The gradient by the input, from that by the result and what is kept."""
    keeps_input: bool = False
    """Whether the gradient needs the input; else it needs the result."""


_ATEN = torch.ops.aten
ACTIVATION_PAIRS: dict[type[nn.Module], ActivationPair] = {
    nn.ReLU: ActivationPair(torch.relu_, lambda grad, out: _ATEN.threshold_backward(grad, out, 0)),
    nn.Tanh: ActivationPair(torch.tanh_, _ATEN.tanh_backward),
    nn.Sigmoid: ActivationPair(torch.sigmoid_, _ATEN.sigmoid_backward),
    nn.SiLU: ActivationPair(F.silu, _ATEN.silu_backward, keeps_input=True),
    nn.GELU: ActivationPair(F.gelu, _ATEN.gelu_backward, keeps_input=True),
}
"""The activations of a chain, by their modules of torch at their own defaults."""


class ChainLayer(NamedTuple):
    """A dense layer of a chain, and the activation behind it."""

    branches: int
    """How many samples it draws of each that it receives."""
    noise: Noise
    activation: ActivationPair | None
    fold: Fold | None
    """How samples lie, where the weights are those of several members."""


class ChainDraws(NamedTuple):
    """What comes out of a chain, and the KL of its weights."""

    outputs: Tensor
    """Of each sample and row, (S, B, units)."""
    kl: Tensor


def draw_layers(
    layers: Sequence[ChainLayer],
    x: Tensor,
    means: Sequence[Tensor],
    logvars: Sequence[Tensor],
    prior_var: float,
) -> ChainDraws:
    """Draws of a chain's outputs, and `KL(N(mean, exp logvar) ‖ N(0, p))` summed over its weights.

    Args:
        layers: The layers, in order; there is no activation behind the last.
        x: The batch, (B, fan_in).
        means: Of the weights of each layer: (units, fan_in), or (units, fan_in + 1) with the bias
            last.
        logvars: As the means.
        prior_var: p.
    """
    outputs, kl = torch_private.apply(_DrawLayers, layers, x, prior_var, *means, *logvars)
    return ChainDraws(outputs, kl)


class _Kept(NamedTuple):
    """What a layer keeps for the gradient."""

    rows: Tensor
    """What it was given, with a 1 for the bias if it has one."""
    squares: Tensor
    fan_in: int
    var: Tensor
    slope: Tensor
    activated: Tensor | None
    """What the gradient of its activation needs."""


class _DrawLayers(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, layers: Sequence[ChainLayer], x: Tensor, prior_var: float, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        means, logvars = parameters[: len(layers)], parameters[len(layers) :]
        kl, variances = kl_and_variances(means, logvars, prior_var)
        kept, batch = list[_Kept](), x.shape[0]
        for layer, mean, var in zip(layers, means, variances, strict=True):
            rows, fan_in = with_ones(x, mean.shape[1]), x.shape[1]
            out, slope, squares = _drawn(layer, rows, mean, var, biased=rows is not x)
            x, activated = out, None
            if layer.activation is not None:
                x = layer.activation.run(out)
                activated = out if layer.activation.keeps_input else x
            kept.append(_Kept(rows, squares, fan_in, var, slope, activated))
        ctx.layers, ctx.prior_var, ctx.kept = layers, prior_var, kept
        # The means are the parameters themselves: torch sees to it that they are the same still.
        ctx.save_for_backward(*means)
        units = x.shape[1]
        # A view could not be worked on in place.
        return x.as_strided_((x.shape[0] // batch, batch, units), (batch * units, units, 1)), kl

    @staticmethod
    @once_differentiable_if_asked
    def backward(ctx: Any, grad: Tensor, kl_grad: Tensor) -> tuple[Tensor | None, ...]:
        means, grad = ctx.saved_tensors, grad.reshape(-1, grad.shape[2])
        pull, less = kl_slopes(kl_grad, ctx.prior_var)
        half = 0.5 * pull
        found: list[Tensor] = []
        for number in reversed(range(len(means))):
            layer, kept, mean = ctx.layers[number], ctx.kept[number], means[number]
            if layer.activation is not None:
                grad = layer.activation.back(grad, kept.activated)
            # What was given is somebody else's; what was made of it is not.
            own = number < len(means) - 1
            by_x, by_mean, by_var = _layer_gradients(layer, kept, mean, grad, number == 0, own)
            # Twice the gradient by the variance came.
            by_var = torch.add(half, by_var, alpha=0.5)
            found += by_mean.addcmul_(mean, pull), torch.addcmul(less, by_var, kept.var)
            grad = by_x
        return None, None, None, *found[-2::-2], *found[::-2]


def _drawn(
    layer: ChainLayer, rows: Tensor, mean: Tensor, var: Tensor, biased: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Draws of a layer's outputs, their slope, and the squares of its rows."""
    fold, units = layer.fold, mean.shape[0]
    if fold is not None:
        noise = member_noise(layer.noise, fold, (fold.rows(rows), units // fold.members), rows)
        return draw_each(rows, mean, var, noise, fold, biased)
    noise = layer.noise((layer.branches * rows.shape[0], units), rows)
    out, sd, squares = dense_moments(rows, mean, var, biased)
    slope = noise_slope(out, sd, noise, layer.branches)
    return draw_samples(out, sd, noise, layer.branches, in_place=True), slope, squares


def _layer_gradients(
    layer: ChainLayer, kept: _Kept, mean: Tensor, grad: Tensor, is_first: bool, own: bool
) -> tuple[Any, Tensor, Tensor]:
    """The gradients by a layer's inputs, by the means, and twice that by the variances.

    Inputs of the first layer need none. A gradient of one's own is overwritten.
    """
    rows, squares, fan_in, var, slope, _ = kept
    if layer.fold is not None:
        parts = rows, squares, mean, var
        return each_grad(grad, slope, parts, layer.fold, None if is_first else fan_in)
    g, h = moments_grad(grad, slope, in_place=own)
    x = leading_columns(rows, fan_in)
    by_x = None if is_first else dense_input_grad(g, h, x, mean, var)
    return by_x, torch.mm(g.t(), rows), torch.mm(h.t(), squares)
