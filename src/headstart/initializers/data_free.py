"""Initializers without data (paper, section 4): mean and variance from the layer's shape alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from headstart.linalg.affine import active_inputs, fan_in, fan_out
from headstart.linalg.gaussians import Diagonal
from headstart.network.layer import Bayesian, bayesian_layers


def uninformative(layer: Bayesian) -> Diagonal:
    """N(0, 1)."""
    return _around_zero(layer, 1.0)


def heuristic(layer: Bayesian) -> Diagonal:
    """N(0, 1/fan_in)."""
    return _around_zero(layer, 1 / active_inputs(layer.op))


def xavier(layer: Bayesian) -> Diagonal:
    """N(0, 2/(fan_in + fan_out))."""
    return _around_zero(layer, 2 / (active_inputs(layer.op) + fan_out(layer.op)))


def orthogonal(layer: Bayesian) -> Diagonal:
    """Mean a random matrix with orthonormal rows (or columns), the bias 0; variance 1/fan_in."""
    size = fan_in(layer.op)
    mean = _zero_mean(layer)
    rows = torch.empty(len(mean), size, dtype=torch.float64)
    mean[:, :size] = torch.nn.init.orthogonal_(rows).to(mean)
    return Diagonal(mean, torch.full_like(mean, 1 / active_inputs(layer.op)))


def stock(layer: Bayesian) -> Diagonal:
    """The mean that the layer has, in a fresh net torch's own start; variance 1/fan_in."""
    mean = layer.posterior.mean.detach().clone()
    return Diagonal(mean, torch.full_like(mean, 1 / active_inputs(layer.op)))


def _around_zero(layer: Bayesian, var: float) -> Diagonal:
    mean = _zero_mean(layer)
    return Diagonal(mean, torch.full_like(mean, var))


def _zero_mean(layer: Bayesian) -> Tensor:
    return torch.zeros_like(layer.posterior.mean, requires_grad=False)


@torch.no_grad()
def apply_(model: nn.Module, rule: Callable[[Bayesian], Diagonal]) -> Iterator[str]:
    """Give every layer its rule's Gaussian.

    Args:
        model: the net, overwritten.
        rule: one of `DATA_FREE`.

    Yields:
        The name of each layer as it is done.
    """
    for name, layer in bayesian_layers(model).items():
        layer.posterior.project_(rule(layer))
        yield name


DATA_FREE = {rule.__name__: rule for rule in (uninformative, heuristic, xavier, orthogonal, stock)}
