"""Standard normal noise for S samples, folded along axis 0; fresh for every number, or used several times over.

An average over samples needs each sample's noise to be right, not that of different samples to be independent. So the
estimate of the NELBO may use a draw ε again: as −ε, which cancels what is odd in it, and read backwards, where it meets
other rows and units. That takes a quarter of the random numbers, and gradients vary less (docs/bench.md); only a loss that
were even in ε would vary more, by a factor of two at most for each of the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Noise = Callable[[tuple[int, ...], Tensor], Tensor]
"""Noise of a shape, of another tensor's type and device; the samples are folded along axis 0, one after another."""


def fresh(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Independent numbers."""
    return torch.randn(shape, dtype=like.dtype, device=like.device)


@dataclass(frozen=True)
class Reused:
    """Noise for `samples` samples from a quarter of the random numbers: ε, ε read backwards, and minus both.

    Example:
        >>> noise = Reused(4)((4, 3), torch.empty(0))
        >>> bool((noise[0] == noise[1].flip(0)).all()), bool((noise[:2] == -noise[2:]).all())
        (True, True)
    """

    samples: int
    rows: int = 1
    """Of the batch: where axis 0 is anything but samples, or samples of this many rows, noise is fresh."""

    def __call__(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        if shape[0] not in (self.samples, self.samples * self.rows):
            return fresh(shape, like)
        rows = shape[0] // self.samples
        drawn = fresh((math.ceil(self.samples / 4) * rows, *shape[1:]), like)
        if self.samples == 1:
            return drawn
        if self.samples == 2:
            return torch.cat([drawn, drawn.neg()])
        back = drawn.flip(tuple(range(drawn.ndim)))
        return torch.cat([drawn, back, drawn.neg(), back.neg()])[: shape[0]]
