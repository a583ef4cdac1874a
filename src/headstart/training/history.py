"""What training reports: a record of each step, and the history of a fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headstart.metrics import score_metric
from headstart.training.convergence import Movement, plateau_reached
from headstart.training.plot import draw_training
from headstart.training.refine import RefineReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIN_STEPS = 500
"""Steps before which the NELBO's record is not asked for a plateau."""


@dataclass(frozen=True)
class Step:
    """The record of one training step.

    Args:
        step: Its number, from 1.
        nelbo: The objective on the step's batch, where its gradient was taken, before the update:
            `nll + temperature · kl`.
        nll: The expected negative log-likelihood, scaled to the whole data set.
        kl: `KL(q‖p)`, summed over all weights and not multiplied by the temperature.
        seconds: Seconds of training since the start.
    """

    step: int
    nelbo: float
    nll: float
    kl: float
    seconds: float


@dataclass(repr=False)
class History:
    """What `fit` returns; `plot` draws it.

    Args:
        steps: The record of every step.
        validation: The metrics of every evaluation on validation rows, each with its `step`.
        best_step: The step whose parameters the model ends with; None without validation rows.
        stopped: Why training ended; empty while it goes on.
        movement: How far the posterior moved in its last steps; None where training was too short
            to tell, or no weight has any spread.
        refined: What `refine_` did after the last step; None where it was not asked for.
    """

    steps: list[Step] = field(default_factory=list)
    validation: list[dict[str, float]] = field(default_factory=list)
    best_step: int | None = None
    stopped: str = ""
    movement: Movement | None = None
    refined: RefineReport | None = None

    def __repr__(self) -> str:
        words = f"History of {len(self.steps)} steps"
        if self.steps:
            words += f" in {self.steps[-1].seconds:.3g} s, NELBO {self.steps[-1].nelbo:.4g}"
        if self.validation:
            words += f", {len(self.validation)} evaluations, the best at step {self.best_step}"
        return f"<{words}: {self.stopped or 'unfinished'}>"

    def progress(self, monitor: str = "mnll") -> str:
        """The last step and the last evaluation in a few words.

        Args:
            monitor: The metric of the validation rows.
        """
        words = f"fit · nelbo {self.steps[-1].nelbo:.4g}"
        if self.validation:
            words += f" · validation {monitor} {self.validation[-1][monitor]:.4g}"
        return words

    def plateau(self, monitor: str, every: int, rows: int) -> str:
        """Which record has stopped improving; empty where training should go on.

        The score of the validation rows decides where there are any, else the NELBO over the
        number of training rows, from step 500 on.

        Args:
            monitor: The metric of the validation rows.
            every: Steps between two evaluations.
            rows: The number of training rows.
        """
        if self.validation:
            sign = -score_metric(monitor).better
            flat = plateau_reached([sign * scores[monitor] for scores in self.validation])
        else:
            nelbo = [record.nelbo / rows for record in self.steps]
            flat = plateau_reached(nelbo, every, MIN_STEPS)
        return f"{monitor if self.validation else 'NELBO'} no longer improves" if flat else ""

    def plot(self, path: str | Path | None = None, monitor: str = "mnll") -> Figure:
        """Draw the NELBO of every step, its smoothed course, and the validation score.

        Args:
            path: Where to write the picture; None: nowhere.
            monitor: The metric of the validation rows.

        Returns:
            The figure.

        Raises:
            HeadstartError: There is no step to draw, or matplotlib is not installed.

        Example:
            >>> history = History([Step(1, 3.0, 2.0, 1.0, 0.1), Step(2, 2.5, 1.5, 1.0, 0.2)])
            >>> len(history.plot().axes)
            1
        """
        moving = self.movement is not None and not self.movement.converged
        state = "; the posterior still moves" if moving else ""
        figure = draw_training(
            [record.nelbo for record in self.steps],
            {int(scores["step"]): scores[monitor] for scores in self.validation},
            metric=monitor,
            title=f"{self.stopped}{state}",
            best_step=self.best_step,
        )
        if path is not None:
            figure.savefig(path, dpi=120)
        return figure
