"""Means from a trained net of the same shape."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from headstart.errors import HeadstartError
from headstart.linalg.affine import is_affine
from headstart.linalg.gaussians import Diagonal
from headstart.network.layer import bayesian_layers, stock_weights


@torch.no_grad()
def pretrained_(model: nn.Module, *, net: nn.Module, relative_sd: float = 0.1) -> Iterator[str]:
    """Mean = the weights of `net`, standard deviation = `relative_sd` times their root mean square in each layer.

    What stays deterministic (a body under `where="last"`, norms and their statistics, embeddings) is copied as it is.
    """
    sources = {name: module for name, module in net.named_modules() if is_affine(module)}
    for name, layer in bayesian_layers(model).items():
        if name not in sources:
            raise HeadstartError(
                f"The trained net has no affine layer {name!r}; it has: {', '.join(sources) or 'none'}."
            )
        mean = stock_weights(sources[name])
        if mean.shape != layer.posterior.mean.shape:
            raise HeadstartError(
                f"Layer {name!r} holds {tuple(layer.posterior.mean.shape)} weights, but the trained net's holds {tuple(mean.shape)}."
            )
        var = relative_sd**2 * mean.square().mean().clamp_min(1e-12)
        layer.posterior.project_(Diagonal(mean, var.expand_as(mean)))
        yield name
    bayesian = tuple(f"{name}." if name else "" for name in bayesian_layers(model))
    trained = net.state_dict()
    for name, tensor in model.state_dict().items():
        if name.startswith(bayesian):
            continue
        if name not in trained or trained[name].shape != tensor.shape:
            raise HeadstartError(
                f"The trained net has no {name!r} of shape {tuple(tensor.shape)} to copy."
            )
        tensor.copy_(trained[name])
