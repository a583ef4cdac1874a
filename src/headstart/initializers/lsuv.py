"""LSUV (Mishkin and Matas 2016): orthogonal means, scaled layer by layer until the mean network's outputs have variance 1."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from headstart.affine import affine, fan_in, split
from headstart.batches import Batches
from headstart.errors import HeadstartError
from headstart.gaussians import Diagonal
from headstart.initializers.data_free import orthogonal
from headstart.initializers.walk import execution_order, layer_input


@torch.no_grad()
def lsuv_(
    model: nn.Module, batches: Batches, *, rows: int = 1024, tolerance: float = 0.01, iterations: int = 10
) -> Iterator[str]:
    """Variance 1/fan_in afterwards, so sampled activations grow with depth: that is the method as published."""
    x = torch.cat([x for x, _ in batches.take(rows)])
    if len(x) < 2:
        raise HeadstartError(
            "LSUV measures a variance over rows, so it needs at least two of them; the batches hold one."
        )
    for name, layer in execution_order(model, x[:2]).items():
        inputs = layer_input(model, layer, x, sampler="mean")
        start = orthogonal(layer)
        mean = start.mean
        for _ in range(iterations):
            var = float(affine(layer.op, inputs, *split(layer.op, mean)).var())
            if not var > 0:
                raise HeadstartError(f"LSUV found a constant output at layer {name!r}; are the inputs constant?")
            if abs(var - 1) < tolerance:
                break
            mean = mean / var**0.5
        layer.posterior.project_(Diagonal(mean, torch.full_like(mean, 1 / fan_in(layer.op))))
        yield name
