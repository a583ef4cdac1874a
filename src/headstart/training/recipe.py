"""From a matrix of numbers and labels to a trained Bayesian net: the recipe behind the estimators and `headstart fit`.

Standardised features in, a net sized to the data, I-BLM, then SVI that stops at the best held-out log-likelihood.
"""

from __future__ import annotations

import copy
import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.initializers import initialize_
from headstart.initializers.report import InitReport
from headstart.likelihoods import Likelihood
from headstart.models import create
from headstart.network.convert import bayesianize
from headstart.predictive import evaluate
from headstart.storage.checkpoints import Keeper
from headstart.training.fit import History, fit
from headstart.training.loop import steps

TIMED_STEPS = 5
MOST_VALIDATION = 5000
LOOKS, LEAST_BETWEEN, LOOK_SAMPLES = 20, 10, 32
"""Looks at the held-out rows, the fewest steps between two, and the draws for each."""

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Recipe:
    """How a table is learned; whatever is None follows from the number of rows.

    `validation` is the share of rows held out to know when to stop, `patience` how many evaluations without a better one end
    the training, `time_limit` seconds for all of it, about. With `steps=0` the net is only initialised.

    Example:
        >>> Recipe().sized(40_000).model, Recipe(model="mlp-1x20").sized(100).model
        ('mlp-5x100', 'mlp-1x20')
    """

    model: str | None = None
    steps: int | None = None
    batch_size: int | None = None
    samples: int = 4
    lr: float = 3e-3
    prior: float | str = 1.0
    posterior: str = "mean_field"
    init: str = "iblm"
    validation: float = 0.1
    patience: int | None = 8
    time_limit: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.validation < 1:
            raise HeadstartError(
                f"validation is the share of rows held out, between 0 and 1, not {self.validation}."
            )
        if self.time_limit is not None and self.time_limit <= 0:
            raise HeadstartError(
                f"The time limit must be a positive number of seconds, not {self.time_limit}."
            )
        if self.lr <= 0:
            raise HeadstartError(f"lr must be positive, not {self.lr}.")
        for name, least in (("steps", 0), ("batch_size", 1), ("samples", 1), ("patience", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise HeadstartError(f"{name} must be at least {least}, not {value}.")

    def sized(self, rows: int) -> Recipe:
        """The same with nothing left open, for so many training rows."""
        small = rows < SMALL
        chosen: dict[str, Any] = {
            "model": "mlp-1x50" if small else "mlp-5x100" if rows >= LARGE else "mlp-2x100",
            "steps": 1000 if small else 2000,
            "batch_size": min(256, max(16, rows // 8)),
        }
        return replace(
            self, **{name: value for name, value in chosen.items() if getattr(self, name) is None}
        )


SMALL, LARGE = 1000, 10_000
"""Fewer training rows than the one get a net of one hidden layer, as many as the other one of five."""


@dataclass
class Outcome:
    """What was learned: the net, its likelihood with the noise it found, how it went, and which rows were held out."""

    model: nn.Module
    likelihood: Likelihood
    recipe: Recipe
    report: InitReport
    history: History
    train: Tensor
    validation: Tensor
    scores: dict[str, float] = field(default_factory=dict)


def hold_out(y: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Indices of training and validation rows; of classes, each gives its share but keeps at least one row to learn from.

    What rounding leaves of the share comes from the classes that are furthest from theirs: many small classes give it too.

    Example:
        >>> train, held = hold_out(torch.tensor([0] * 8 + [1] * 2), 0.5, seed=0)
        >>> len(train), len(held), sorted(torch.tensor([0] * 8 + [1] * 2)[held].tolist())
        (5, 5, [0, 0, 0, 0, 1])
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(y), generator=generator)
    if len(y) < 2:
        raise HeadstartError(
            f"At least two rows are needed, one to learn from and one to check; there is {len(y)}."
        )
    if y.is_floating_point():
        count = min(max(1, round(share * len(y))), MOST_VALIDATION, len(y) - 1)
        return order[count:], order[:count]
    groups = [order[y[order] == label] for label in y.unique()]
    counts = [min(int(share * len(rows)), len(rows) - 1) for rows in groups]
    missing = max(1, round(share * len(y))) - sum(counts)
    can_give = [number for number, rows in enumerate(groups) if counts[number] < len(rows) - 1]
    for number in sorted(can_give, key=lambda number: counts[number] - share * len(groups[number]))[
        : max(0, missing)
    ]:
        counts[number] += 1
    if not any(counts):  # no class has two rows
        counts[0] = 1
    spare = torch.cat([rows[:count] for rows, count in zip(groups, counts, strict=True)])
    spare = spare[
        torch.randperm(len(spare), generator=generator)
    ]  # a cut leaves rows of every class
    held = torch.zeros(len(y), dtype=torch.bool)
    held[spare[:MOST_VALIDATION]] = True
    return order[~held[order]], order[held[order]]


def learn(
    x: Any,
    y: Tensor,
    likelihood: Likelihood,
    outputs: int,
    recipe: Recipe | None = None,
    *,
    checkpoint: Path | None = None,
    progress: bool = False,
) -> Outcome:
    """Hold out rows, build, initialise, train to the best held-out score; `x` is standardised, `y` as the likelihood takes it.

    `checkpoint` is a folder: what an earlier call has left there is gone on with; empty it when the result is safe.

    Example:
        >>> import headstart as hs
        >>> x = torch.randn(200, 3)
        >>> found = learn(x, x.sum(1), hs.Gaussian(), 1, Recipe(steps=50))
        >>> found.recipe.model, sorted(found.scores)[:2]
        ('mlp-1x50', ['coverage_95', 'expected_nll'])
    """
    start, recipe = time.perf_counter(), recipe or Recipe()
    x = (
        torch.as_tensor(np.asarray(x), dtype=torch.float32)
        if not isinstance(x, Tensor)
        else x.float()
    )
    train, held = hold_out(y, recipe.validation, recipe.seed)
    data, check = (x[train], y[train]), (x[held], y[held])
    recipe = recipe.sized(len(train))
    assert recipe.model is not None
    assert recipe.steps is not None
    assert recipe.batch_size is not None
    with torch.random.fork_rng([]):
        torch.manual_seed(recipe.seed)
        net = create(recipe.model, x.shape[1], outputs)
        model = bayesianize(net, posterior=recipe.posterior, prior=recipe.prior)
        report = initialize_(model, recipe.init, likelihood, data, seed=recipe.seed)
        keeper = None if checkpoint is None else Keeper(checkpoint)
        begun = keeper and keeper.identity()
        if begun:  # as many steps as were planned then
            total, between = int(begun["steps"]), int(begun["every"])
        else:
            total, between = _affordable(
                model, likelihood, data, check, recipe, time.perf_counter() - start
            )
        history = fit(
            model,
            likelihood,
            data,
            steps=total,
            samples=recipe.samples,
            lr=recipe.lr,
            batch_size=recipe.batch_size,
            lr_schedule="cosine",
            validation=check,
            every=between,
            validation_samples=LOOK_SAMPLES,
            patience=recipe.patience,
            checkpoint=checkpoint,
            resume=True,
            progress=progress,
            seed=recipe.seed,
        )
        scores = evaluate(model, likelihood, check, 2 * LOOK_SAMPLES, seed=recipe.seed)
    return Outcome(model.eval(), likelihood, recipe, report, history, train, held, scores)


def _affordable(
    model: nn.Module, likelihood: Likelihood, data: Pair, check: Pair, recipe: Recipe, spent: float
) -> tuple[int, int]:
    """How many steps, and how many between two looks at the held-out rows: the recipe's, or what its time limit allows.

    A few steps on a copy, and one look, tell what they take; looks may have a third of the time.
    """
    assert recipe.steps is not None
    if recipe.time_limit is None:
        return recipe.steps, max(LEAST_BETWEEN, recipe.steps // LOOKS)
    trial = copy.deepcopy((model, likelihood))
    start = time.perf_counter()
    evaluate(*trial, (check[0][:1], check[1][:1]), 1)  # torch's own first of anything takes longer
    begun = time.perf_counter()
    evaluate(*trial, check, LOOK_SAMPLES)
    look = time.perf_counter() - begun
    for record in steps(
        *trial, data, steps=TIMED_STEPS, samples=recipe.samples, batch_size=recipe.batch_size or 64
    ):
        if record.step == 1:
            begun = time.perf_counter()
    now = time.perf_counter()
    left = (
        0.9 * (recipe.time_limit - spent - (now - start)) - 2 * look
    )  # the scores at the end take twice the samples
    looks = max(1, min(LOOKS, int(left / 3 / look)))
    total = max(
        1, min(recipe.steps, int((left - looks * look) / ((now - begun) / (TIMED_STEPS - 1))))
    )
    return total, max(LEAST_BETWEEN, math.ceil(total / looks))
