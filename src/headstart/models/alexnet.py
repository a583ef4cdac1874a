"""AlexNet for 32×32 images, as the paper's authors ran it."""

from __future__ import annotations

from torch import nn


def alexnet(shape: tuple[int, ...], outputs: int) -> nn.Sequential:
    """Convolutions 48-128-192-192-128 with three poolings, dense layers 256-96.

    Args:
        shape: (C, H, W) of an image, at least 16×16.
        outputs: The number of outputs.

    Example:
        >>> import torch
        >>> alexnet((3, 32, 32), 10)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    channels, height, width = shape
    pool = nn.MaxPool2d(2)
    layers: list[nn.Module] = []
    for filters, kernel, pooled in (
        (48, 5, True),
        (128, 5, True),
        (192, 3, False),
        (192, 3, False),
        (128, 3, True),
    ):
        layers += [
            nn.Conv2d(channels, filters, kernel, padding=kernel // 2),
            nn.ReLU(),
            *([pool] if pooled else []),
        ]
        channels = filters
    size = channels * (height // 8) * (width // 8)
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(size, 256),
        nn.ReLU(),
        nn.Linear(256, 96),
        nn.ReLU(),
        nn.Linear(96, outputs),
    )
