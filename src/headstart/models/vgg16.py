"""VGG16 for small images, with the paper's numbers of filters."""

from __future__ import annotations

from torch import nn

FILTERS = ((32, 32), (64, 64), (128, 128, 128), (256, 256, 256), (256, 256, 256))
"""The convolutions between one pooling and the next."""


def vgg16(shape: tuple[int, ...], outputs: int) -> nn.Sequential:
    """Thirteen 3×3 convolutions in five blocks, and one dense layer.

    Each block is followed by max-pooling; there is no BatchNorm.

    Args:
        shape: (C, H, W) of an image, at least 32×32.
        outputs: The number of outputs.

    Example:
        >>> import torch
        >>> vgg16((3, 32, 32), 10)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    channels, height, width = shape
    layers: list[nn.Module] = []
    for block in FILTERS:
        for filters in block:
            layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU()]
            channels = filters
        layers.append(nn.MaxPool2d(2))
        height, width = height // 2, width // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * height * width, outputs))
