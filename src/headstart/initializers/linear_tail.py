"""Nets whose outputs are any linear map of what their last layer gives, the same for each unit.

The edges of a graph mix the rows of a layer, an interpolation its positions. The rows of the
read-out's regression are then what the map makes of the layer's own: they are passed through the
rest of the net in the place of the layer's outputs, as many columns at a time as there are units.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headstart.initializers.regression import rows_with_bias
from headstart.initializers.walk import PROBES, Read, as_given, with_output
from headstart.kernels.noise import Noise, fresh
from headstart.kernels.random_state import kept_random_state
from headstart.linalg.affine import channel_axis, groups
from headstart.linalg.precision import in_double
from headstart.nested import TensorTree, parts_of
from headstart.network.layer import Bayesian


def is_linear_tail(model: nn.Module, layer: Bayesian, x: TensorTree, read: Read = as_given) -> bool:
    """Whether the net's output is a linear map of the layer's, unit by unit, plus an offset.

    Args:
        model: a net from `bayesianize`.
        layer: its last layer.
        x: a few rows.
        read: what the likelihood reads in the net's output.
    """
    axis, units = channel_axis(layer.op), layer.posterior.units
    if groups(layer.op) > 1:
        return False

    def output(change: Callable[[Tensor], Tensor]) -> Any:
        """What changed random outputs of the layer become, the same numbers every time."""
        again = torch.Generator().manual_seed(1)

        def given(like: Tensor) -> Tensor:
            numbers = torch.randn(like.shape, generator=again).to(like)
            return change(numbers.movedim(axis, -1)).movedim(-1, axis)

        return with_output(model, layer, x, given)[1]

    untouched = output(lambda numbers: numbers)
    if not any(part.requires_grad for part in parts_of(untouched)):
        return False
    offset = read(output(torch.zeros_like)).detach()
    plain = read(untouched).detach() - offset
    for number, scale in enumerate(PROBES):
        # Every other unit, and in the place of its neighbor.
        some = (torch.arange(units) + number) % 2

        def change(numbers: Tensor, scale: float = scale, some: Tensor = some) -> Tensor:
            return scale * (numbers * some.to(numbers)).roll(1, -1)

        expected, found = change(plain), read(output(change)).detach() - offset
        size = float(expected.abs().max() + offset.abs().max())
        tolerance = max(1e-4, 8 * torch.finfo(plain.dtype).eps)
        if not bool(((found - expected).abs() <= tolerance * size).all()):
            return False
    return bool(plain.any())


@torch.no_grad()
def tail_rows(
    model: nn.Module,
    layer: Bayesian,
    x: TensorTree,
    sampler: str = "local",
    noise: Noise = fresh,
    read: Read = as_given,
) -> tuple[Tensor, Tensor]:
    """The rows of the read-out, through one draw of the layers before it, and the offset.

    Args:
        model: a net from `bayesianize`.
        layer: its last layer.
        x: the rows.
        sampler: how the layers before are drawn.
        noise: where their random numbers come from.
        read: what the likelihood reads in the net's output.

    Returns:
        Rows (1, N, ..., D) and the offset (N, ..., K), with positions where the net has them.
    """
    # The same draw of the layers before in every pass: the last one moves the random state on.
    with kept_random_state(x):
        seen, given = with_output(model, layer, x, torch.zeros_like, sampler, noise)
    offset = read(given).detach()
    designs = [rows_with_bias(layer, inputs)[0] for inputs, _ in seen]
    parts = torch.arange(designs[0].shape[-1]).split(layer.posterior.units)
    found = []
    for number, part in enumerate(parts):
        columns = [each[..., part] for each in designs]
        with kept_random_state(x, enabled=number < len(parts) - 1):
            given = _passed(model, layer, x, columns, sampler, noise)
        found.append((read(given).detach() - offset)[..., : len(part)])
    return in_double(torch.cat(found, -1)).unsqueeze(0), offset


def _passed(
    model: nn.Module,
    layer: Bayesian,
    x: TensorTree,
    columns: list[Tensor],
    sampler: str,
    noise: Noise,
) -> Any:
    """The net's output, where the layer's outputs at each call are these columns, (N, P, few)."""
    axis, units = channel_axis(layer.op), layer.posterior.units
    waiting = iter(columns)

    def make(like: Tensor) -> Tensor:
        given = next(waiting)
        padded = given.new_zeros(*given.shape[:-1], units)
        padded[..., : given.shape[-1]] = given
        return padded.reshape(like.movedim(axis, -1).shape).movedim(-1, axis).to(like)

    return with_output(model, layer, x, make, sampler, noise)[1]
