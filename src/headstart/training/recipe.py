"""How a table is learned: all settings, and what those that are left open become."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from headstart.errors import HeadstartError, unknown
from headstart.models import names_mlp
from headstart.training.boosting import TreeSize

SMALL_TABLE, LARGE_TABLE = 1000, 10_000
"""Rows below which a net has one hidden layer, and from which on it has five without trees."""
SETTING_MINIMA = {
    "steps": 0,
    "batch_size": 1,
    "samples": 1,
    "members": 1,
    "folds": 1,
    "patience": 1,
}
"""The least that a setting may be."""


@dataclass(frozen=True)
class Effort:
    """How much work a choice is worth.

    Args:
        steps: Training steps at most, of small and of other tables.
        members: Posteriors of the weights.
        folds: Into how many folds few rows are divided, so that each is validated on once.
        folds_below: Rows below which this is so.
        tree_sizes: The trees of small and of other tables; None: some sizes are tried.
        tries: `few`, `common` or `all` of the candidates.
    """

    steps: tuple[int, int]
    members: int
    folds: int
    folds_below: int
    tree_sizes: tuple[TreeSize, TreeSize] | None
    tries: str


EFFORTS = {
    "quick": Effort((300, 600), 1, 1, 0, (TreeSize(15, 60, 0.15), TreeSize(31, 100, 0.1)), "few"),
    "default": Effort((1000, 1500), 1, 3, SMALL_TABLE, None, "common"),
    "best": Effort((3000, 5000), 4, 5, 3 * SMALL_TABLE, None, "all"),
}


@dataclass(frozen=True)
class Recipe:
    """How a table is learned; whatever is None follows from the rows and from validation rows.

    Args:
        model: The net's name in `headstart.models`.
        steps: Training steps at most; with 0 the net is only initialized.
        batch_size: Rows of a step.
        samples: Draws of the weights for each step.
        lr: A learning rate of Adam, which falls along a cosine; None: step sizes that follow from
            the net (docs/step-sizes.md), until validation rows gain nothing more.
        prior: The prior's variance, or the name of a prior.
        posterior: The family of the variational posterior.
        members: How many such posteriors, as a mixture.
        init: The initializer's name.
        trees: Whether the net sees what boosted trees say of each row; None: where validation
            rows are more likely so.
        noise: The noise model of a target: `constant`, `varying` or `student-t` of a quantity,
            `power` or `power-varying` of a positive one, `poisson` or `negative-binomial` of a
            count; None: the one that is likeliest on validation rows.
        effort: `quick`, `default` or `best`: how much is tried, and how long it is trained.
        validation: The fraction of rows held out, where rows are not held out in folds.
        folds: Into how many folds rows are divided; 1: one part is held out; None: by effort.
        patience: Evaluations in a row without a better one that end training; None: until the
            score no longer improves by more than its noise.
        time_limit: Seconds for all of it, about; None: as long as it takes.
        refine: Whether `refine_` solves the last layer again in the end.
        seed: Seeds validation rows, trees, initialization and training.
        device: Where nets are trained, as torch names it: `cpu`, `cuda`, `cuda:1`; what was learned
            comes back to the CPU.

    Example:
        >>> Recipe().sized(40_000).model, Recipe(model="mlp-1x20").sized(100).model
        ('mlp-5x100', 'mlp-1x20')
    """

    model: str | None = None
    steps: int | None = None
    batch_size: int | None = None
    samples: int = 8
    lr: float | None = None
    prior: float | str = 1.0
    posterior: str = "mean_field"
    members: int | None = None
    init: str = "iblm"
    trees: bool | None = None
    noise: str | None = None
    effort: str = "default"
    validation: float = 0.1
    folds: int | None = None
    patience: int | None = 8
    time_limit: float | None = None
    refine: bool = False
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.effort not in EFFORTS:
            raise unknown("effort", self.effort, EFFORTS)
        if self.model is not None and not names_mlp(self.model):
            raise HeadstartError(
                f"There is no model {self.model!r} for tables: a dense net is called "
                "mlp-DEPTHxWIDTH or mlp-DEPTHxWIDTH-ACTIVATION, as in mlp-2x100-tanh."
            )
        self._check_numbers()
        if not 0 < self.validation < 1:
            raise HeadstartError(
                "validation is the fraction of rows held out, between 0 and 1, "
                f"not {self.validation}."
            )
        if self.time_limit is not None and self.time_limit <= 0:
            raise HeadstartError(
                f"The time limit must be a positive number of seconds, not {self.time_limit}."
            )
        if self.lr is not None and self.lr <= 0:
            raise HeadstartError(f"lr must be positive, not {self.lr}.")
        for name, minimum in SETTING_MINIMA.items():
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise HeadstartError(f"{name} must be at least {minimum}, not {value}.")

    def _check_numbers(self) -> None:
        if not isinstance(self.refine, bool):
            raise HeadstartError(f"refine must be true or false, not {self.refine!r}.")
        for name in ("validation", "time_limit", "lr", *SETTING_MINIMA):
            value = getattr(self, name)
            if not (value is None or (isinstance(value, (int, float)) and value == value)):
                raise HeadstartError(f"{name} must be a number, not {value!r}.")
            if name in SETTING_MINIMA and value is not None and value % 1 != 0:
                raise HeadstartError(f"{name} must be a whole number, not {value!r}.")
        if self.refine and (self.folds or 1) > 1:
            raise HeadstartError(
                f"refine=True keeps the net of one part of the rows: leave out folds={self.folds}."
            )

    @property
    def work(self) -> Effort:
        """What the effort means."""
        return EFFORTS[self.effort]

    def tree_sizes(self, rows: int) -> tuple[TreeSize, ...] | None:
        """The sizes of trees to try; None: those that suit the number of rows.

        Args:
            rows: The number of training rows.
        """
        sizes = self.work.tree_sizes
        return None if sizes is None else (sizes[0 if rows < SMALL_TABLE else 1],)

    def sized(self, rows: int, trees: bool = False) -> Recipe:
        """The same with the net, its steps, batches and members settled.

        Args:
            rows: The number of training rows.
            trees: Whether the net stands on trees: it then needs no depth.
        """
        small, deep = rows < SMALL_TABLE, rows >= LARGE_TABLE and not trees
        chosen: dict[str, Any] = {
            "model": "mlp-1x50" if small else "mlp-5x100" if deep else "mlp-2x100",
            "steps": self.work.steps[0 if small else 1],
            "batch_size": min(256, max(16, rows // 8)),
            "members": self.work.members,
        }
        return replace(
            self, **{name: value for name, value in chosen.items() if getattr(self, name) is None}
        )
