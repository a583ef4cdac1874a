"""How certain a unit may be after its regression: what rows count for, and noise of weights."""

from __future__ import annotations

import math

SCARCE, MOSTLY_NOISE = 8000, 0.5
"""Fewer rows than this are few for targets of which more than this fraction is noise.

Such targets are codes of classes, not features of a real-valued label.
"""


def effective_rows(max_rows: int, num_data: int, size: int, noise_var: float) -> float:
    """How many rows the evidence of a unit with `size` weights counts for.

    `max_rows` for a unit of a hundred weights, fewer for a wider one, never more than there are.
    Where rows are few and targets mostly noise it is a fraction of them: there the net must start
    uncertain, or it overfits before the KL can tell it so.

    Args:
        max_rows: the rows that count for a unit of a hundred weights.
        num_data: the rows of the data set.
        size: the weights of a unit.
        noise_var: the noise variance of its standardized target.
    """
    limit = min(num_data, max_rows * math.sqrt(100 / size))
    return evidence_fraction(num_data, noise_var) * limit


def evidence_fraction(num_data: int, noise_var: float) -> float:
    """1 where there are enough rows for targets with so much noise, less where they are scarce.

    Args:
        num_data: the rows of the data set.
        noise_var: the noise variance of a standardized target.
    """
    return min(1.0, num_data / SCARCE) if noise_var > MOSTLY_NOISE else 1.0


def max_noise_fraction(
    noise_share: float | None, layers: int, num_data: int, noise_var: float
) -> float:
    """The fraction of a layer's pre-activation variance that may be noise of the weights.

    It is larger where rows are scarce: there the net is to start uncertain.

    Args:
        noise_share: the fraction of a net with one layer; None: no bound.
        layers: the hidden layers.
        num_data: the rows of the data set.
        noise_var: the noise variance of the layer's targets.
    """
    if noise_share is None:
        return 1.0
    return noise_share / layers**2 / math.sqrt(evidence_fraction(num_data, noise_var))
