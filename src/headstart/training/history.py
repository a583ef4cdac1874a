"""What training reports: a record of each step, and the history of a fit."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Step:
    """The record of one training step.

    Args:
        step: Its number, from 1.
        nelbo: The objective on the step's batch, before the update: `nll + temperature · kl`.
        nll: The expected negative log-likelihood, scaled to the whole data set.
        kl: `KL(q‖p)`, summed over all weights and not multiplied by the temperature.
        seconds: Seconds of training since the start.
    """

    step: int
    nelbo: float
    nll: float
    kl: float
    seconds: float


@dataclass
class History:
    """What `fit` returns.

    Args:
        steps: The record of every step.
        validation: The metrics of every evaluation on validation rows, each with its `step`.
        best_step: The step whose parameters the model ends with; None without validation rows.
        stopped: Why training ended; empty while it goes on.
    """

    steps: list[Step] = field(default_factory=list)
    validation: list[dict[str, float]] = field(default_factory=list)
    best_step: int | None = None
    stopped: str = ""
