"""Multilayer perceptrons."""

from __future__ import annotations

import itertools
import math

from torch import nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


def mlp(
    shape: tuple[int, ...], outputs: int, *, depth: int, width: int, activation: str = "relu"
) -> nn.Sequential:
    """A multilayer perceptron; inputs of any shape are flattened.

    Args:
        shape: The shape of an input.
        outputs: The number of outputs.
        depth: The number of hidden layers.
        width: The units of each hidden layer.
        activation: One of ACTIVATIONS.

    Example:
        >>> len(mlp((28, 28), 10, depth=2, width=100))
        6
    """
    sizes = [math.prod(shape), *[width] * depth]
    layers: list[nn.Module] = [nn.Flatten()]
    for size, following in itertools.pairwise(sizes):
        layers += [nn.Linear(size, following), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))
