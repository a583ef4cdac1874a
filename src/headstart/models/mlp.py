"""Multilayer perceptrons."""

from __future__ import annotations

import itertools
import math
from typing import final

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError

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


@final
class SkipMLP(nn.Sequential):
    """A multilayer perceptron whose last layer also sees the last features as they are.

    Args:
        shape: The shape of an input, one axis.
        outputs: The number of outputs.
        depth: The number of hidden layers.
        width: The units of each hidden layer.
        activation: One of ACTIVATIONS.
        skip: How many of the last features reach the last layer directly.

    Example:
        >>> SkipMLP((4,), 1, depth=1, width=50, skip=2)[-1]
        Linear(in_features=52, out_features=1, bias=True)
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        outputs: int,
        *,
        depth: int,
        width: int,
        activation: str = "relu",
        skip: int,
    ) -> None:
        if len(shape) != 1 or not 0 < skip <= shape[0]:
            raise HeadstartError(
                f"skip{skip} needs inputs of one axis with at least {max(1, skip)} features, "
                f"not of shape {shape}."
            )
        whole = mlp(shape, outputs, depth=depth, width=width, activation=activation)
        head = nn.Linear((width if depth else shape[0]) + skip, outputs)
        super().__init__(*list(whole)[:-1], head)
        self.skip = skip

    def forward(self, x: Tensor) -> Tensor:
        """Outputs, (rows, outputs).

        Args:
            x: Features, (rows, features).
        """
        *body, head = self
        hidden = x
        for layer in body:
            hidden = layer(hidden)
        skipped = x[:, x.shape[1] - self.skip :]
        # Below this layer a Bayesian net may have branched each row into several samples.
        skipped = skipped.repeat(hidden.shape[0] // x.shape[0], 1)
        out: Tensor = head(torch.cat([hidden, skipped], dim=1))
        return out
