"""The paper's experiments by name: products of data sets, initialisers and splits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from headstart.errors import HeadstartError, unknown
from headstart.experiments.run import Run

INITS = ("uninformative", "heuristic", "xavier", "orthogonal", "lsuv", "iblm")
CHECKPOINTS = (50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)


@dataclass(frozen=True)
class Budget:
    """How much of everything: `quick` is minutes on two cores, `paper` the paper's own (its regression epochs: our choice)."""

    splits: int
    steps: int | None = None
    epochs: int | None = None
    eval_samples: int = 128


BUDGETS = {
    "quick": Budget(splits=2, steps=1000, eval_samples=64),
    "paper": Budget(splits=5, epochs=100),
}


@dataclass(frozen=True)
class Suite:
    """A figure or table of the paper; `budgets` says where it departs from the common ones, `paper` names its table in the paper."""

    title: str
    model: str
    datasets: tuple[str, ...]
    paper: str | None = None
    note: str = ""
    budgets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def budget(self, name: str) -> Budget:
        """The budget `name` as this suite has it."""
        if name not in BUDGETS:
            raise unknown("budget", name, BUDGETS)
        return replace(BUDGETS[name], **self.budgets.get(name, {}))


_TOY: dict[str, Any] = {"datasets": ("toy",), "options": {"line": (-15.0, 15.0)}}
_REGRESSION = ("powerplant", "protein")
_CLASSIFICATION = ("mnist", "eeg", "credit", "spam")
SUITES = {
    "toy-predictions": Suite(
        "Toy function: predictions after each initialisation, four tanh layers of 50",
        "mlp-4x50-tanh",
        **_TOY,
        budgets={"quick": {"splits": 1, "steps": 0}, "paper": {"splits": 1, "steps": 0, "epochs": None}},
    ),
    "toy-convergence": Suite(
        "Toy function: convergence, three tanh layers of 500",
        "mlp-3x500-tanh",
        **_TOY,
        note="The paper's figure 1: RMSE 0.613 from the uninformative start after 600 epochs, 0.315 from I-BLM after a few.",
        budgets={"quick": {"splits": 1, "steps": 300}, "paper": {"splits": 1, "epochs": 600}},
    ),
    "regression-shallow": Suite("Regression, one layer of 100", "mlp-1x100", _REGRESSION, "regression_shallow"),
    "regression-deep": Suite("Regression, five layers of 100", "mlp-5x100", _REGRESSION, "regression_deep"),
    "classification-shallow": Suite(
        "Classification, one layer of 100", "mlp-1x100", _CLASSIFICATION, "classification_shallow"
    ),
    "classification-deep": Suite(
        "Classification, five layers of 100", "mlp-5x100", _CLASSIFICATION, "classification_deep"
    ),
}
ALL = "all"


def plan(
    suite: str,
    budget: str = "quick",
    *,
    seed: int = 0,
    splits: int | None = None,
    steps: int | None = None,
    threads: int = 1,
) -> list[Run]:
    """The runs of a suite, or of `all`; `splits` and `steps` override the budget's (a suite that does not train stays so).

    Split k has the seed `seed + k`, so that repetitions differ where the test set is an official one.

    Example:
        >>> runs = plan("regression-deep", "quick")
        >>> len(runs), runs[0].dataset, runs[0].init, runs[0].steps
        (24, 'powerplant', 'uninformative', 1000)
    """
    if suite == ALL:
        return [
            run for name in SUITES for run in plan(name, budget, seed=seed, splits=splits, steps=steps, threads=threads)
        ]
    if suite not in SUITES:
        raise unknown("suite", suite, [*SUITES, ALL])
    chosen = SUITES[suite]
    given = chosen.budget(budget)
    if steps is not None and given.steps != 0:
        given = replace(given, steps=steps, epochs=None)
    template = Run(
        chosen.datasets[0],
        chosen.model,
        INITS[0],
        suite=suite,
        budget=budget,
        steps=given.steps,
        epochs=given.epochs,
        eval_samples=given.eval_samples,
        checkpoints=CHECKPOINTS,
        threads=threads,
        **chosen.options,
    )
    return spread(template, chosen.datasets, INITS, seed=seed, splits=splits or given.splits)


def spread(template: Run, datasets: Iterable[str], inits: Iterable[str], *, seed: int, splits: int) -> list[Run]:
    """The product: a run like `template` for each data set, split and initialiser."""
    if splits < 1:
        raise HeadstartError(f"At least one split is needed, not {splits}.")
    return [
        replace(template, dataset=dataset, init=init, split=split, seed=seed + split)
        for dataset, split, init in product(datasets, range(splits), inits)
    ]
