"""Whether training has converged: a record that no longer improves, weights that no longer move."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.network.layer import bayesian_layers

FRACTION = 0.2
"""The last fifth of a record is compared with the fifth before it."""
PATIENCE = 3
"""Checks in a row without an improvement beyond the noise that end the training."""
Z = 2.0
"""Standard errors that count as an improvement."""
MIN_RECORD = 20
"""The shortest record that is compared with itself: its windows have four values."""
MIN_STEPS, MIN_EPOCHS = 2000, 30
"""A training until convergence takes at most so many steps, or epochs where these are more."""
TAIL = 0.1
"""Movement is measured over the last tenth of the steps."""
MAX_MOVEMENT = 0.1
"""Posterior standard deviations that a converged net may have moved in that time."""


def improvement(values: Sequence[float], fraction: float = FRACTION) -> tuple[float, float]:
    """By how much the last `fraction` of a record lies below the `fraction` before, on average.

    Args:
        values: A record in which less is better.
        fraction: The length of a window over that of the record.

    Returns:
        The difference of the two means, and its standard error.

    Raises:
        HeadstartError: The record is too short.

    Example:
        >>> improvement([3.0] * 80 + [2.0] * 20)
        (1.0, 0.0)
    """
    window = max(2, int(fraction * len(values)))
    if len(values) < 2 * window:
        raise HeadstartError(
            f"A record of {len(values)} steps is too short to be compared by {window} of them."
        )
    recent, before = (
        torch.tensor(part, dtype=torch.float64)
        for part in (values[-window:], values[-2 * window : -window])
    )
    error = math.sqrt(float(recent.var() + before.var()) / window)
    return float(before.mean() - recent.mean()), error


def plateau_reached(values: Sequence[float], every: int = 1) -> bool:
    """Whether a record has stopped improving by more than its noise.

    The last fifth is compared with the fifth before it, now and at the two checks before: none of
    the three may show an improvement of two standard errors. Standard errors take the values of a
    window as independent draws around their mean, so a trend within a window makes them larger.

    Args:
        values: A record in which less is better, the NELBO of every step for instance.
        every: Values between two checks.

    Example:
        >>> plateau_reached([5.0, 4.0] * 20), plateau_reached([1 / n for n in range(1, 60)])
        (True, False)
    """
    for check in range(PATIENCE):
        seen = values[: len(values) - check * every]
        if len(seen) < MIN_RECORD:
            return False
        gain, error = improvement(seen)
        if gain > Z * error:
            return False
    return True


@dataclass(frozen=True)
class Movement:
    """How far the posterior has moved over the last steps, in its own standard deviations.

    Args:
        since: The step from which on.
        until: The step up to which.
        means: `√mean(((μ_t − μ_since) / s_t)²)` over the weights of the layer that moved most.
        log_sds: `√mean((log s_t − log s_since)²)` likewise.

    Example:
        >>> print(Movement(900, 1000, 0.25, 0.01))
        not converged: in the last 100 steps means moved by 0.25 and log sds by 0.01 posterior sds
    """

    since: int
    until: int
    means: float
    log_sds: float

    @property
    def converged(self) -> bool:
        """Whether neither moved by more than a tenth of a posterior standard deviation."""
        return max(self.means, self.log_sds) <= MAX_MOVEMENT

    def __str__(self) -> str:
        return (
            f"{'converged' if self.converged else 'not converged'}: in the last "
            f"{self.until - self.since} steps means moved by {self.means:.2g} "
            f"and log sds by {self.log_sds:.2g} posterior sds"
        )


class Tail:
    """Remembers the posterior as it was a tenth of the steps ago.

    Where the last step is not known it keeps two states, and the older one takes the place of the
    other when it is a tenth of the steps old: what is measured then is the last tenth to fifth.

    Args:
        model: The net that is trained.
        total: The last step, where it is known; else None.
    """

    def __init__(self, model: nn.Module, total: int | None) -> None:
        self.model, self.total = model, total
        self.older: dict[str, Any] | None = None
        self.newer: dict[str, Any] | None = None

    def see(self, step: int, due: bool) -> None:
        """Take note of the posterior after a step, where it is time to.

        Args:
            step: Its number.
            due: Whether to look at all, where the last step is not known.
        """
        if self.total is not None:
            if self.older is None and step >= math.floor((1 - TAIL) * self.total):
                self.older = self._state(step)
        elif due and (self.newer is None or self.newer["step"] <= (1 - TAIL) * step):
            self.older, self.newer = self.newer, self._state(step)

    def movement(self, step: int) -> Movement | None:
        """The movement until now; None where nothing was remembered.

        Args:
            step: The number of the last step.
        """
        if self.older is None or self.older["step"] >= step:
            return None
        means, log_sds = 0.0, 0.0
        now = _moments(self.model)
        for name, (mean, variance) in now.items():
            before, spread = self.older[f"{name}.mean"], self.older[f"{name}.variance"]
            moved = ((mean - before).square() / variance).mean()
            widened = (0.5 * (variance / spread).log()).square().mean()
            means, log_sds = max(means, float(moved.sqrt())), max(log_sds, float(widened.sqrt()))
        return Movement(int(self.older["step"]), step, means, log_sds)

    def _state(self, step: int) -> dict[str, Any]:
        kept: dict[str, Any] = {"step": step}
        for name, (mean, variance) in _moments(self.model).items():
            kept[f"{name}.mean"], kept[f"{name}.variance"] = mean.clone(), variance.clone()
        return kept

    def state(self) -> dict[str, Any]:
        """All that a checkpoint must know."""
        return {"older": self.older, "newer": self.newer}

    def load_state_(self, state: Mapping[str, Any]) -> None:
        """Go on from there.

        Args:
            state: What `state` returned.
        """
        self.older, self.newer = state["older"], state["newer"]


@torch.no_grad()
def _moments(model: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
    """Means and variances of every layer that has any spread."""
    found = {}
    for name, layer in bayesian_layers(model).items():
        mean, variance = layer.posterior.mean.detach(), layer.posterior.variance().detach()
        if bool((variance > 0).all()):
            found[name] = mean, variance
    return found
