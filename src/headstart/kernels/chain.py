"""A chain of dense layers: all their draws and their KL in one pass, with its gradient written out.

Layer by layer these are `headstart.kernels.fused.dense` and `isotropic_kl`, or `dense_each` of
several members: the same numbers. What is spared is the graph between the layers, which is most of
what a step of a small net costs; between large layers it takes the time and memory that they take
one by one.
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
    squares,
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


_SMALL = 2**16
"""Up to so many inputs of a layer, keeping their squares costs less than computing them again."""


class _Kept(NamedTuple):
    """What a layer keeps for the gradient."""

    mean: Tensor
    var: Tensor
    slope: Tensor
    rows: Tensor
    """What it was given, with a 1 for the bias if it has one and the squares are kept."""
    squared: Tensor | None
    activated: Tensor | None
    """What the gradient of its activation needs."""


class _DrawLayers(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, layers: Sequence[ChainLayer], x: Tensor, prior_var: float, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        means, logvars = parameters[: len(layers)], parameters[len(layers) :]
        kl, variances = kl_and_variances(means, logvars, prior_var)
        kept, batch = list[Tensor | None](), x.shape[0]
        ctx.layers, ctx.prior_var, ctx.fan_ins = layers, prior_var, list[int]()
        for layer, mean, var in zip(layers, means, variances, strict=True):
            rows = with_ones(x, mean.shape[1])
            is_small, biased = rows.numel() <= _SMALL, rows is not x
            drawn, slope, squared = _drawn(layer, rows, mean, var, biased, not is_small)
            inputs: tuple[Tensor, Tensor | None] = (rows, squared) if is_small else (x, None)
            ctx.fan_ins.append(x.shape[1])
            x, activated = drawn, None
            if layer.activation is not None:
                x = layer.activation.run(drawn)
                activated = drawn if layer.activation.keeps_input else x
            kept += _Kept(mean, var, slope, *inputs, activated)
        # Torch sees to it that batch and parameters are still the same when they are needed again.
        ctx.save_for_backward(*kept)
        ctx.set_materialize_grads(False)
        units = x.shape[1]
        # A view could not be worked on in place.
        return x.as_strided_((x.shape[0] // batch, batch, units), (batch * units, units, 1)), kl

    @staticmethod
    @once_differentiable_if_asked
    def backward(
        ctx: Any, grad: Tensor | None, kl_grad: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        width = len(_Kept._fields)
        saved, layers = ctx.saved_tensors, list(enumerate(ctx.layers))
        if kl_grad is None:
            kl_grad = saved[0].new_zeros(())
        pull, less = kl_slopes(kl_grad, ctx.prior_var)
        half = 0.5 * pull
        found: list[Tensor] = []
        # The gradient that was given is somebody else's; what is made of it is not.
        own, grad = False, None if grad is None else grad.reshape(-1, grad.shape[2])
        for number, layer in reversed(layers):
            kept = _Kept(*saved[width * number : width * (number + 1)])
            if grad is None:
                # Draws that nobody asked for are not gone back through: they may be infinite.
                found += kept.mean * pull, torch.addcmul(less, half, kept.var)
                continue
            if layer.activation is not None:
                grad = layer.activation.back(grad, kept.activated)
            fan_in = ctx.fan_ins[number]
            grad, by_mean, by_var = _layer_gradients(layer, kept, fan_in, grad, number == 0, own)
            # Twice the gradient by the variance came.
            by_var = torch.add(half, by_var, alpha=0.5)
            found += by_mean.addcmul_(kept.mean, pull), torch.addcmul(less, by_var, kept.var)
            own = True
        return None, None, None, *found[-2::-2], *found[::-2]


def _drawn(
    layer: ChainLayer, rows: Tensor, mean: Tensor, var: Tensor, biased: bool, spare: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Draws of a layer's outputs, their slope, and the squares of its rows.

    Rows that were made for a bias may be overwritten, where memory is to be spared.
    """
    fold, units = layer.fold, mean.shape[0]
    if fold is not None:
        noise = member_noise(layer.noise, fold, (fold.rows(rows), units // fold.members), rows)
        return draw_each(rows, mean, var, noise, fold, biased)
    noise = layer.noise((layer.branches * rows.shape[0], units), rows)
    out, sd, squared = dense_moments(rows, mean, var, biased, in_place=spare and biased)
    slope = noise_slope(out, sd, noise, layer.branches)
    return draw_samples(out, sd, noise, layer.branches, in_place=True), slope, squared


def _layer_gradients(
    layer: ChainLayer, kept: _Kept, fan_in: int, grad: Tensor, is_first: bool, own: bool
) -> tuple[Any, Tensor, Tensor]:
    """The gradients by a layer's inputs, by the means, and twice that by the variances.

    Inputs of the first layer need none. A gradient of one's own is overwritten.
    """
    mean, var, slope, given, squared, _ = kept
    rows = with_ones(given, mean.shape[1])
    if layer.fold is not None:
        parts = rows, rows * rows if squared is None else squared, mean, var
        return each_grad(grad, slope, parts, layer.fold, None if is_first else fan_in)
    g, h = moments_grad(grad, slope, in_place=own)
    x = leading_columns(given, fan_in)
    by_x = None if is_first else dense_input_grad(g, h, x, mean, var)
    by_mean = torch.mm(g.t(), rows)
    if squared is None:
        squared = squares(rows, in_place=rows is not given)
    return by_x, by_mean, torch.mm(h.t(), squared)
