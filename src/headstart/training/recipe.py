"""From a matrix of numbers and labels to a trained Bayesian net.

The recipe behind the estimators and `headstart fit`: standardized features, a net sized to the
data, I-BLM, then SVI with early stopping on the log-likelihood of validation rows.
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
from headstart.training.fit import fit
from headstart.training.folds import split_validation
from headstart.training.history import History
from headstart.training.loop import steps as training_steps

TIMED_STEPS = 5
"""Steps that are timed to find out how many a time limit allows."""
MAX_EVALUATIONS = 20
"""Evaluations of a training on its validation rows."""
MIN_STEPS_BETWEEN = 10
"""Steps between two evaluations."""
EVALUATION_SAMPLES = 32
"""Draws of the weights for an evaluation; the scores at the end take twice as many."""
SMALL_TABLE, LARGE_TABLE = 1000, 10_000
"""Training rows below which a net has one hidden layer, and from which on it has five."""

LabeledRows = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Recipe:
    """How a table is learned; whatever is None follows from the number of rows.

    Args:
        model: The net's name in `headstart.models`.
        steps: Training steps; with 0 the net is only initialized.
        batch_size: Rows of a step.
        samples: Draws of the weights for each step.
        lr: The learning rate of Adam, which falls along a cosine.
        prior: The prior's variance, or the name of a prior.
        posterior: The family of the variational posterior.
        members: How many such posteriors, as a mixture.
        init: The initializer's name.
        validation: The fraction of rows held out for early stopping.
        patience: Evaluations in a row without a better one that end training; None: never.
        time_limit: Seconds for all of it, about; None: as long as it takes.
        refine: Whether `refine_` solves the last layer again in the end.
        seed: Seeds validation rows, initialization and training.

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
    members: int = 1
    init: str = "iblm"
    validation: float = 0.1
    patience: int | None = 8
    time_limit: float | None = None
    refine: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in (
            "validation",
            "time_limit",
            "lr",
            "steps",
            "batch_size",
            "samples",
            "patience",
        ):
            value = getattr(self, name)
            if not (value is None or isinstance(value, (int, float))):
                raise HeadstartError(f"{name} must be a number, not {value!r}.")
        if not 0 < self.validation < 1:
            raise HeadstartError(
                "validation is the fraction of rows held out, between 0 and 1, "
                f"not {self.validation}."
            )
        if self.time_limit is not None and self.time_limit <= 0:
            raise HeadstartError(
                f"The time limit must be a positive number of seconds, not {self.time_limit}."
            )
        if self.lr <= 0:
            raise HeadstartError(f"lr must be positive, not {self.lr}.")
        minima = {"steps": 0, "batch_size": 1, "samples": 1, "members": 1, "patience": 1}
        for name, minimum in minima.items():
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise HeadstartError(f"{name} must be at least {minimum}, not {value}.")

    def sized(self, rows: int) -> Recipe:
        """The same with nothing left open.

        Args:
            rows: The number of training rows.
        """
        small = rows < SMALL_TABLE
        chosen: dict[str, Any] = {
            "model": "mlp-1x50" if small else "mlp-5x100" if rows >= LARGE_TABLE else "mlp-2x100",
            "steps": 1000 if small else 2000,
            "batch_size": min(256, max(16, rows // 8)),
        }
        return replace(
            self, **{name: value for name, value in chosen.items() if getattr(self, name) is None}
        )


@dataclass
class RecipeResult:
    """What was learned.

    Args:
        model: The trained net, in evaluation mode.
        likelihood: Its likelihood, with the noise it found.
        recipe: The recipe with nothing left open.
        report: What the initializer reported.
        history: What training reported.
        train: Indices of the training rows.
        validation: Indices of the validation rows.
        scores: Metrics on the validation rows.
    """

    model: nn.Module
    likelihood: Likelihood
    recipe: Recipe
    report: InitReport
    history: History
    train: Tensor
    validation: Tensor
    scores: dict[str, float] = field(default_factory=dict)


def learn(
    x: Any,
    y: Tensor,
    likelihood: Likelihood,
    outputs: int,
    recipe: Recipe | None = None,
    *,
    checkpoint: Path | None = None,
    progress: bool = False,
) -> RecipeResult:
    """Hold out validation rows, build a net, initialize it, and train it with early stopping.

    Args:
        x: Standardized features, (rows, features).
        y: Labels, as the likelihood takes them.
        likelihood: The likelihood, trained in place.
        outputs: Outputs of the net.
        recipe: How to do it; None: the default.
        checkpoint: A folder for the state of training: what an earlier call has left there is
            resumed. Empty it when the result is safe.
        progress: Whether to show a progress bar.

    Returns:
        The trained net, and how it went.

    Example:
        >>> import headstart as hs
        >>> x = torch.randn(200, 3)
        >>> found = learn(x, x.sum(1), hs.Gaussian(), 1, Recipe(steps=50))
        >>> found.recipe.model, sorted(found.scores)[:2]
        ('mlp-1x50', ['coverage_95', 'expected_nll'])
    """
    start, recipe = time.perf_counter(), recipe or Recipe()
    x = _features(x)
    train, held_out = split_validation(y, recipe.validation, recipe.seed)
    data, validation = (x[train], y[train]), (x[held_out], y[held_out])
    recipe = recipe.sized(len(train))
    assert recipe.model is not None
    assert recipe.batch_size is not None
    with torch.random.fork_rng([]):
        torch.manual_seed(recipe.seed)
        net = create(recipe.model, x.shape[1], outputs)
        model = bayesianize(
            net, posterior=recipe.posterior, prior=recipe.prior, members=recipe.members
        )
        report = initialize_(model, recipe.init, likelihood, data, seed=recipe.seed)
        planned = None if checkpoint is None else Keeper(checkpoint).identity()
        # A training that is resumed takes as many steps as were planned when it began.
        if planned:
            steps, every = int(planned["steps"]), int(planned["every"])
        else:
            spent = time.perf_counter() - start
            steps, every = _plan_steps(model, likelihood, data, validation, recipe, spent)
        history = fit(
            model,
            likelihood,
            data,
            steps=steps,
            samples=recipe.samples,
            lr=recipe.lr,
            batch_size=recipe.batch_size,
            lr_schedule="cosine",
            validation=validation,
            every=every,
            validation_samples=EVALUATION_SAMPLES,
            patience=recipe.patience,
            checkpoint=checkpoint,
            resume=checkpoint is not None,
            refine=recipe.refine,
            progress=progress,
            seed=recipe.seed,
        )
        scores = evaluate(model, likelihood, validation, 2 * EVALUATION_SAMPLES, seed=recipe.seed)
    return RecipeResult(model.eval(), likelihood, recipe, report, history, train, held_out, scores)


def _features(x: Any) -> Tensor:
    """Numbers in single precision."""
    if isinstance(x, Tensor):
        return x.float()
    return torch.as_tensor(np.asarray(x), dtype=torch.float32)


def _plan_steps(
    model: nn.Module,
    likelihood: Likelihood,
    data: LabeledRows,
    validation: LabeledRows,
    recipe: Recipe,
    spent: float,
) -> tuple[int, int]:
    """How many steps, and how many between two evaluations.

    They are the recipe's, or what is left of its time limit after the seconds `spent` allows: an
    evaluation and a few steps on a copy tell what they take. Evaluations may have a third of the
    time.
    """
    assert recipe.steps is not None
    if recipe.time_limit is None:
        return recipe.steps, max(MIN_STEPS_BETWEEN, recipe.steps // MAX_EVALUATIONS)
    start = time.perf_counter()
    evaluation, step = _seconds(model, likelihood, data, validation, recipe)
    # The scores at the end take twice the samples of an evaluation.
    left = 0.9 * (recipe.time_limit - spent - (time.perf_counter() - start)) - 2 * evaluation
    evaluations = max(1, min(MAX_EVALUATIONS, int(left / 3 / evaluation)))
    steps = max(1, min(recipe.steps, int((left - evaluations * evaluation) / step)))
    return steps, max(MIN_STEPS_BETWEEN, math.ceil(steps / evaluations))


def _seconds(
    model: nn.Module,
    likelihood: Likelihood,
    data: LabeledRows,
    validation: LabeledRows,
    recipe: Recipe,
) -> tuple[float, float]:
    """What an evaluation and a step take, measured on a copy."""
    trial = copy.deepcopy((model, likelihood))
    # The first of anything takes longer in torch, so it is not timed.
    evaluate(*trial, (validation[0][:1], validation[1][:1]), 1)
    start = time.perf_counter()
    evaluate(*trial, validation, EVALUATION_SAMPLES)
    evaluation = time.perf_counter() - start
    for record in training_steps(
        *trial, data, steps=TIMED_STEPS, samples=recipe.samples, batch_size=recipe.batch_size or 64
    ):
        if record.step == 1:
            start = time.perf_counter()
    return evaluation, (time.perf_counter() - start) / (TIMED_STEPS - 1)
