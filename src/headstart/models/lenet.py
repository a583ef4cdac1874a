"""LeNet: two 5×5 convolutions with max-pooling, then dense layers."""

from __future__ import annotations

from torch import nn


def lenet(
    shape: tuple[int, ...],
    outputs: int,
    *,
    filters: tuple[int, int] = (6, 16),
    hidden: tuple[int, ...] = (120, 84),
) -> nn.Sequential:
    """LeNet, by default with 6 and 16 filters and dense layers 120-84.

    Args:
        shape: (C, H, W) of an image, at least 12×12.
        outputs: The number of outputs.
        filters: Of the two convolutions.
        hidden: The units of each dense layer before the last.

    Example:
        >>> import torch
        >>> lenet((1, 28, 28), 10)(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """
    channels, height, width = shape
    first, second = filters
    layers: list[nn.Module] = []
    for inputs, out in ((channels, first), (first, second)):
        layers += [nn.Conv2d(inputs, out, 5), nn.ReLU(), nn.MaxPool2d(2)]
        height, width = (height - 4) // 2, (width - 4) // 2
    size = second * height * width
    layers.append(nn.Flatten())
    for following in hidden:
        layers += [nn.Linear(size, following), nn.ReLU()]
        size = following
    return nn.Sequential(*layers, nn.Linear(size, outputs))
