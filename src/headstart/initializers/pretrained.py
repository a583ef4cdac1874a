"""Means from a trained net of the same shape."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.linalg.affine import is_affine
from headstart.linalg.gaussians import Diagonal
from headstart.network.decompose import decompose_as_
from headstart.network.layer import Bayesian, bayesian_layers, stock_weights

RELATIVE_SD = 0.1
"""Standard deviations around given weights, as a fraction of a layer's root mean square weight."""


@torch.no_grad()
def pretrained_(
    model: nn.Module, *, net: nn.Module, relative_sd: float = RELATIVE_SD
) -> Iterator[str]:
    """Means are the weights of `net`; what stays deterministic is copied as it is.

    Deterministic are a body under `where="last"`, norms and their statistics.

    Args:
        model: the Bayesian net, overwritten.
        net: the trained net.
        relative_sd: standard deviations, as a fraction of a layer's root mean square weight.

    Yields:
        The name of each layer as it is done.
    """
    layers = bayesian_layers(model)
    net = decompose_as_(copy.deepcopy(net), layers)
    sources = {name: module for name, module in net.named_modules() if is_affine(module)}
    for name, layer in layers.items():
        if name not in sources:
            raise HeadstartError(
                f"The trained net has no affine layer {name!r}; "
                f"it has: {', '.join(sources) or 'none'}."
            )
        _copy_layer_(name, layer, sources[name], relative_sd)
        yield name
    _copy_others_(model, net, tuple(f"{name}." if name else "" for name in layers))


def _copy_layer_(name: str, layer: Bayesian, source: nn.Module, relative_sd: float) -> None:
    mean = stock_weights(source)
    if mean.shape != layer.posterior.mean.shape:
        raise HeadstartError(
            f"Layer {name!r} holds {tuple(layer.posterior.mean.shape)} weights, "
            f"but the trained net's holds {tuple(mean.shape)}."
        )
    layer.posterior.project_(near(mean, relative_sd))


def near(mean: Tensor, relative_sd: float) -> Diagonal:
    """A Gaussian around given weights, (units, size), with one variance.

    Args:
        mean: the weights.
        relative_sd: the standard deviation, as a fraction of their root mean square.
    """
    var = relative_sd**2 * mean.square().mean().clamp_min(1e-12)
    return Diagonal(mean, var.expand_as(mean))


def _copy_others_(model: nn.Module, net: nn.Module, bayesian: tuple[str, ...]) -> None:
    """What of `model` does not belong to a Bayesian layer, from `net`."""
    trained = net.state_dict()
    for name, tensor in model.state_dict().items():
        if name.startswith(bayesian):
            continue
        if name not in trained or trained[name].shape != tensor.shape:
            raise HeadstartError(
                f"The trained net has no {name!r} of shape {tuple(tensor.shape)} to copy."
            )
        tensor.copy_(trained[name])
