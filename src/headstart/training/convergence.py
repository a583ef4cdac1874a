"""Whether training has converged: a record that no longer improves, weights that no longer move."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.network.layer import bayesian_layers

FRACTION = 0.2
"""The last fifth of a record is compared with the fifth before it."""
PATIENCE = 3
"""Checks in a row that see a plateau and so end the training."""
MIN_GAIN = 0.005
"""A gain that does not matter: nats per row, or this fraction of a level above 1."""
WORSE = 3.0
"""Standard errors by which a record rises that is no noise."""
MIN_RECORD = 20
"""The shortest record that is compared with itself: its windows have four values."""
MIN_STEPS, MIN_EPOCHS = 2000, 30
"""A training until convergence takes at most so many steps, or epochs where these are more."""
MAX_CHECKS = 50
"""Evaluations of a training until convergence, at most."""
TAIL = 0.1
"""Movement is measured over the last tenth of the steps, and up to a fifth."""
MAX_MOVEMENT = 0.1
"""Posterior standard deviations, and nats of log sds, that a converged net may have moved then."""
MIN_TAIL = 50
"""Steps over which movement tells something."""


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


def plateau_reached(values: Sequence[float], every: int = 1, min_record: int = MIN_RECORD) -> bool:
    """Whether a record has stopped improving.

    The last fifth is compared with the fifth before it, now and at the two checks before. At each
    of the three, either the gain and its standard error together are less than what matters, or the
    record rises by three standard errors. A gain below 0 counts as none: it is noise, and would
    make up for the error. So a noisy record is no plateau before windows are long enough to tell,
    with noise of standard deviation s around a flat mean not before `10 (s/0.005)²` values.
    Standard errors take the values of a window as independent draws around their mean; a trend
    within a window lengthens them, values that resemble their neighbors should and do not.

    Args:
        values: A record in which less is better: the NELBO over the number of rows for instance.
        every: Values between two checks.
        min_record: The shortest record that is checked.

    Example:
        >>> plateau_reached([1.001, 1.0] * 20), plateau_reached([1 / n for n in range(1, 60)])
        (True, False)
        >>> plateau_reached([5.0, 4.0] * 20)
        False
    """
    for check in range(PATIENCE):
        seen = values[: len(values) - check * every]
        if len(seen) < max(MIN_RECORD, min_record):
            return False
        gain, error = improvement(seen)
        # The level of a window: that of a single batch may be anything.
        level = fmean(seen[-int(FRACTION * len(seen)) :])
        flat = max(gain, 0.0) + error < MIN_GAIN * max(1.0, abs(level))
        if not (flat or gain + WORSE * error < 0):
            return False
    return True


@dataclass(frozen=True)
class Movement:
    """How far the posterior has moved over the last steps of a training.

    Where training ends with the parameters of an earlier evaluation, this is still of its last
    steps.

    Args:
        since: The step from which on.
        until: The step up to which.
        means: `√mean(((μ_t − μ_since) / s_t)²)` over the weights of the layer that moved most, in
            posterior standard deviations.
        log_sds: `√mean((log s_t − log s_since)²)` likewise, in nats.
        allowed: The largest movement of a log sd that the rate in the end allows in that time.

    Example:
        >>> print(Movement(900, 1000, 0.25, 0.01, 0.05))
        not converged: in the last 100 steps means moved by 0.25 posterior sds and log sds by 0.01
    """

    since: int
    until: int
    means: float
    log_sds: float
    allowed: float

    @property
    def converged(self) -> bool:
        """Whether the posterior has moved little, and could have moved more.

        That is by at most 0.1 in at least 50 steps, its log sds by at most half of what their rate
        allows: slow variances that all go one way have not converged.
        """
        moved = max(self.means, self.log_sds)
        long = self.until - self.since >= MIN_TAIL
        return long and moved <= MAX_MOVEMENT and self.log_sds <= 0.5 * self.allowed

    def __str__(self) -> str:
        return (
            f"{'converged' if self.converged else 'not converged'}: in the last "
            f"{self.until - self.since} steps means moved by {self.means:.2g} posterior sds "
            f"and log sds by {self.log_sds:.2g}"
        )


class Tail:
    """Remembers the posterior as it was a tenth of the steps ago, or up to a fifth.

    It keeps two states; the newer one takes the place of the older when it is a tenth of the steps
    old.

    Args:
        model: The net that is trained.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.older: dict[str, Any] | None = None
        self.newer: dict[str, Any] | None = None

    def see(self, step: int) -> None:
        """Take note of the posterior after a step, where it is time to.

        Args:
            step: Its number.
        """
        if self.newer is None or self.newer["step"] <= (1 - TAIL) * step:
            self.older, self.newer = self.newer, self._state(step)

    def movement(self, step: int, rate: float) -> Movement | None:
        """The movement until now; None where there is nothing to measure it by.

        Args:
            step: The number of the last step.
            rate: The rate of the log-variances.
        """
        if self.older is None or self.older["step"] >= step:
            return None
        moved: list[tuple[float, float]] = []
        for name, (mean, variance) in _means_and_variances(self.model).items():
            before = self.older[f"{name}.mean"].to(mean)
            spread = self.older[f"{name}.variance"].to(mean)
            # Weights without spread have no unit to be measured in.
            own = (variance > 0) & (spread > 0)
            if bool(own.any()):
                shifts = (mean - before)[own].square() / variance[own]
                widths = (0.5 * (variance[own] / spread[own]).log()).square()
                moved.append((float(shifts.mean().sqrt()), float(widths.mean().sqrt())))
        if not moved:
            return None
        means, log_sds = (max(each) for each in zip(*moved, strict=True))
        since = int(self.older["step"])
        return Movement(since, step, means, log_sds, 0.5 * rate * (step - since))

    def _state(self, step: int) -> dict[str, Any]:
        kept: dict[str, Any] = {"step": step}
        for name, (mean, variance) in _means_and_variances(self.model).items():
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
def _means_and_variances(model: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
    """Means and variances of every layer."""
    return {
        name: (layer.posterior.mean.detach(), layer.posterior.variance().detach())
        for name, layer in bayesian_layers(model).items()
    }
