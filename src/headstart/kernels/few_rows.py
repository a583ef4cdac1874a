"""Convolutions of a few rows with many draws of the weights.

A row that meets S draws is S times the units of one layer, and a product of matrices is faster
than a convolution then. What comes out lies in memory as what came in: with the channels last what
follows, a maximum over positions most of all, is several times faster. The plain expression is a
convolution for each draw.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.kernels.private import transforming

MAX_ROWS, MIN_DRAWS = 2, 8
"""With more rows, or fewer draws, torch's own convolutions are as fast."""


def are_few(x: Tensor, draws: int, shared: bool) -> bool:
    """Whether rows are few and draws many.

    Args:
        x: the rows, of all draws one after another unless all have the same.
        draws: the number of draws of the weights.
        shared: whether all draws have the same rows.
    """
    # An exporter keeps the number of rows open.
    if torch.compiler.is_compiling() or transforming() or draws < MIN_DRAWS:
        return False
    if x.device.type != "cpu":
        return False
    return 0 < x.shape[0] <= (MAX_ROWS if shared else MAX_ROWS * draws)


def convolve_shared(x: Tensor, draws: Tensor, kernel: tuple[int, ...], *settings: Any) -> Tensor:
    """The same rows with each of S draws.

    Args:
        x: (N, C, H, W).
        draws: (S, units, C · h · w), or with the bias as one weight more.
        kernel: h and w.
        settings: stride, padding and dilation.

    Returns:
        (S · N, units, H', W'), in memory with the channels last where x has them last.
    """
    return one_by_one(widen_shared(x, draws, kernel, *settings), len(draws), has_channels_last(x))


def widen_shared(x: Tensor, draws: Tensor, kernel: tuple[int, ...], *settings: Any) -> Tensor:
    """`convolve_shared` with all draws as channels: nothing is copied.

    Whatever treats each channel by itself, an activation or a maximum over positions, may follow,
    and has many channels to work on at once.

    Args:
        x: (N, C, H, W).
        draws: (S, units, C · h · w), or with the bias as one weight more.
        kernel: h and w.
        settings: stride, padding and dilation.

    Returns:
        (N, S · units, H', W'), in memory with the channels last.
    """
    return widen_patches(*shared_patches(x, draws.shape[2], kernel, *settings), draws)


def shared_patches(
    x: Tensor, size: int, kernel: tuple[int, ...], *settings: Any
) -> tuple[Tensor, list[int]]:
    """What all draws of the weights multiply, whichever and how many they are.

    Args:
        x: (N, C, H, W).
        size: the weights of a unit, C · h · w, or with the bias one more.
        kernel: h and w.
        settings: stride, padding and dilation.

    Returns:
        Patches (N, H' · W', size), and H' and W'.
    """
    stride, padding, dilation = settings
    patches = F.unfold(x, kernel, dilation, padding, stride).mT
    sides = [
        (x.shape[2 + i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in range(2)
    ]
    if size > patches.shape[2]:
        # An input that is always 1 costs less than another pass over the outputs.
        patches = F.pad(patches, (0, 1), value=1.0)
    return patches, sides


def widen_patches(patches: Tensor, sides: list[int], draws: Tensor) -> Tensor:
    """`widen_shared` of the patches of its rows.

    Args:
        patches: (N, H' · W', size).
        sides: H' and W'.
        draws: (S, units, size).
    """
    found = patches @ draws.flatten(0, 1).T
    return found.unflatten(1, sides).permute(0, 3, 1, 2)


def convolve_apart(x: Tensor, draws: Tensor, kernel: tuple[int, ...], *settings: Any) -> Tensor:
    """Rows of its own with each of S draws.

    Args:
        x: (S · N, C, H, W).
        draws: (S, units, C · h · w), or with the bias as one weight more.
        kernel: h and w.
        settings: stride, padding and dilation.

    Returns:
        (S · N, units, H', W'), in memory with the channels last where x has them last.
    """
    count = len(draws)
    wide = x.permute(0, 2, 3, 1).unflatten(0, (count, -1)).permute(1, 2, 3, 0, 4).flatten(3)
    wide = wide.contiguous().permute(0, 3, 1, 2)
    return one_by_one(convolve_wide(wide, draws, kernel, *settings), count, has_channels_last(x))


def convolve_wide(x: Tensor, draws: Tensor, kernel: tuple[int, ...], *settings: Any) -> Tensor:
    """`convolve_apart` with all draws as channels, before and after.

    Args:
        x: (N, S · C, H, W), in memory with the channels last.
        draws: (S, units, C · h · w), or with the bias as one weight more.
        kernel: h and w.
        settings: stride, padding and dilation.

    Returns:
        (N, S · units, H', W').
    """
    count = len(draws)
    weight, bias = _as_filters(draws, x.shape[1] // count, kernel)
    stride, padding, dilation = settings
    return F.conv2d(x, weight, bias, stride, padding, dilation, count)


def _as_filters(
    draws: Tensor, channels: int, kernel: tuple[int, ...]
) -> tuple[Tensor, Tensor | None]:
    """Weights (S · units, C, h, w) and biases of all draws."""
    size = channels * kernel[0] * kernel[1]
    flat = draws.flatten(0, 1)
    bias = flat[:, size] if flat.shape[1] > size else None
    return flat[:, :size].reshape(-1, channels, *kernel), bias


def one_by_one(wide: Tensor, draws: int, channels_last: bool) -> Tensor:
    """Draws as rows, one after another.

    Args:
        wide: (N, S · units, H, W).
        draws: S.
        channels_last: whether the channels of a pixel are to lie together in memory.

    Returns:
        (S · N, units, H, W).
    """
    each = wide.permute(0, 2, 3, 1).unflatten(3, (draws, -1))
    if not channels_last:
        # A net may look at its activations in ways that need the order they had: `view` does.
        return each.permute(3, 0, 4, 1, 2).flatten(0, 1).contiguous()
    return each.permute(3, 0, 1, 2, 4).flatten(0, 1).contiguous().permute(0, 3, 1, 2)


def has_channels_last(x: Tensor) -> bool:
    """Whether the channels of a pixel lie together, and were made to.

    Args:
        x: (N, C, H, W).

    Example:
        >>> x = torch.zeros(2, 1, 4, 4)
        >>> has_channels_last(x), x.is_contiguous(memory_format=torch.channels_last)
        (False, True)
    """
    return x.stride(1) == 1 and x.shape[2] * x.shape[3] > 1


def plain_convolve(
    x: Tensor, draws: Tensor, kernel: tuple[int, ...], *settings: Any, shared: bool
) -> Tensor:
    """What the two others compute, draw by draw.

    Args:
        x: (N, C, H, W), or (S · N, C, H, W).
        draws: (S, units, C · h · w), or with the bias as one weight more.
        kernel: h and w.
        settings: stride, padding and dilation.
        shared: whether all draws have the same rows.
    """
    rows = [x] * len(draws) if shared else x.chunk(len(draws))
    each = (_as_filters(draw.unsqueeze(0), x.shape[1], kernel) for draw in draws)
    parts = [
        F.conv2d(part, weight, bias, *settings)
        for part, (weight, bias) in zip(rows, each, strict=True)
    ]
    return torch.cat(parts)
