"""A fit on disk: it can be stopped at any step, and go on as if it had never stopped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from headstart.errors import HeadstartError, Interrupted, untrusted
from headstart.storage.checkpoints import Keeper
from headstart.training.convergence import Tail
from headstart.training.early_stopping import EarlyStopping
from headstart.training.history import History, Step
from headstart.training.loop import Training

EARLY_STOPPING = "watch"
"""The key of the early stopping's state, as files have had it from their first format on."""


class FitCheckpoint:
    """The state of a training, its history and its early stopping, kept in a folder.

    Args:
        folder: Where the states are.
        keep: How many of the latest are kept.
        training: The training, on the ranks of which the first one reads and writes.
        history: What it has reported; in place, it takes up what was reported before.
        early_stopping: Its early stopping, if there are validation rows.
        tail: The posterior of a while ago.
        settings: What, beside the settings of the training, must be the same to go on.
    """

    def __init__(
        self,
        folder: Path,
        keep: int,
        training: Training,
        history: History,
        early_stopping: EarlyStopping | None,
        tail: Tail,
        settings: Mapping[str, Any],
    ) -> None:
        self.keeper, self.training, self.history = Keeper(folder, keep), training, history
        self.early_stopping, self.tail = early_stopping, tail
        monitor = None if early_stopping is None else early_stopping.monitor
        self.identity = {**training.identity, **settings, "monitor": monitor}

    def begin_(self, resume: bool) -> None:
        """Take up what an earlier call has left, if there is anything.

        Args:
            resume: Whether to go on from there.

        Raises:
            HeadstartError: The folder holds a run, and `resume` was not asked for, or the run had
                other settings, or its files are damaged.
        """
        state = self.training.lead(lambda: self._latest(resume))
        if state is None:
            return
        with untrusted(self.keeper.folder, "holds a checkpoint that cannot be taken up"):
            self.training.load_state_(state["training"])
            self.history.steps[:] = [
                Step(int(row[0]), *map(float, row[1:])) for row in state["steps"].tolist()
            ]
            self.history.validation[:] = [dict(scores) for scores in state["validation"]]
            self.history.stopped = str(state["stopped"])
            if self.early_stopping is not None:
                self.early_stopping.load_state_(state[EARLY_STOPPING])
            self.tail.load_state_(state.get("tail", self.tail.state()))

    def _latest(self, resume: bool) -> dict[str, Any] | None:
        state = self.keeper.latest(self.identity) if resume or self.keeper.any() else None
        if state is not None and not resume:
            raise HeadstartError(
                f"{self.keeper.folder} holds an unfinished run: "
                "pass resume=True to go on, or name another folder."
            )
        return state

    def save(self) -> None:
        """Keep the state after the last step: every rank tells its own, the first one writes."""
        records = [
            [float(value) for value in vars(record).values()] for record in self.history.steps
        ]
        state = {
            "training": self.training.state(),
            "steps": torch.tensor(records, dtype=torch.float64),
            "validation": self.history.validation,
            "stopped": self.history.stopped,
            "tail": self.tail.state(),
            EARLY_STOPPING: None if self.early_stopping is None else self.early_stopping.state(),
        }
        self.training.lead(lambda: self.keeper.save(self.training.done, state, self.identity))

    def interruption(self) -> Interrupted:
        """What to raise when Ctrl-C was pressed and the state is kept."""
        return Interrupted(
            f"Stopped after step {self.training.done} of {self.training.total}; "
            f"the state is in {self.keeper.folder}: resume goes on from there."
        )
