"""LSUV (Mishkin and Matas 2016): orthogonal means, scaled until outputs have variance 1."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from headstart.batching import Batches
from headstart.distributed.sharding import concatenate
from headstart.errors import HeadstartError
from headstart.initializers.data_free import orthogonal
from headstart.initializers.walk import count_calls, execution_order, layer_inputs
from headstart.linalg.affine import active_inputs, affine, split
from headstart.linalg.gaussians import Diagonal


@torch.no_grad()
def lsuv_(
    model: nn.Module,
    batches: Batches,
    *,
    rows: int = 1024,
    tolerance: float = 0.01,
    iterations: int = 10,
) -> Iterator[str]:
    """Scale the mean network's layers; their variance is 1/fan_in afterwards.

    So sampled activations grow with depth: that is the method as published.

    Args:
        model: the net, overwritten.
        batches: the data.
        rows: rows on which outputs are measured.
        tolerance: how near to 1 their variance must be.
        iterations: a bound on the rescalings of a layer.

    Yields:
        The name of each layer as it is done.
    """
    x, _, shard = concatenate(list(batches.shards(rows)))
    if shard.total < 2:
        raise HeadstartError(
            "LSUV measures a variance over rows, so it needs at least two of them; "
            "the batches hold one."
        )
    calls = count_calls(model, x[:2])
    for name, layer in execution_order(model, x[:2]).items():
        inputs = layer_inputs(model, layer, x, sampler="mean", count=calls[layer])
        start = orthogonal(layer)
        mean = start.mean
        for _ in range(iterations):
            outputs = [affine(layer.op, each, *split(layer.op, mean)).flatten() for each in inputs]
            var = batches.rows.overall_var(torch.cat(outputs))
            if not var > 0:
                raise HeadstartError(
                    f"LSUV found a constant output at layer {name!r}; are the inputs constant?"
                )
            if abs(var - 1) < tolerance:
                break
            mean = mean / var**0.5
        layer.posterior.project_(Diagonal(mean, torch.full_like(mean, 1 / active_inputs(layer.op))))
        yield name
