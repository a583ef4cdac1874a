"""The random-effects model of levels: `y = xᵀβ + μ + u_j + ε`, its variances and its means."""

from __future__ import annotations

import math

import numpy as np
from scipy import sparse

from headstart.training.tree_arrays import FileArray

MAX_SLOPES, MAX_SLOPE_ROWS = 500, 20_000
"""Columns up to which they are regressed on, and rows that are enough to do so."""
ROWS_PER_SLOPE = 5
"""Rows, beside one for each level, that a column takes."""
SLOPE_RIDGE = 1.0
"""Of the regression, in rows of standardized columns."""


def smoothed_means(
    key: FileArray,
    targets: FileArray,
    weights: FileArray,
    levels: int,
    overall: FileArray,
    pooled: bool = False,
) -> FileArray:
    """The posterior mean `(n_j m_j + κ m) / (n_j + κ)` of each level, (levels, K).

    Args:
        key: The number of each row's level, −1 for one without, (rows,).
        targets: The targets, (rows, K).
        weights: What each row counts, (rows,); n_j is the sum over the rows of a level.
        levels: How many levels there are.
        overall: m, (K,).
        pooled: As in `shrinkage`.

    Example:
        >>> key, y = np.array([0, 0, 1, 1]), np.array([[0.0], [2.0], [8.0], [10.0]])
        >>> smoothed_means(key, y, np.ones(4), 2, y.mean(0)).round(3).ravel().tolist()
        [1.125, 8.875]
    """
    known = (key >= 0) & (weights > 0)
    key, targets, weights = key[known], targets[known], weights[known]
    rows = np.bincount(key, weights, levels)
    sums = [np.bincount(key, weights * each, levels) for each in targets.T]
    means = np.stack(sums, 1) / np.where(rows > 0, rows, 1.0)[:, None]
    squares = weights @ np.square(targets - means[key])
    kappa = shrinkage(rows, means, squares, pooled)
    # A level without rows has the overall mean, also where κ = 0.
    share = rows[:, None] / (np.where(rows > 0, rows, 1.0)[:, None] + kappa)
    return np.asarray(overall + share * (means - overall))


def shrinkage(
    rows: FileArray, means: FileArray, squares: FileArray, pooled: bool = False
) -> FileArray:
    """κ = σ² / τ² of the random-effects model `y = μ + u_j + ε`, by moments, for each target.

    ε has the variance σ², the effect u_j of level j the variance τ². One-way analysis of variance
    of J levels with n_j rows, N together:

        σ² = Σ_i (y_i − m_j(i))² / (N − J)
        τ² = (Σ_j n_j (m_j − m̄)² − (J − 1) σ²) / (N − Σ_j n_j² / N),  m̄ = Σ_j n_j m_j / N

    Where τ² ≤ 0, or N ≤ J tells nothing of σ², κ = ∞: levels do not differ.

    Args:
        rows: n_j, (levels,); levels without rows do not count.
        means: m_j, (levels, K).
        squares: `Σ_i (y_i − m_j(i))²`, (K,).
        pooled: Whether all targets have one κ, that of the sums of their variances: so smoothed
            frequencies of classes add up to 1.

    Example:
        >>> shrinkage(np.array([2.0, 2.0]), np.array([[1.0], [9.0]]), np.array([4.0])).round(4)
        array([0.0645])
    """
    total, count = rows.sum(), int((rows > 0).sum())
    if total <= count or count < 2:
        return np.full(len(squares), math.inf)
    noise = squares / (total - count)
    between = rows @ np.square(means - rows @ means / total)
    effect = (between - (count - 1) * noise) / (total - rows @ rows / total)
    if pooled:
        noise, effect = np.full_like(noise, noise.sum()), np.full_like(effect, effect.sum())
    return np.where(effect > 0, noise / np.where(effect > 0, effect, 1.0), math.inf)


def within_slopes(
    key: FileArray, x: FileArray, targets: FileArray, weights: FileArray
) -> FileArray:
    """The slopes β of the target along other columns, from rows of one level, (columns, K).

    Columns and target are centered in each level, so that β has no part of the levels' effects:
    `β = (Σ w x̃ x̃ᵀ + I)⁻¹ Σ w x̃ ỹ` (the within estimator of panel data, with a ridge of one row).
    0 where there are fewer than five rows, beside one for each level, for a column that varies.

    Args:
        key: The number of each row's level, −1 for one without, (rows,).
        x: Standardized columns, (rows, columns).
        targets: The targets, (rows, K).
        weights: What each row counts, (rows,).

    Example:
        >>> key, x = np.repeat([0, 1], 500), np.linspace(0, 30, 1000)[:, None]
        >>> within_slopes(key, x, 2 * x - 9 * key[:, None], np.ones(1000)).round(3).tolist()
        [[2.0]]
    """
    slopes = np.zeros((x.shape[1], targets.shape[1]))
    known = np.flatnonzero((key >= 0) & (weights > 0))
    known = known[:: max(1, len(known) // MAX_SLOPE_ROWS)]
    if not len(known) or x.shape[1] > MAX_SLOPES:
        return slopes
    key, weights = key[known], weights[known]
    x, targets = (_less_level_means(key, each[known], weights) for each in (x, targets))
    gram = (x.T * weights) @ x
    varies = np.diag(gram) > 1e-9 * weights.sum()
    if ROWS_PER_SLOPE * varies.sum() > weights.sum() - len(np.unique(key)):
        return slopes
    ridge = SLOPE_RIDGE * np.eye(int(varies.sum()))
    moments = (x[:, varies].T * weights) @ targets
    slopes[varies] = np.linalg.solve(gram[np.ix_(varies, varies)] + ridge, moments)
    return slopes


def _less_level_means(key: FileArray, values: FileArray, weights: FileArray) -> FileArray:
    """Values less the weighted mean of their level."""
    members = sparse.csr_matrix((weights, (key, np.arange(len(key)))))
    rows = np.asarray(members.sum(1))
    return np.asarray(values - ((members @ values) / np.where(rows > 0, rows, 1.0))[key])
