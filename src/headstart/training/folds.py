"""Which rows are held out: one part to validate on, or every row once, in folds."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.errors import HeadstartError

MAX_VALIDATION_ROWS = 5000
"""Validation rows beyond which an evaluation would take long, and be no more certain."""


def assign_folds(
    y: NDArray[Any],
    folds: int,
    seed: int,
    *,
    groups: NDArray[Any] | None = None,
    stratify: bool = False,
) -> NDArray[Any]:
    """The fold of each row, folds being of nearly one size.

    Args:
        y: A label for each row.
        folds: How many folds.
        seed: Seeds the choice.
        groups: Rows with the same number stay in one fold.
        stratify: Whether every label is spread over the folds.

    Returns:
        The number of its fold for each row, (rows,).

    Example:
        >>> assign_folds(np.zeros(6), 3, seed=0, groups=np.array([0, 0, 1, 1, 2, 2])).tolist()
        [1, 1, 2, 2, 0, 0]
    """
    rng = np.random.default_rng(seed)
    if groups is not None:
        names, of = np.unique(groups, return_inverse=True)
        # The largest groups first, each to the fold that has the fewest rows.
        sizes = np.bincount(of)
        order = rng.permutation(len(names))
        order = order[np.argsort(-sizes[order], kind="stable")]
        filled, place = np.zeros(folds), np.empty(len(names), int)
        for group in order:
            place[group] = int(np.argmin(filled))
            filled[place[group]] += sizes[group]
        return place[of]
    order = rng.permutation(len(y))
    if stratify:
        order = order[np.argsort(y[order], kind="stable")]
    fold_of = np.empty(len(y), int)
    fold_of[order] = np.arange(len(y)) % folds
    return fold_of


def split_groups(
    groups: NDArray[Any], fraction: float, seed: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Hold out whole groups, as near to a fraction of the rows as one part of them comes.

    Args:
        groups: The group of each row.
        fraction: The fraction of rows to hold out.
        seed: Seeds the choice.

    Returns:
        Indices of training rows and of the rows held out.

    Raises:
        HeadstartError: There is only one group.

    Example:
        >>> train, held_out = split_groups(np.array([0, 0, 0, 0, 1, 2, 2, 3]), 0.2, seed=0)
        >>> len(train), len(held_out)
        (6, 2)
    """
    names = np.unique(groups)
    if len(names) < 2:
        raise HeadstartError(
            "The rows to divide are of one group: at least two are needed, one to learn from and "
            "one to check, and a third where some rows are tested on."
        )
    folds = min(max(2, round(1 / fraction)), len(names))
    fold_of = assign_folds(groups, folds, seed, groups=groups)
    sizes = np.bincount(fold_of, minlength=folds)
    # The largest groups come first: chance decides between parts that are equally near.
    order = np.random.default_rng(seed).permutation(folds)
    held = order[np.argmin(np.abs(sizes[order] - fraction * len(groups)))]
    return np.flatnonzero(fold_of != held), np.flatnonzero(fold_of == held)


def split_validation(y: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Choose validation rows, stratified by class.

    Every class gives its fraction, but keeps at least one row to learn from. What rounding leaves
    comes from the classes that are furthest from their fraction: many small classes give it too.

    Args:
        y: Labels; classes are integers, and floating-point labels are not stratified.
        fraction: The fraction of rows to hold out.
        seed: Seeds the choice.

    Returns:
        Indices of training rows and of validation rows.

    Raises:
        HeadstartError: There are fewer than two rows.

    Example:
        >>> y = torch.tensor([0] * 8 + [1] * 2)
        >>> train, validation = split_validation(y, 0.5, seed=0)
        >>> len(train), len(validation), sorted(y[validation].tolist())
        (5, 5, [0, 0, 0, 0, 1])
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(y), generator=generator)
    if len(y) < 2:
        raise HeadstartError(
            f"At least two rows are needed, one to learn from and one to check; there is {len(y)}."
        )
    if y.is_floating_point():
        count = min(max(1, round(fraction * len(y))), MAX_VALIDATION_ROWS, len(y) - 1)
        return order[count:], order[:count]
    groups = [order[y[order] == label] for label in y.unique()]
    counts = _stratified_counts([len(rows) for rows in groups], fraction)
    chosen = torch.cat([rows[:count] for rows, count in zip(groups, counts, strict=True)])
    # Shuffled, so that the first rows are of every class.
    chosen = chosen[torch.randperm(len(chosen), generator=generator)]
    held_out = torch.zeros(len(y), dtype=torch.bool)
    held_out[chosen[:MAX_VALIDATION_ROWS]] = True
    return order[~held_out[order]], order[held_out[order]]


def _stratified_counts(sizes: list[int], fraction: float) -> list[int]:
    """How many rows each class gives, by the classes' sizes."""
    counts = [min(int(fraction * size), size - 1) for size in sizes]
    missing = max(0, max(1, round(fraction * sum(sizes))) - sum(counts))
    can_give = [number for number, size in enumerate(sizes) if counts[number] < size - 1]
    can_give.sort(key=lambda number: counts[number] - fraction * sizes[number])
    for number in can_give[:missing]:
        counts[number] += 1
    # Where no class has two rows, one gives its only one.
    if not any(counts):
        counts[0] = 1
    return counts
