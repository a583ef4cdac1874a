"""Early stopping: the best validation score so far, its parameters, and how long ago it was."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

from torch import nn

from headstart.errors import unknown
from headstart.metrics import score_metric


class EarlyStopping:
    """Remembers the parameters of the best validation score, and says when to stop.

    Args:
        module: What is trained; its parameters and buffers are remembered.
        monitor: The metric that decides, a name of `headstart.metrics.METRICS`.
        patience: Evaluations in a row without a better score that end training; None: never.

    Example:
        >>> import torch
        >>> net = nn.Linear(1, 1, bias=False)
        >>> stopping = EarlyStopping(net, "rmse", patience=1)
        >>> for step, rmse in ((1, 0.5), (2, 0.7)):
        ...     _ = nn.init.constant_(net.weight, step)
        ...     stopping.update(step, {"rmse": rmse})
        >>> stopping.reason, stopping.restore_(), net.weight.item()
        ('no better rmse in 1 evaluations', 1, 1.0)
    """

    def __init__(
        self, module: nn.Module, monitor: str = "mnll", patience: int | None = None
    ) -> None:
        self.module, self.monitor, self.patience = module, monitor, patience
        self.best, self.misses, self.best_step = math.inf, 0, 0
        self.parameters = copy.deepcopy(module.state_dict())

    def update(self, step: int, scores: Mapping[str, float]) -> None:
        """Take note of an evaluation.

        Args:
            step: The step after which it was.
            scores: Its metrics by name.

        Raises:
            HeadstartError: The monitored metric is not among them, or has no better side.
        """
        usable = [name for name in scores if score_metric(name).better]
        if self.monitor not in usable:
            raise unknown("metric to monitor", self.monitor, usable)
        score = -score_metric(self.monitor).better * scores[self.monitor]
        if score < self.best:
            self.best, self.misses, self.best_step = score, 0, step
            self.parameters = copy.deepcopy(self.module.state_dict())
        else:
            self.misses += 1

    @property
    def reason(self) -> str:
        """Why training should stop now; empty where it should go on."""
        if self.patience is None or self.misses < self.patience:
            return ""
        return f"no better {self.monitor} in {self.patience} evaluations"

    def restore_(self) -> int:
        """Give the module its best parameters back; returns the step they are from."""
        self.module.load_state_dict(self.parameters)
        return self.best_step

    def state(self) -> dict[str, Any]:
        """All that a checkpoint must know."""
        return {
            "best": self.best,
            "misses": self.misses,
            "best_step": self.best_step,
            "parameters": self.parameters,
        }

    def load_state_(self, state: Mapping[str, Any]) -> None:
        """Go on from there.

        Args:
            state: What `state` returned.
        """
        self.best, self.misses, self.best_step = state["best"], state["misses"], state["best_step"]
        self.parameters = state["parameters"]
