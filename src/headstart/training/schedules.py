"""Schedules of training: the weight of the KL, and the factor of the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable

from headstart.errors import unknown

KLSchedule = Callable[[int, int], float]
"""The weight of the KL at a step (from 1) out of a number of steps."""
LRSchedule = Callable[[float], float]
"""The factor of the learning rate, given the fraction of the steps that are done."""


def constant(step: int, steps: int) -> float:
    """The KL at full weight throughout.

    Args:
        step: The step's number.
        steps: How many steps there are.

    Returns:
        1.
    """
    return 1.0


def warmup(step: int, steps: int, fraction: float = 0.1) -> float:
    """A KL weight that rises from 0 to 1 in a straight line, then stays there.

    Args:
        step: The step's number.
        steps: How many steps there are.
        fraction: The fraction of the steps over which the weight rises.

    Returns:
        `min(1, step / (fraction · steps))`.

    Example:
        >>> warmup(0, 1000), warmup(50, 1000), warmup(500, 1000)
        (0.0, 0.5, 1.0)
    """
    return min(1.0, step / max(1.0, fraction * steps))


def sigmoid(
    step: int,
    steps: int,
    gamma: float = 0.1,
    alpha: float = 2e-3,
    beta: float = 2.5e4,
    horizon: float = 1e5,
) -> float:
    """The KL weight of the I-BLM paper for VGG16, a sigmoid in time.

    Args:
        step: The step's number.
        steps: How many steps there are.
        gamma: The weight in the end.
        alpha: How steeply it rises.
        beta: The time of half of it.
        horizon: The paper's number of steps: its clock is scaled so that they become `steps`.

    Returns:
        `γ / (1 + exp(−α (time − β)))` at `time = step · horizon / steps`.

    Example:
        >>> round(sigmoid(25_000, 100_000), 3), round(sigmoid(250, 1000), 3)
        (0.05, 0.05)
    """
    time = step * horizon / steps
    return gamma / (1 + math.exp(min(700.0, -alpha * (time - beta))))


KL_SCHEDULES: dict[str, KLSchedule] = {"constant": constant, "warmup": warmup, "sigmoid": sigmoid}
"""Schedules of the KL weight by name."""
LR_SCHEDULES: dict[str, LRSchedule] = {
    "constant": lambda progress: 1.0,
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: 0.5 * (1 + math.cos(math.pi * progress)),
}
"""Schedules of the learning rate by name."""


def make_kl_schedule(spec: str | KLSchedule) -> KLSchedule:
    """A schedule of the KL weight.

    Args:
        spec: A name of `KL_SCHEDULES`, or a function of (step, steps).

    Returns:
        The function of (step, steps).

    Raises:
        HeadstartError: There is no schedule of that name.

    Example:
        >>> make_kl_schedule("warmup")(50, 1000), make_kl_schedule(lambda step, steps: 0.2)(1, 2)
        (0.5, 0.2)
    """
    if callable(spec):
        return spec
    if spec not in KL_SCHEDULES:
        raise unknown("KL schedule", spec, KL_SCHEDULES)
    return KL_SCHEDULES[spec]


def make_lr_schedule(name: str) -> LRSchedule:
    """A schedule of the learning rate.

    Args:
        name: A name of `LR_SCHEDULES`.

    Returns:
        The factor of the learning rate as a function of the fraction of steps done.

    Raises:
        HeadstartError: There is no schedule of that name.

    Example:
        >>> make_lr_schedule("linear")(0.25)
        0.75
    """
    if name not in LR_SCHEDULES:
        raise unknown("learning-rate schedule", name, LR_SCHEDULES)
    return LR_SCHEDULES[name]
