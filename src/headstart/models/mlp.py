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


FREQUENCY_SD = 0.1
"""The standard deviation of the frequencies of waves, in periods for each unit of a feature."""


@final
class Periodic(nn.Module):
    """Features and waves of them: `[sin(2π c x), cos(2π c x), x]` with random frequencies c.

    The periodic embeddings of Gorishniy et al. (2022) with fixed frequencies, which are small: for
    standardized features a wave is ten standard deviations long, so that what is added are smooth
    bends rather than oscillations.

    Args:
        features: How many of the first features have waves.
        count: How many frequencies each of them has.

    Example:
        >>> Periodic(3, 2)(torch.zeros(5, 4)).shape
        torch.Size([5, 16])
    """

    frequencies: Tensor

    def __init__(self, features: int, count: int) -> None:
        super().__init__()
        self.register_buffer("frequencies", FREQUENCY_SD * torch.randn(features, count))

    def forward(self, x: Tensor) -> Tensor:
        """The features with their waves before them, (rows, 2 · features · count + columns).

        Args:
            x: Features, (rows, columns).
        """
        some = x[:, : len(self.frequencies)]
        waves = (2 * math.pi * some.unsqueeze(2) * self.frequencies).flatten(1)
        return torch.cat([waves.sin(), waves.cos(), x], dim=1)


def mlp(
    shape: tuple[int, ...],
    outputs: int,
    *,
    depth: int,
    width: int,
    activation: str = "relu",
    periodic: int = 0,
    skip: int = 0,
) -> nn.Sequential:
    """A multilayer perceptron; inputs of any shape are flattened.

    Args:
        shape: The shape of an input.
        outputs: The number of outputs.
        depth: The number of hidden layers.
        width: The units of each hidden layer.
        activation: One of ACTIVATIONS.
        periodic: How many waves of different lengths each feature has (`Periodic`).
        skip: How many of the last features have none.

    Example:
        >>> len(mlp((28, 28), 10, depth=2, width=100))
        6
    """
    inputs = math.prod(shape)
    waves = Periodic(inputs - skip, periodic) if periodic else None
    first = inputs if waves is None else inputs + 2 * waves.frequencies.numel()
    sizes = [first, *[width] * depth]
    layers: list[nn.Module] = [nn.Flatten(), *([] if waves is None else [waves])]
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
        periodic: How many waves of different lengths each of the other features has.

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
        periodic: int = 0,
    ) -> None:
        if len(shape) != 1 or not 0 < skip <= shape[0]:
            raise HeadstartError(
                f"skip{skip} needs inputs of one axis with at least {max(1, skip)} features, "
                f"not of shape {shape}."
            )
        sizes = {"depth": depth, "width": width, "periodic": periodic, "skip": skip}
        *body, last = mlp(shape, outputs, activation=activation, **sizes)
        assert isinstance(last, nn.Linear)
        super().__init__(*body, nn.Linear(last.in_features + skip, outputs))
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
