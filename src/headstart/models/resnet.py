"""A small residual network, with or without BatchNorm."""

from __future__ import annotations

from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions, and the input around them.

    Where the shape changes the input goes through a 1×1 convolution.

    Args:
        channels: Of the input.
        filters: Of the output.
        stride: Of the first convolution.
        batch_norm: Whether each convolution is followed by a BatchNorm.
    """

    def __init__(self, channels: int, filters: int, stride: int, batch_norm: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, filters, 3, stride=stride, padding=1)
        self.second = nn.Conv2d(filters, filters, 3, padding=1)
        self.norms = nn.ModuleList(
            nn.BatchNorm2d(filters) if batch_norm else nn.Identity() for _ in range(2)
        )
        same = stride == 1 and channels == filters
        self.around = nn.Identity() if same else nn.Conv2d(channels, filters, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norms[0](self.first(x)).relu()
        out: Tensor = (self.norms[1](self.second(inner)) + self.around(x)).relu()
        return out


def resnet(
    shape: tuple[int, ...],
    outputs: int,
    *,
    filters: tuple[int, ...] = (16, 32, 64),
    batch_norm: bool = False,
) -> nn.Sequential:
    """A 3×3 convolution, residual blocks, the mean over positions and a dense layer.

    Args:
        shape: (C, H, W) of an image.
        outputs: The number of outputs.
        filters: Of each block; all but the first block halve the image.
        batch_norm: Whether every convolution of a block is followed by a BatchNorm.

    Example:
        >>> import torch
        >>> resnet((3, 32, 32), 10)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    stem = [
        nn.Conv2d(shape[0], filters[0], 3, padding=1),
        nn.BatchNorm2d(filters[0]) if batch_norm else nn.Identity(),
        nn.ReLU(),
    ]
    before = (filters[0], *filters)
    blocks = [
        ResidualBlock(before[i], f, stride=1 if i == 0 else 2, batch_norm=batch_norm)
        for i, f in enumerate(filters)
    ]
    return nn.Sequential(
        *stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(filters[-1], outputs)
    )
