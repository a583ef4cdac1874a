"""What an experiment is made of: how much of everything, and which product of data sets, nets and variants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headstart.errors import unknown
from headstart.experiments.variants import RACE, Variant


@dataclass(frozen=True)
class Budget:
    """How much of everything: `quick` fits two cores, `paper` is the paper's own (its regression epochs: our choice)."""

    splits: int
    steps: int | None = None
    epochs: int | None = None
    samples: int = 16
    eval_samples: int = 128
    test_rows: int | None = None


BUDGETS = {
    "quick": Budget(splits=3, steps=2000, eval_samples=64),
    "paper": Budget(splits=5, epochs=100),
}


@dataclass(frozen=True)
class Suite:
    """A figure or table of the paper, or one of our own.

    `budgets` says where it departs from the common ones, `options` which fields of its runs do, and `paper` names its table in
    the paper.
    """

    title: str
    models: tuple[str, ...]
    datasets: tuple[str, ...]
    variants: tuple[Variant, ...] = RACE
    paper: str | None = None
    note: str = ""
    budgets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def budget(self, name: str) -> Budget:
        """The budget `name` as this suite has it."""
        if name not in BUDGETS:
            raise unknown("budget", name, BUDGETS)
        return replace(BUDGETS[name], **self.budgets.get(name, {}))


def same(**budget: Any) -> dict[str, dict[str, Any]]:
    """The same steps whatever the budget: a suite of our own has no epochs of the paper's."""
    return {name: {"epochs": None, **budget} for name in BUDGETS}
