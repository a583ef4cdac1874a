"""Standard normal noise for S samples, folded along axis 0; fresh for every number, or used several times over.

An average over samples needs each sample's noise to be right, not that of different samples to be independent. So the
estimate of the NELBO uses numbers again: as their negatives, which cancels what is odd in them, and at other places, where
they meet other weights, or other rows and units. What a weight's gradient sees differs from sample to sample all the same,
so that it varies less than with fresh noise, not more (docs/results/speed.md), and sixteen samples need only 1.4 times the
numbers of one; just the loss itself varies a little more than if all numbers were new.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Noise = Callable[[tuple[int, ...], Tensor], Tensor]
"""Noise of a shape, of another tensor's type and device; the samples are folded along axis 0, one after another. It may come
for half of the samples, on an axis of their own: these then stand for themselves and, after them, their negatives (`whole`)."""


def fresh(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Independent numbers."""
    return torch.randn(shape, dtype=like.dtype, device=like.device)


def whole(noise: Tensor, rows: int) -> Tensor:
    """All rows of noise that may have come for half of the samples.

    Example:
        >>> whole(torch.tensor([[3.0], [5.0]]), 4)
        tensor([ 3.,  5., -3., -5.])
    """
    return noise if noise.shape[0] == rows else torch.cat([noise, noise.neg()]).flatten(0, 1)


SHIFT = 16
"""A sample begins this part of its numbers after the one before."""


@dataclass(frozen=True)
class Reused:
    """Noise for `samples` samples that share most of their numbers: each begins a little further on, and half are minus the others.

    Example:
        >>> noise = whole(Reused(4)((4, 48), torch.empty(0)), 4)
        >>> bool((noise[0, 3:] == noise[1, :-3]).all()), bool((noise[:2] == -noise[2:]).all())
        (True, True)
    """

    samples: int
    rows: int = 1
    """Of the batch: where axis 0 is anything but samples, or samples of this many rows, noise is fresh."""

    def __call__(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        if self.samples == 1 or shape[0] not in (self.samples, self.samples * self.rows):
            return fresh(shape, like)
        one = (shape[0] // self.samples, *shape[1:])
        size, half = math.prod(one), math.ceil(self.samples / 2)
        shift = size // SHIFT | 1  # odd: a number meets other units
        noise = fresh((size + (half - 1) * shift,), like).unfold(0, size, shift).view(half, *one)
        return whole(noise, 2 * half * one[0])[: shape[0]] if self.samples % 2 else noise
