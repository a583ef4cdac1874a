"""Standard normal noise for S samples, folded along axis 0: independent, or antithetic and common.

An average over samples needs each sample's noise to be right, not that of different samples to be
independent. So the estimate of the NELBO uses random numbers several times.

Antithetic: as their negatives. That cancels what is odd in them, which is most of the noise of a
gradient, unless the net fits its labels so well that the loss is even: then a pair counts as one.

Common: at other places, where they meet other weights, or other rows and units. The gradient of a
weight sees other numbers in every sample all the same, and sixteen samples of a large layer need
only 1.1 times the numbers of one (docs/results/speed.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.errors import HeadstartError

Noise = Callable[[tuple[int, ...], Tensor], Tensor]
"""Noise of a shape, of another tensor's type and device: `noise(shape, like)`.

The samples are folded along axis 0, one after another. The noise may come with the samples on two
axes before that, (2, S / 2), the second half minus the first, in memory that they share (`folded`).
"""


def fresh(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Independent numbers."""
    if torch.jit.is_tracing() and torch.onnx.is_in_onnx_export():  # type: ignore[attr-defined]
        raise HeadstartError(
            "The legacy ONNX exporter gives all layers of a shape the same noise, so that draws "
            "are too sure: export hs.freeze(model) with torch.onnx.export(..., dynamo=True), or "
            "the mean network within hs.drawing(model, 'mean')."
        )
    return torch.randn(shape, dtype=like.dtype, device=like.device)


def folded(noise: Tensor, ndim: int) -> Tensor:
    """Noise of so many axes, the samples folded along the first however it came.

    Example:
        >>> folded(torch.tensor([[[[3.0], [5.0]]], [[[-3.0], [-5.0]]]]), 2).flatten()
        tensor([ 3.,  5., -3., -5.])
    """
    return noise if noise.ndim == ndim else noise.flatten(0, noise.ndim - ndim)


SHIFT = 64
"""A sample begins this part of its rows after the one before, and a part of a row."""
MIN_NUMBERS, MIN_UNITS = 512, 16
"""With fewer numbers, or units, each sample has its own."""


@dataclass(eq=False)
class Reused:
    """Antithetic noise of samples that have most of their numbers in common.

    Each sample begins a little further on in the numbers, and half of the samples are minus the
    others.

    Args:
        samples: The number of samples S.
        rows: The number of rows of the batch. Noise is fresh where axis 0 is anything but samples,
            or samples of this many rows.
        members: The number K of members of a mixture, with S samples each. Noise of a shape
            (S, K, rows, ...) is theirs: they have most of their numbers in common too, and each is
            antithetic within itself.

    Example:
        >>> noise = folded(Reused(4)((4, 100, 16), torch.empty(0)), 3).flatten(1)
        >>> bool((noise[0, 23:] == noise[1, :-23]).all()), bool((noise[:2] == -noise[2:]).all())
        (True, True)
    """

    samples: int
    rows: int = 1
    members: int = 1

    def __call__(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        if self.members > 1 and len(shape) > 3:
            return self._of_members(shape, like)
        if self.samples == 1 or shape[0] not in (self.samples, self.samples * self.rows):
            return fresh(shape, like)
        one = (shape[0] // self.samples, *shape[1:])
        size, half = math.prod(one), math.ceil(self.samples / 2)
        shift = _shift(size, one[0] if one[0] > 1 else shape[1])
        numbers = fresh((1, size + (half - 1) * shift), like)
        noise = torch.cat([numbers, -numbers]).unfold(1, size, shift).view(2, half, *one)
        return folded(noise, len(shape))[: shape[0]] if self.samples % 2 else noise

    def _of_members(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """(S, K, rows, ...), or (2, S / 2, K, rows, ...)."""
        samples, members, *one = shape
        size, half = math.prod(one), math.ceil(samples / 2)
        shift = _shift(size, one[0])
        numbers = fresh((1, size + (half * members - 1) * shift), like)
        both = numbers if samples == 1 else torch.cat([numbers, -numbers])
        noise = both.unfold(1, size, shift).unflatten(2, one).unflatten(1, (half, members))
        if samples == 1:
            return noise[0]
        return noise.flatten(0, 1)[:samples] if samples % 2 else noise


def _shift(size: int, rows: int) -> int:
    """Far enough for a number to meet another weight, or where it is a row's, another unit.

    A unit's gradient sums over rows.
    """
    row = size // rows
    if size < MIN_NUMBERS or row < MIN_UNITS:
        return size
    part = round(0.382 * row)
    while math.gcd(part, row) > 1:
        part += 1
    return min(size, max(1, rows // SHIFT) * row + part)
