"""Gram matrices of many rows, summed in blocks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

GRAM_BLOCK = 256
"""Columns of a Gram matrix summed at once."""
SINGLE_ROWS = 1024
"""Rows whose products are summed in single precision."""


def add_gram_(total: Tensor, x: Tensor) -> None:
    """`total += Xᵀ X`; of a large matrix the blocks up to the diagonal, the others are copies.

    Args:
        total: a symmetric matrix, (D, D), overwritten.
        x: the rows, (N, D).

    Example:
        >>> total = torch.zeros(1, 1)
        >>> add_gram_(total, torch.tensor([[1.0], [2.0]]))
        >>> total
        tensor([[5.]])
    """
    if _is_small(x):
        total.addmm_(x.T, x)
        return
    for rows, columns in _blocks(x.shape[1]):
        total[rows, columns].addmm_(x[:, rows].T, x[:, columns])
    _mirror_(total)


def add_gram_in_single_(total: Tensor, x: Tensor) -> None:
    """`total += Xᵀ X`, of a large matrix with products in single precision.

    With c the mean of some rows, `Xᵀ X = Cᵀ C + s cᵀ + c sᵀ + N c cᵀ`, where `C = X − c` and `s`
    is the sum of its rows: an offset, however large, costs no digits.

    Args:
        total: a symmetric matrix, (D, D), in double precision, overwritten.
        x: the rows, (N, D), in double precision.
    """
    if _is_small(x):
        total.addmm_(x.T, x)
        return
    center, rest = x[:SINGLE_ROWS].mean(0), x.new_zeros(x.shape[1])
    for part in x.split(SINGLE_ROWS):
        centered = part - center
        rest += centered.sum(0)
        centered = centered.float()
        for rows, columns in _blocks(x.shape[1]):
            total[rows, columns] += centered[:, rows].T @ centered[:, columns]
    # Half of what is symmetric on either side of the diagonal.
    mixed = torch.outer(rest + len(x) / 2 * center, center)
    for rows, columns in _blocks(x.shape[1]):
        total[rows, columns] += mixed[rows, columns] + mixed[columns, rows].T
    _mirror_(total)


def _is_small(x: Tensor) -> bool:
    return x.shape[1] < 2 * GRAM_BLOCK or len(x) < GRAM_BLOCK


def _blocks(size: int) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of the blocks of a symmetric matrix up to its diagonal."""
    for start in range(0, size, GRAM_BLOCK):
        end = min(start + GRAM_BLOCK, size)
        yield slice(start, end), slice(0, end)


def _mirror_(symmetric: Tensor) -> None:
    """Copy what is below the diagonal to the other side."""
    for rows, _ in _blocks(len(symmetric)):
        symmetric[: rows.start, rows] = symmetric[rows, : rows.start].T
